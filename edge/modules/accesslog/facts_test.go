package accesslog

import (
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/message"
	"sluice/edge/rules/key"
)

// What rules have asked for is in the line, if it is known and operators write it.
func TestFactsAreInTheLine(t *testing.T) {
	v := &key.View{Request: new(message.Request)}
	for _, f := range []struct{ name, match, value string }{{"ja4", "ja4", "t13d"},
		{"verified", "verified", ""}, {"pass", "", "\x01"}} {
		v.Fact(&key.Fact{Name: f.name, Match: f.match, Find: func(buf []byte, _ *key.View) []byte {
			return append(buf, f.value...)
		}})
	}
	line := string(appendJSON(nil, &edge.Outcome{Head: v.Request, Facts: v}, "e", 1))
	if !strings.Contains(line, `,"ja4":"t13d"`) || strings.Contains(line, "verified") ||
		strings.Contains(line, "pass") {
		t.Errorf("the line is %s", line)
	}
}
