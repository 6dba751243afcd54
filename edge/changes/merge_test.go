package changes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// say does what an operator asks for at an edge with a number, in a millisecond, and returns the change as it travels.
func (d *desk) say(maker, at uint64, e Edit) Change {
	d.t.Helper()
	e.Name = cmp.Or(e.Name, "login")
	c, needed, err := d.overlay().Change(e)
	if err != nil || !needed {
		d.t.Fatalf("%s: %v, %v", e.Body, needed, err)
	}
	version := at
	for _, o := range d.said {
		version = max(version, o.Version+1)
	}
	c.Edge = fmt.Sprint("edge", maker)
	said := Read(c.Name, version, maker, time.Unix(int64(at), 0), c.Text())
	d.receive(said)
	return said
}

// receive takes in changes that were said elsewhere, in whatever order.
func (d *desk) receive(list ...Change) {
	for _, c := range list {
		if !slices.ContainsFunc(d.said, func(o Change) bool { return o.id() == c.id() && o.Name == c.Name }) {
			d.said = append(d.said, c)
		}
	}
	slices.SortFunc(d.said, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(b.Maker, a.Maker))
	})
}

func patch(body string) Edit { return Edit{Action: Patch, Body: []byte(body), Who: "ada"} }

// Two operators change the rule at two edges, neither knowing of the other. Their changes come together field by field;
// of what both have set the newer stands, by its edge if both are of one millisecond, and the other learns of it.
func TestTwoAtOnce(t *testing.T) {
	whole := func(body string) Edit { return Edit{Action: Put, Replace: true, Body: []byte(body), Who: "ada"} }
	for _, test := range []struct {
		first, second Edit
		want, lost    string // what the first gets
	}{
		{patch(`{"limit":20}`), patch(`{"mitigation_timeout":"2m"}`), `{"limit":20,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"2m","name":"login"}`, ""},
		{patch(`{"limit":20,"window":"2m"}`), patch(`{"limit":30}`), `{"limit":30,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login","window":"2m"}`, "limit is 30, not 20"},
		{patch(`{"limit":20}`), patch(`{"limit":20}`), `{"limit":20,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login"}`, ""},
		{patch(`{"match":{"path":"/in"}}`), patch(`{"match":{"methods":null}}`), `{"limit":5,"match":{"path":"/in"},"mitigation_timeout":"10m","name":"login"}`, ""},
		{patch(`{"match":null}`), patch(`{"match":{"path":"/in"}}`), `{"limit":5,"match":{"path":"/in"},"mitigation_timeout":"10m","name":"login"}`, "match.path is \"/in\", not the default"},
		{patch(`{"match":{"path":"/in"}}`), patch(`{"match":null}`), `{"limit":5,"mitigation_timeout":"10m","name":"login"}`, "match.path is the default, not \"/in\""},
		// Of a rule that is given whole only what differs was meant, unless it was said to be the whole.
		{Edit{Action: Put, Body: []byte(`{"limit":7,"match":{"path":"/login","methods":["POST"]},"mitigation_timeout":"10m"}`)}, patch(`{"window":"2m"}`), `{"limit":7,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login","window":"2m"}`, ""},
		{patch(`{"window":"2m"}`), whole(`{"limit":7}`), `{"limit":7,"name":"login"}`, "window is the default, not \"2m\""},
		{whole(`{"limit":7}`), patch(`{"window":"2m"}`), `{"limit":7,"name":"login","window":"2m"}`, "window is \"2m\", not the default"},
		// No rule, or the file's, is not merged: the newer stands.
		{patch(`{"limit":20}`), Edit{Action: Delete}, ``, "the rule is no rule now"},
		{Edit{Action: Delete}, patch(`{"limit":20}`), `{"limit":20,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login"}`, "the rule is {"},
		// What does not fit together is not put together.
		{patch(`{"algorithm":"token_bucket","burst":9}`), patch(`{"estimate":"lower"}`), `{"estimate":"lower","limit":5,"match":{"methods":["POST"],"path":"/login"},"mitigation_timeout":"10m","name":"login"}`, "algorithm is the default, not \"token_bucket\""},
	} {
		for _, apart := range []uint64{0, 1, 150} {
			one, two := newDesk(t), newDesk(t)
			a := one.say(1, 1000, test.first)
			b := two.say(2, 1000+apart, test.second)
			one.receive(b)
			two.receive(a)
			if got := one.rule("login"); got != test.want || two.rule("login") != got {
				t.Errorf("%s, then %s:\n got %s and %s\nwant %s", test.first.Body, test.second.Body, got, two.rule("login"), test.want)
			}
			reported := ""
			for _, l := range one.overlay().Overtaken("login", a.Version, a.Maker) {
				if reported += l.String() + "\n"; l.Edge != "edge2" || l.Version != b.Version {
					t.Errorf("%+v", l)
				}
			}
			if (reported == "") != (test.lost == "") || !strings.Contains(reported, test.lost) {
				t.Errorf("%s, then %s: the first gets %q, want %q", test.first.Body, test.second.Body, reported, test.lost)
			}
			if lost := two.overlay().Overtaken("login", b.Version, b.Maker); len(lost) > 0 {
				t.Errorf("%s, then %s: the second gets %v", test.first.Body, test.second.Body, lost)
			}
			// Each version of the past is what was in force with it, and who goes on from here keeps both.
			past, _ := one.overlay().History("login")
			if string(past[0].New) != test.want || test.want != "" && string(past[0].Old) != string(past[1].New) {
				t.Errorf("%s, then %s: %s after %s", test.first.Body, test.second.Body, past[0].New, past[0].Old)
			}
			// And what each has made is his own, also of one millisecond.
			if before, now := one.overlay().Made(&a); now != string(past[1].New) || before != string(past[1].Old) {
				t.Errorf("%s, then %s: the first made %s of %s", test.first.Body, test.second.Body, now, before)
			}
			if before, now := one.overlay().Made(&b); now != test.want || test.want != "" && before != string(past[1].New) {
				t.Errorf("%s, then %s: the second made %s of %s", test.first.Body, test.second.Body, now, before)
			}
			if test.want == "" {
				continue
			}
			one.say(1, 2000, patch(`{"share":50}`))
			if got := strings.Replace(one.rule("login"), `,"share":50`, "", 1); got != test.want {
				t.Errorf("%s, then %s, and another:\n got %s\nwant %s", test.first.Body, test.second.Body, got, test.want)
			}
		}
	}
}
