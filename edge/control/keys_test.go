package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/counter"
)

// A client is known by its key under the rules that count by just that, in whatever order it is named, blocked before it was seen, and freed.
func TestClientByKey(t *testing.T) {
	c := newPlane(t, `rules:
- {name: api, key: "header:X-Api-Key", limit: 5}
- {name: both, key: ["header:x-api-key", host], limit: 5}
- {name: swapped, key: [host, "header:X-API-KEY"], limit: 5}
- {name: site, limit: 5}
- {name: asleep, key: "header:X-Api-Key", limit: 5, mode: off}
`)
	now := time.Now()
	key := &Key{KeyPart: KeyPart{Key: "header:X-API-Key", Value: "k"}}
	pair := &Key{Parts: []KeyPart{{Key: "host", Value: "a.example"}, key.KeyPart}}
	names := func(k *Key) (all string) {
		l, err := c.LookKey(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.Rules {
			if all += r.Rule + " "; r.Until != nil {
				all += "blocked "
			}
		}
		return all
	}
	if got := names(key) + "| " + names(pair); got != "api | both swapped " {
		t.Errorf("looked at %s", got)
	}
	m, err := c.BlockKey(pair, AllRules, time.Hour, "", Operator{}, now)
	if err != nil || m.Rule != AllRules || strings.Join(m.Rules, " ") != "both swapped" || !strings.HasPrefix(m.Source, "#") {
		t.Errorf("%+v %v", m, err)
	}
	if got := names(key) + "| " + names(pair); got != "api | both blocked swapped blocked " {
		t.Errorf("looked at %s", got)
	}
	digest, _ := counter.ParseSource(m.Source)
	if l := c.LookDigest(t.Context(), digest); len(l.Rules) != 1 || l.Rules[0].Rule != "both" || l.Rules[0].Until == nil {
		t.Errorf("by its digest: %+v", l)
	}
	if lifted, err := c.LiftKey(pair, "both", Operator{}, now); err != nil || !lifted.Lifted || strings.Join(lifted.Rules, " ") != "both" {
		t.Errorf("%+v %v", lifted, err)
	}
	if got := names(pair); got != "both swapped blocked " {
		t.Errorf("looked at %s", got)
	}
	if _, err := c.BlockDigest(t.Context(), digest, time.Hour, "", Operator{}, now); !errors.Is(err, ErrNotSeen) {
		t.Errorf("a digest that no rule knows: %v", err)
	}
	for _, k := range []*Key{{}, {KeyPart: key.KeyPart, Parts: pair.Parts}, {KeyPart: KeyPart{Key: "header:X-Api-Key=SECRET"}}, {KeyPart: KeyPart{Value: "SECRET"}}, {KeyPart: KeyPart{Key: "jwt:a=b\x00", Value: "SECRET"}}} {
		if _, err := c.LookKey(t.Context(), k); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%+v: %v", k, err)
		}
	}
	if _, err := c.LookKey(t.Context(), &Key{KeyPart: KeyPart{Key: "jwt:a=b", Value: "c"}}); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "by jwt:a=b alone") {
		t.Errorf("a claim whose name has a sign of equality: %v", err)
	}
	if _, err := c.BlockKey(key, "asleep", time.Hour, "", Operator{}, now); !errors.Is(err, ErrOff) {
		t.Errorf("under a rule that is off: %v", err)
	}
}
