package why

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// A request is found by its name, in whichever log, and told with what decided; who ordered a block, and why, reaches no terminal as it is.
func TestFind(t *testing.T) {
	const id = "9f86d081884c7d659a2feaa0c55ad015"
	lines := entry("14:05:01.000", "a", "192.0.2.7", passed)
	line := func(rest string) string {
		return `{"time":"2026-05-04T14:05:02.000Z","id":"` + id + `","edge":"a","source":"192.0.2.7","host":"shop.example","method":"GET","path":"/x","status":429,"from":"limit"` + rest + "}\n"
	}
	for rest, want := range map[string]string{
		`,"rule":"login","verdict":"limited","estimate":3.00,"limit":2,"window":60`:                                                 "over the limit of rule login: 3 requests in 1m0s, 2 are allowed\n",
		`,"rule":"login","verdict":"limited","estimate":3.00,"limit":2,"window":60,"until":"2026-05-04T14:06:00Z"`:                  "over the limit of rule login: 3 requests in 1m0s, 2 are allowed; blocked until 2026-05-04 14:06:00.000Z\n",
		`,"rule":"login","verdict":"mitigated","until":"2026-05-04T14:06:00Z"`:                                                      "blocked by rule login until 2026-05-04 14:06:00.000Z\n",
		`,"rule":"login","verdict":"mitigated","until":"2026-05-04T14:06:00Z","by":"admin","who":"ada","reason":"scraper\u001b[2J"`: "blocked under rule login until 2026-05-04 14:06:00.000Z: an operator ordered it: ada, because of: scraper",
		`,"rule":"login","verdict":"mitigated","action":"challenge","until":"2026-05-04T14:06:00Z"`:                                 "the rule's answer is its action: challenge\n",
		`,"verdict":"denied"`: "refused by the list deny\n",
	} {
		found, err := Find(id, strings.NewReader(lines), strings.NewReader(lines+line(rest)))
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v", rest, found, err)
			continue
		}
		var b bytes.Buffer
		if err := found[0].Text(&b); err != nil || !strings.Contains(b.String(), want) || strings.Contains(b.String(), "\x1b") ||
			!strings.HasPrefix(b.String(), "2026-05-04 14:05:02.000Z  GET shop.example/x from 192.0.2.7 at edge a: 429, answered by a rule\n") {
			t.Errorf("%s:\n%s, %v", rest, b.String(), err)
		}
	}
	if _, err := Find(id, strings.NewReader(lines)); err == nil || !strings.Contains(err.Error(), "no request "+id+" in 1 lines") {
		t.Error(err)
	}
	for text, is := range map[string]bool{id: true, "req-2026:17": true, "me": false, "nobody-at-all": false, "../../etc/passwd1": false, "a b c d e 1": false, "#" + id: false} {
		if IsID(text) != is {
			t.Errorf("%s: %v", text, !is)
		}
	}
}

// What a rule does in place of refusing is told.
func TestActions(t *testing.T) {
	q := Question{Source: netip.MustParsePrefix("192.0.2.7/32")}
	s := explain(t, q, entry("14:05:01.000", "a", "192.0.2.7", mitigated+`,"action":"redirect"`))
	if got := text(t, s); !strings.Contains(got, "  1 request refused under it by action: redirect, the last at ") {
		t.Error(got)
	}
}

// A block that an operator has ordered says so, with his name and why.
func TestOrdered(t *testing.T) {
	q := Question{Source: netip.MustParsePrefix("192.0.2.7/32")}
	s := explain(t, q, entry("14:05:01.000", "a", "192.0.2.7", mitigated+`,"by":"admin","who":"ada","reason":"scraper"`))
	if got := text(t, s); !strings.Contains(got, "  an operator ordered it: ada, because of: scraper\n") || strings.Contains(got, "began elsewhere") {
		t.Error(got)
	}
}
