package rules

import (
	"fmt"
	"testing"
	"time"
)

// Ten thousand rules are no error: they are ready soon, and a request does not look at all of them.
func TestManyRules(t *testing.T) {
	var list []Config
	for i := range 10_000 {
		r := Default(fmt.Sprint("r", i), 5)
		switch i % 4 {
		case 0:
			r.Match.Path = fmt.Sprintf("/p%d", i)
		case 1:
			r.Match.Path = fmt.Sprintf("/p%d/*", i)
		case 2:
			r.Match.Hosts = []string{fmt.Sprintf("h%d.example", i)}
		case 3:
			r.Match.Hosts = []string{fmt.Sprintf("*.h%d.example", i)}
		}
		list = append(list, r)
	}
	start := time.Now()
	set, err := New(list, Defaults{}, newTally)
	if took := time.Since(start); err != nil || took > 20*time.Second {
		t.Fatalf("%v after %v", err, took)
	}
	for _, test := range []struct {
		host, path string
		want       []string
	}{
		{"a", "/p8", []string{"r8"}}, {"a", "/p9/x/y", []string{"r9"}}, {"a", "/p9", nil}, {"h10.example", "/p8", []string{"r8", "r10"}},
		{"x.y.h11.example", "/", []string{"r11"}}, {"h11.example", "/", nil}, {"a", "/", nil},
	} {
		var got []string
		for _, r := range set.match(nil, []byte(test.host), []byte(test.path), []byte("GET")) {
			got = append(got, r.Config.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s%s: %v, want %v", test.host, test.path, got, test.want)
		}
	}
}

func BenchmarkMatchManyRules(b *testing.B) {
	var list []Config
	for i := range 10_000 {
		r := Default(fmt.Sprint("r", i), 5)
		r.Match.Path = fmt.Sprintf("/p%d/*", i)
		list = append(list, r)
	}
	set, err := New(list, Defaults{}, newTally)
	must(b, err)
	var found []*Rule
	host, path, method := []byte("example.com"), []byte("/p77/some/path"), []byte("GET")
	b.ReportAllocs()
	for b.Loop() {
		found = set.match(found[:0], host, path, method)
	}
}
