package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/loadgen/page"
	"sluice/loadgen/trace"
)

// PathCount is one of the paths or agents of a source, and how often.
type PathCount struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"`
}

// Character is what a source asks for most, and how it calls itself, over all its requests.
type Character struct {
	Paths      []PathCount `json:"paths,omitempty"` // without queries
	MorePaths  int         `json:"more_paths,omitempty"`
	Agents     []PathCount `json:"agents,omitempty"`
	MoreAgents int         `json:"more_agents,omitempty"`
}

// shownOfEach is how many of each are shown.
const shownOfEach = 3

// Story is what would have become of one source.
type Story struct {
	Source   string `json:"source"`
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
	// Asked for a pass in place of that
	Challenged uint64         `json:"challenged,omitempty"`
	First      Moment         `json:"first"`
	Last       Moment         `json:"last"`
	Statuses   map[int]uint64 `json:"statuses"` // 0: not known
	Rules      []StoryRule    `json:"rules"`
	Blocks     []StoryBlock   `json:"blocks"`
	Character
}

// StoryRule is how a source stood under one of a rule's counters.
type StoryRule struct {
	Rule     string `json:"rule"`
	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
	Most     uint32 `json:"most"`
	At       Moment `json:"most_at"` // when it had made so many in a window
	Limit    uint32 `json:"limit"`

	rule    int
	counter int32
}

// StoryBlock is a block of it, or a run of refusals of a rule that throttles.
type StoryBlock struct {
	Rule   string `json:"rule"`
	Shadow bool   `json:"shadow,omitempty"`
	// What is refused is asked for a pass
	Challenges bool   `json:"challenges,omitempty"`
	Began      Moment `json:"began"`
	Last       Moment `json:"last"` // request that was refused
	Refused    uint64 `json:"refused"`
	// Requests under the rule that it did not refuse, since the block before or the beginning
	Before uint64 `json:"before"`

	rule int
}

// addRequest takes in one request of the source whose story is shown.
func (g *dryRun) addRequest(q *trace.Request, outcome *Outcome) {
	s, at := g.Story, Moment{q.At, g.start}
	if s.Requests++; s.Requests == 1 {
		s.First = at
	}
	s.Last = at
	s.Statuses[int(q.Status)]++
	if outcome.Refused {
		s.Refused++
	}
	if outcome.Challenged {
		s.Challenged++
	}
	for _, c := range outcome.Results {
		i := slices.IndexFunc(s.Rules, func(r StoryRule) bool {
			return r.rule == c.Rule && r.counter == c.Counter
		})
		if i < 0 {
			i = len(s.Rules)
			s.Rules = append(s.Rules, StoryRule{Rule: g.o.Rules[c.Rule].Name,
				Limit: g.o.Rules[c.Rule].Limit, rule: c.Rule, counter: c.Counter})
		}
		r := &s.Rules[i]
		r.Requests++
		if d := g.demands[c.Rule].Of(c.Counter); d.now > r.Most { // with what others count under it
			r.Most, r.At = d.now, at
		}
		if !c.Refuses {
			g.passed[c.Rule]++
			continue
		}
		r.Refused++
		last := len(s.Blocks) - 1
		for ; last >= 0 && s.Blocks[last].rule != c.Rule; last-- {
		}
		begins := c.Begins
		if g.o.Rules[c.Rule].Timeout == 0 {
			begins = g.passed[c.Rule] > 0
		}
		if last < 0 || begins {
			s.Blocks = append(s.Blocks, StoryBlock{Rule: r.Rule, Shadow: g.o.Rules[c.Rule].Shadow,
				Challenges: g.o.Rules[c.Rule].Challenges, Began: at, Before: g.passed[c.Rule], rule: c.Rule})
			last = len(s.Blocks) - 1
		}
		g.passed[c.Rule] = 0
		b := &s.Blocks[last]
		b.Refused++
		b.Last = at
	}
}

// characters finds out what some sources, by index, ask for.
func characters(t *trace.Trace, sources map[int32]*Character) {
	type counts struct{ paths, agents map[string]uint64 }
	all := make(map[int32]counts, len(sources))
	for s := range sources {
		all[s] = counts{make(map[string]uint64), make(map[string]uint64)}
	}
	for i := range t.Requests {
		q := &t.Requests[i]
		c, asked := all[q.Source]
		if !asked {
			continue
		}
		if path, _, _ := strings.Cut(q.Path, "?"); path != "" {
			c.paths[path]++
		}
		if q.Agent != 0 && t.Agents[q.Agent] != "" {
			c.agents[t.Agents[q.Agent]]++
		}
	}
	for s, c := range all {
		to := sources[s]
		to.Paths, to.MorePaths = most(c.paths)
		to.Agents, to.MoreAgents = most(c.agents)
	}
}

// characterize finds what the shown refused sources request, and the one whose story is shown.
func (g *dryRun) characterize() {
	shown := make(map[int32]*Character)
	if g.o.Characters {
		for i := range g.Refused[:min(g.top, len(g.Refused))] {
			shown[g.Refused[i].source] = new(Character)
		}
	}
	if g.Story != nil {
		shown[g.storySource] = new(Character)
	}
	if len(shown) == 0 {
		return
	}
	characters(g.t, shown)
	for i := range g.Refused[:min(g.top, len(g.Refused))] {
		if c := shown[g.Refused[i].source]; c != nil {
			g.Refused[i].Character = *c
		}
	}
	if g.Story != nil {
		g.Story.Character = *shown[g.storySource]
	}
}

// most are the most frequent, and how many others there are.
func most(of map[string]uint64) (list []PathCount, more int) {
	names := slices.SortedFunc(maps.Keys(of),
		func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	for _, n := range names[:min(shownOfEach, len(names))] {
		list = append(list, PathCount{n, of[n]})
	}
	return list, len(names) - len(list)
}

// listed writes the most frequent of something in a line.
func listed(list []PathCount, more int) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprintf("%s (%s)", cut(n.Name), page.Thousands(n.Requests)))
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%s more", page.Thousands(uint64(more))))
	}
	return strings.Join(parts, ", ")
}

// cut keeps what clients write to a readable length, and what would not stand in a line out of it.
func cut(s string) string {
	const longest = 60
	var b strings.Builder
	n := 0
	for _, c := range s {
		if n == longest {
			return b.String() + "…"
		}
		if c < 0x20 || c >= 0x7f && c < 0xa0 || c == 0xfffd {
			c = '·'
		}
		b.WriteRune(c)
		n++
	}
	return b.String()
}

// characterTable is what the refused sources that are shown ask for; nil if none is known to ask
// for anything.
func (r *Report) characterTable() [][]string {
	out := [][]string{{"what they ask for", ""}}
	seen := make(map[string]bool)
	for i := range r.Refused[:min(r.top, len(r.Refused))] {
		s := &r.Refused[i]
		if seen[s.Source] {
			continue
		}
		seen[s.Source] = true
		out = append(out, s.Character.rows(s.Source)...)
	}
	return out
}

func (c *Character) rows(name string) (rows [][]string) {
	add := func(text string) {
		if text != "" {
			rows = append(rows, []string{name, text})
			name = ""
		}
	}
	add(listed(c.Paths, c.MorePaths))
	if text := listed(c.Agents, c.MoreAgents); text != "" {
		add("as " + text)
	}
	return rows
}

func (s *Story) sentence() string {
	text := fmt.Sprintf("%s made %s from %s to %s: %s would have been refused.", s.Source,
		page.Plural(int(s.Requests), "request"), s.First, s.Last, page.Thousands(s.Refused))
	if s.Challenged > 0 {
		text += fmt.Sprintf(" %s would have been challenged.", page.Thousands(s.Challenged))
	}
	var limits []string
	for i := range s.Rules {
		r := &s.Rules[i]
		limits = append(limits, fmt.Sprintf("under %s, where %s are allowed, %s at most, at %s",
			r.Rule, page.Thousands(uint64(r.Limit)), page.Thousands(uint64(r.Most)), r.At))
	}
	if len(limits) > 0 {
		text += " In a window it made, " + join(limits) + "."
	}
	return text
}

// tables are what happened to it, and what it asked for.
func (s *Story) tables() []page.Table {
	happened := [][]string{{"what would have happened", "rule", "until", "refused",
		"it made before"}}
	const longest = 100
	for i := range s.Blocks[:min(longest, len(s.Blocks))] {
		b := &s.Blocks[i]
		happened = append(happened, []string{"refused from " + b.Began.String(),
			ruleName(b.Rule, b.Shadow, b.Challenges),
			b.Last.String(), page.Thousands(b.Refused), page.Thousands(b.Before)})
	}
	t := page.Table{Rows: happened}
	if more := len(s.Blocks) - longest; more > 0 {
		t.Notes = []string{fmt.Sprintf("And %s more; --json has all.",
			page.Thousands(uint64(more)))}
	}
	var tables []page.Table
	if len(s.Blocks) > 0 {
		tables = append(tables, t)
	}
	rows := append([][]string{{"what it asked for", ""}}, s.Character.rows(s.Source)...)
	var statuses []PathCount
	for _, code := range slices.Sorted(maps.Keys(s.Statuses)) {
		if code != 0 {
			statuses = append(statuses, PathCount{fmt.Sprint(code), s.Statuses[code]})
		}
	}
	if len(statuses) > 0 {
		rows = append(rows, []string{"answered with", listed(statuses, 0)})
	}
	if len(rows) > 1 {
		tables = append(tables, page.Table{Rows: rows, Words: true})
	}
	return tables
}
