package tier

import (
	"strings"
	"testing"
	"time"

	"sluice/pop/marks"
	"sluice/pop/secret"
)

func TestSecretStatus(t *testing.T) {
	noFile := secret.Of([]byte("fra1")).At("fra1").Digests()[0]
	edge := func(digest, name string, rotating bool) marks.Edge {
		return marks.Edge{Mark: marks.Mark{ID: 1, Digests: []string{digest}, Name: name, Address: "192.0.2.1:80"}, Rotating: rotating}
	}
	many := make([]marks.Edge, 12)
	for i := range many {
		many[i] = edge("beef", "e", false)
	}
	for _, test := range []struct {
		what string
		in   marks.Secrets
		want string // "": no warning; "…": whatever is between
	}{
		{"nobody else", marks.Secrets{Digests: []string{"cafe"}}, ""},
		{"strangers", marks.Secrets{Digests: []string{"cafe"}, Apart: []marks.Edge{edge("beef", "a", false), edge("beef", "b", false), edge(noFile, "c", false), edge("fade", "d", true)}},
			"edges of PoP fra1 have another secret than this one (digest cafe) and count apart, so a source gets its limit on each side: " +
				"digest beef: a at 192.0.2.1:80, b at 192.0.2.1:80; without pop.secret_file: c at 192.0.2.1:80: give all the same pop.secret_file, and restart those that had another"},
		{"no file here", marks.Secrets{Digests: []string{noFile}, Held: true, Apart: []marks.Edge{edge("beef", "a", false), edge("beef", "b", false)}},
			"this edge (without pop.secret_file) has met no other of PoP fra1 with its secret, and others share one: digest beef: a at 192.0.2.1:80, b at 192.0.2.1:80: give it their pop.secret_file, and restart it"},
		{"a change under way", marks.Secrets{Digests: []string{"cafe", "beef"}, Apart: []marks.Edge{edge("beef", "a", true)}},
			"edges of PoP fra1 count under another line of pop.secret_file than this one (digest cafe), …: digest beef: a at 192.0.2.1:80: finish the change of the secret on all edges"},
		{"many", marks.Secrets{Digests: []string{"cafe"}, Apart: many}, "…e at 192.0.2.1:80, and 4 more: give all…"},
	} {
		got, from := secretStatus("fra1", &test.in), 0
		ok := (got.Warning == "") == (test.want == "") && got.Held == test.in.Held && len(got.Apart) == len(test.in.Apart)
		for part := range strings.SplitSeq(test.want, "…") {
			at := strings.Index(got.Warning[from:], part)
			ok = ok && at >= 0
			from += max(at, 0) + len(part)*min(at+1, 1)
		}
		if !ok {
			t.Errorf("%s: %+v\nwant %s", test.what, got, test.want)
		}
	}
}

// Each change is told once, and whoever changes marks all the time fills no log.
func TestSecretWarnings(t *testing.T) {
	began, w := time.Unix(1_800_000_000, 0), secretWatcher{}
	for i, step := range []struct {
		after   time.Duration
		warning string
		want    string
	}{
		{0, "", ""},
		{time.Second, "a", "a"},
		{2 * time.Second, "a", ""},
		{3 * time.Second, "b", ""},
		{4 * time.Second, "c", ""},
		{12 * time.Second, "d", "d"},
		{13 * time.Second, "", ""},
		{30 * time.Second, "", "no other edge of the PoP counts under another secret any more"},
		{60 * time.Second, "", ""},
	} {
		e, news := w.look(step.warning, began.Add(step.after))
		if e.Text != step.want || news != (step.want != "") {
			t.Errorf("step %d: %q, want %q", i, e.Text, step.want)
		}
	}
}
