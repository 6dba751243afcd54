package match

import (
	"testing"

	"sluice/edge/rules/key"
)

func TestImpossibleConditions(t *testing.T) {
	for _, test := range []struct {
		kind          key.Kind
		name, pattern string
	}{
		{key.Header, "x key", "*"}, {key.Header, "", "*"}, {key.Header, "host", "a"}, {key.Header, "connection", "*"}, {key.Header, "transfer-encoding", "*"},
		{key.Header, "x_forwarded_for", "*"}, {key.Header, "x-forwarded-for", "*"}, {key.Header, "x", "a*b"}, {key.Header, "x", " a"}, {key.Header, "x", "a "}, {key.Header, "x", "a\x00"},
		{key.Header, "authorization", "Basic ?"},
		{key.Cookie, "a b", "*"}, {key.Cookie, "a", "a b"}, {key.Cookie, "a", "%61"}, {key.Cookie, "a", `"a"`}, {key.Cookie, "a", "é"},
		{key.Query, "a%", "*"}, {key.Query, "a", "a+b"}, {key.Query, "a", "**"},
	} {
		if checkValue(test.kind, test.name, test.pattern) == nil {
			t.Errorf("%d %q: %q is possible", test.kind, test.name, test.pattern)
		}
	}
}
