package key

import (
	"testing"

	"sluice/counter"
	"sluice/edge/message"
)

// A fact that is slow is found once, unless who asks is spared it. One that is not clear refuses the request by what it follows from, and a
// claim that is empty is a value.
func TestSlowFact(t *testing.T) {
	parts, _ := partsOf(t, "jwt:sub", "jwt:name")
	secret, source := NewSecret([16]byte{7}), ip("192.0.2.1")
	digest := func(spared bool, lines ...string) (counter.Source, *Part) {
		v := &View{Request: &message.Request{Head: *headOf(t, lines...)}, Spared: spared}
		s, _, bad := secret.Digest(parts, v, source, nil)
		want := 1
		if spared {
			want = 0
		}
		if len(v.found) != want {
			t.Errorf("%v: it was found %d times, want %d", lines, len(v.found), want)
		}
		return s, bad
	}
	nobody, _ := digest(false)
	for line, known := range map[string]bool{"X-Token: sub=anna": true, "X-Token: sub=": true, "X-Token: other=anna": false} {
		if s, bad := digest(false, line); (s != nobody) != known || bad != nil {
			t.Errorf("%s: it counts for %v, of nobody %v", line, s, nobody)
		}
		if s, bad := digest(true, line); s != nobody || bad != nil {
			t.Errorf("%s, spared: it counts for %v, want %v", line, s, nobody)
		}
	}
	twice := []string{"X-Token: sub=anna", "X-Token: sub=bert"}
	if _, bad := digest(false, twice...); bad == nil || bad.Refusal().Code != "bad_x_token" {
		t.Errorf("two tokens: %v", bad)
	}
	if s, bad := digest(true, twice...); s != nobody || bad != nil {
		t.Errorf("two tokens, spared: %v", bad)
	}
}

// Of a key that is spelled otherwise all is one but the argument of a fact.
func TestFold(t *testing.T) {
	for text, want := range map[string]string{"header:X-A": "header:x-a", "cookie:S": "cookie:s", "query:ID": "query:id", "path:2": "path:2", "Host": "host",
		"country": "country", "jwt:Sub": "jwt:Sub", "jwt:https://A:b": "jwt:https://A:b"} {
		if got := Fold(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
