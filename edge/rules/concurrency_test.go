package rules

import "testing"

// TestPlacesInFlight: requests in flight are known by the rule, its key and which requests it is about, and by nothing else that may change
// while some are under way.
func TestPlacesInFlight(t *testing.T) {
	places := func(edit func(*Config)) string {
		t.Helper()
		c := Default("slow", 100)
		c.Concurrency = 20
		edit(&c)
		s, err := New([]Config{c}, Defaults{}, func(string) *Tally { return NewTally() })
		if err != nil {
			t.Fatal(err)
		}
		return s.Rules[0].InFlight.Name
	}
	usual := places(func(*Config) {})
	for _, edit := range []func(*Config){
		func(c *Config) { c.Limit = 50 }, func(c *Config) { c.Concurrency = 30 }, func(c *Config) { c.Count.Statuses = []int{401} },
		func(c *Config) { c.MitigationTimeout = 0 }, func(c *Config) { c.Match.Path = "/*" },
	} {
		if got := places(edit); got != usual {
			t.Errorf("%s, want %s", got, usual)
		}
	}
	for _, edit := range []func(*Config){
		func(c *Config) { c.Name = "other" }, func(c *Config) { c.Match.Path = "/a" }, func(c *Config) { c.Key = []string{"host"} }, func(c *Config) { c.Mode = Shadow },
	} {
		if places(edit) == usual {
			t.Error("two rules share places that mean something else")
		}
	}
}
