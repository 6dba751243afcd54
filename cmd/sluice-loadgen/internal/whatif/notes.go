package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/cmd/sluice-loadgen/internal/dryrun"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/edge/rules/match"
	"sluice/loadgen/trace"
)

// logged is what a log has of its requests besides source, time and target.
type logged struct {
	requests                       int
	hosts, lines, statuses, agents int // how many of them have one
}

func loggedOf(t *trace.Trace) *logged {
	l := &logged{requests: len(t.Requests)}
	count := func(n *int, there bool) {
		if there {
			*n++
		}
	}
	for i := range t.Requests {
		q := &t.Requests[i]
		count(&l.hosts, q.Host != "")
		count(&l.lines, q.Method != "" && q.Path != "")
		count(&l.statuses, q.Status != 0)
		count(&l.agents, t.Agent(i) != "")
	}
	return l
}

// isAgent reports whether a part of a key, or the name of a header, is what a log may have of
// headers.
func (l *logged) isAgent(name string) bool {
	return l.agents > 0 && strings.EqualFold(strings.TrimPrefix(name, "header:"), "User-Agent")
}

// values are the headers and cookies of m that the log does not have; "": none.
func (l *logged) values(m *match.Config) string {
	of := match.Config{Headers: make(map[string]match.Value), Cookies: m.Cookies}
	for name, want := range m.Headers {
		if !l.isAgent(name) {
			of.Headers[name] = want
		}
	}
	return strings.Join(of.Others(), " and ")
}

// parts are those of a key that the log does not have; "": none.
func (l *logged) parts(r *rules.Config) string {
	var list []string
	for _, part := range r.Key {
		kind, _, _ := strings.Cut(part, ":")
		if kind == "jwt" || kind == "cookie" || kind == "header" && !l.isAgent(part) {
			list = append(list, part)
		}
	}
	return strings.Join(list, " and ")
}

// facts are the fields of m about what no log has, because a module finds it out of requests, and
// what that is; "": nothing.
func facts(m *match.Config) (fields, what string) {
	var names, list []string
	for _, name := range slices.Sorted(maps.Keys(m.Facts)) {
		if of := dryrun.NotLogged[name]; of != "" {
			names, list = append(names, name), append(list, of)
		}
	}
	return strings.Join(names, " and "), strings.Join(list, " and ")
}

// notLogged are what no log has of what a rule asks for.
func notLogged(r *rules.Config) (list []string) {
	add := func(what string) {
		if what != "" && !slices.Contains(list, what) {
			list = append(list, what)
		}
	}
	for _, part := range r.Key {
		add(dryrun.NotLogged[part])
	}
	_, what := facts(&r.Match)
	add(what)
	if r.Match.Not != nil {
		_, what = facts(r.Match.Not)
		add(what)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Own)) {
		add(dryrun.NotLogged[name])
	}
	return list
}

// asksHost reports whether a rule looks at the host.
func asksHost(r *rules.Config) bool {
	about := func(m *match.Config) bool {
		return len(m.Hosts) > 0 && !slices.Contains(m.Hosts, "*")
	}
	return about(&r.Match) || r.Match.Not != nil && about(r.Match.Not) ||
		slices.Contains(r.Key, "host")
}

// asksLine reports whether a rule looks at the method or the path.
func asksLine(r *rules.Config) bool {
	about := func(m *match.Config) bool { return len(m.Methods)+len(m.Paths) > 0 || m.Path != "" }
	return about(&r.Match) || r.Match.Not != nil && about(r.Match.Not) ||
		slices.Contains(r.Key, "path")
}

// isQuick reports whether it matters to a rule when in its second a request came.
func isQuick(r *rules.Config) bool {
	const short = rules.Duration(10 * time.Second)
	return r.Algorithm == rules.TokenBucket || r.Algorithm == rules.LeakyBucket ||
		r.Window < short ||
		slices.ContainsFunc(r.Windows, func(w rules.Window) bool { return w.Window < short })
}

// lacks is what a rule asks for that the log does not have, so that it is not judged as an edge
// would have: whatif.JudgedRule.
func (l *logged) lacks(r *rules.Config) string {
	var list []string
	add := func(is bool, what string) {
		if is {
			list = append(list, what)
		}
	}
	add(r.Match.Descriptors != nil, "descriptors")
	add(asksHost(r) && l.hosts == 0, "hosts")
	values := l.values(&r.Match)
	add(values != "", values)
	if r.Match.Not != nil {
		values = l.values(r.Match.Not)
		add(values != "", values)
	}
	parts := l.parts(r)
	add(parts != "", parts)
	list = append(list, notLogged(r)...)
	add(r.HasPlans(), "who is on which plan")
	add(len(r.Count.Statuses) > 0 && l.statuses == 0, "statuses")
	add(r.Cost.Bytes > 0, "lengths of requests' bodies")
	add(r.Cost.Header != "", "the header "+r.Cost.Header+" of answers")
	return strings.Join(list, " and ")
}

// sheddingNotes says that nothing is shed here, and that requests end at once.
func sheddingNotes(c *config.Config, limitless []rules.Config) (notes []string) {
	const noDurations = "a log does not show how long requests took"
	const why = "a log does not show how fast an origin would have answered"
	for i := range c.Origins {
		if c.Origins[i].Shedding != nil {
			notes = append(notes,
				why+", so that nobody is shed or waits here: sluice-trial lab --check shedding shows what shedding does")
			break
		}
	}
	for _, r := range c.Rules {
		if r.OrdersOrigin() {
			notes = append(notes,
				fmt.Sprintf("rule %s: its priority and its queue are not asked, because %s", r.Name,
					why))
		}
	}
	for _, r := range c.Rules {
		if r.Concurrency > 0 {
			notes = append(notes, fmt.Sprintf("rule %s: its concurrency is not asked, because %s",
				r.Name, noDurations))
		}
	}
	for _, r := range limitless {
		because := why
		if r.Concurrency > 0 {
			because = noDurations
		}
		notes = append(notes, fmt.Sprintf("rule %s has no limit and is not asked, because %s",
			r.Name, because))
	}
	return notes
}

// headers says which the log has of requests.
func (l *logged) headers() string {
	if l.agents > 0 {
		return "no headers but User-Agent"
	}
	return "no headers"
}

// notLoggedNotes say what becomes of a rule that asks for what no log has.
func notLoggedNotes(r *rules.Config) (notes []string) {
	for _, part := range r.Key {
		if what := dryrun.NotLogged[part]; what != "" {
			notes = append(notes, fmt.Sprintf("no log has %s, so that rule %s, by %s, cannot be judged: it counts the source in place of %s",
				what, r.Name, strings.Join(r.Key, " and "), part))
		}
	}
	if fields, what := facts(&r.Match); what != "" {
		notes = append(notes, fmt.Sprintf("no log has %s, so that rule %s, about %s, cannot be judged: it is about no request",
			what, r.Name, fields))
	}
	if r.Match.Not != nil {
		if fields, what := facts(r.Match.Not); what != "" {
			notes = append(notes, fmt.Sprintf("no log has %s, so that rule %s leaves out nobody by %s",
				what, r.Name, fields))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Own)) {
		if what := dryrun.NotLogged[name]; what != "" {
			notes = append(notes, fmt.Sprintf("a log does not show %s, so that %s of rule %s is not asked",
				strings.TrimPrefix(what, "what "), name, r.Name))
		}
	}
	return notes
}

// notes says where a log knows less than an edge does.
func notes(t *trace.Trace, c *config.Config, l *logged, forgotten uint64) (notes []string) {
	if n := t.Skipped[trace.SkippedSample]; n > 0 {
		notes = append(notes,
			fmt.Sprintf("the log holds a sample: about %d requests are not in it (access_log.refused, access_log.succeeded), so that sources came more often than is shown, and more would be refused", n))
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if n := l.requests - l.statuses; len(r.Count.Statuses) > 0 && n > 0 {
			notes = append(notes,
				fmt.Sprintf("%d requests have no status, so that rule %s, which counts by status, does not count them", n, r.Name))
		}
		if n := l.requests - l.hosts; asksHost(r) && n > 0 {
			notes = append(notes,
				fmt.Sprintf("%d of %d requests have no host in the log, which rule %s asks for: --host NAME says which it was", n, l.requests, r.Name))
		}
		if n := l.requests - l.lines; n > 0 && t.Lines > 0 && asksLine(r) {
			notes = append(notes,
				fmt.Sprintf("%d requests have no method and path in the log, or none that make sense: rule %s takes them for GET /", n, r.Name))
		}
		if r.Share < 100 {
			notes = append(notes,
				fmt.Sprintf("rule %s is about %d %% of sources: as many here, but others than at a PoP, whose secret chooses them", r.Name, r.Share))
		}
		if r.HasPlans() {
			notes = append(notes,
				fmt.Sprintf("no store of plans is read, so under rule %s everybody is on the plan %s: --plan NAME judges them as on another", r.Name, c.Plans.Default))
		}
		switch r.Algorithm {
		case rules.TokenBucket, rules.LeakyBucket:
			notes = append(notes,
				fmt.Sprintf("rule %s is a bucket, from which %d drain in %v: the limit in its row is what it holds, with its queue, and the window is when that has drained", r.Name, r.Limit, r.Window))
		case rules.Fixed, rules.Exact:
			notes = append(notes,
				fmt.Sprintf("rule %s counts by %s, and so does what is said of who was over it",
					r.Name, r.Algorithm))
		}
		if t.Coarse && isQuick(r) {
			notes = append(notes,
				fmt.Sprintf("the log has whole seconds, over which requests are spread by the seed: what rule %s shows for shorter times is no better than that", r.Name))
		}
		if r.AsksTier() {
			notes = append(notes,
				fmt.Sprintf("rule %s says check: sync, which changes nothing here: one edge judges the log, and knows of each request before the next", r.Name))
		}
		if r.Match.Descriptors != nil {
			notes = append(notes,
				fmt.Sprintf("a log has requests, and no descriptors, so that rule %s, about %v, judges nothing here", r.Name, r.Match.Descriptors))
		}
		if r.Limits() > 1 {
			notes = append(notes,
				fmt.Sprintf("rule %s has several limits: each is a row, by the name that clients see, and a curve is of the rule's own alone", r.Name))
		}
		if slices.ContainsFunc(r.Prefixes, func(p rules.Prefix) bool { return p.Prefix > 64 }) {
			notes = append(notes,
				fmt.Sprintf("rule %s counts prefixes beyond /64, but IPv6 addresses of one /64 are read as one source", r.Name))
		}
		if r.Cost.Bytes > 0 {
			notes = append(notes,
				fmt.Sprintf("a log has the lengths of answers, and none of requests' bodies, so that each request costs 1 under rule %s, whose cost is by %s", r.Name, r.Cost))
		}
		if r.Cost.Header != "" {
			notes = append(notes,
				fmt.Sprintf("a log has no headers of answers, so that each request costs 1 under rule %s, whose cost is by %s", r.Name, r.Cost))
		}
		if r.Cost.Units > 1 {
			notes = append(notes,
				fmt.Sprintf("each request costs %d under rule %s: its limit, and what sources asked for at most, are in that unit", r.Cost.Units, r.Name))
		}
		if r.Action == rules.Tag {
			notes = append(notes,
				fmt.Sprintf("rule %s tags: what it would tag is shown as a shadow's, which refuses nobody", r.Name))
		}
		if r.Action == dryrun.Challenge {
			notes = append(notes, fmt.Sprintf("rule %s challenges: whom it would ask for a pass stands where refusals do, each time, because no log has passes; who shows one goes on, and is counted by it", r.Name))
		}
		notes = append(notes, notLoggedNotes(r)...)
		if values := l.values(&r.Match); values != "" {
			notes = append(notes,
				fmt.Sprintf("a log has %s, so that rule %s looks for %s in vain, and is about no request", l.headers(), r.Name, values))
		}
		if r.Match.Not != nil {
			if values := l.values(r.Match.Not); values != "" {
				notes = append(notes,
					fmt.Sprintf("a log has %s, so that rule %s leaves out nobody for %s",
						l.headers(), r.Name, values))
			}
		}
		if parts := l.parts(r); parts != "" {
			notes = append(notes,
				fmt.Sprintf("a log has %s and no tokens, so that rule %s, by %s, counts the source in place of %s", l.headers(), r.Name, strings.Join(r.Key, " and "), parts))
		}
	}
	if len(c.PoP.Peers) > 0 {
		notes = append(notes,
			"a log shows nothing of other PoPs, so no source is blocked because a peer has blocked it; simulate --pops 2 --peers shows what that does")
	}
	if c.Source.IPv6Prefix > 64 {
		notes = append(notes,
			fmt.Sprintf("source.ipv6_prefix is %d, but IPv6 addresses of one /64 are read as one source", c.Source.IPv6Prefix))
	}
	if forgotten > 0 {
		notes = append(notes,
			fmt.Sprintf("there are more counters than there is room for: %d made room for others, and who they were of was counted afresh", forgotten))
	}
	return notes
}
