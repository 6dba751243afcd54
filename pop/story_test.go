package pop_test

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/poptest"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// TestStories plays the scenarios of testdata: a command above the line, what was observed below it. go test ./pop -run TestStories
// -rewrite writes down what is observed now, to be read like prose.
//
//	world edges=3 nodes=1 rtt=1ms limit=3 window=10s timeout=10s estimate=lower    begins anew, at noon
//	      also sub=12 counters=1000 skew=2s (the clock of every second edge is so far ahead) statuses=401
//	hit edge=0 source=a n=4     requests of one instant; edge=0-3 and edge=all: n on each of them
//	    every=50ms              one after the other, so far apart
//	    turn                    n in all, on the edges in turn
//	    quiet                   only what was decided is told
//	answer edge=0 n=2 status=401    to the oldest requests that wait for their status
//	run 3ms                     lets time pass; [quiet]
//	kill, restart, hang, resume, full, space node=0     full: a node that has no memory left
//	stop edge=1 [flush], start edge=1, pause edge=0 for=5s, clock edge=1 by=-1h
//	write node=0 key=head|item|bit|counter source=a value=…|foreign|cut|own     an intruder's
//	    of=b                    a record of another source, copied
//	counters                    how many hits of each source the edges and the nodes know of
//	log                         the records of the mitigation log since the world began, by kind
//	judge                       an exact log of requests, held against what the edges said
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Dir(path) != "testdata" || raceEnabled && slices.Contains(longStories, filepath.Base(path)) {
			return
		}
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "world" {
				s = newStory(t, d)
			}
			return s.do(t, d)
		})
	})
}

// longStories are those of hours, and of many requests: with the race detector, which finds nothing in virtual time, they are not played.
var longStories = []string{"clock_steps.txt", "clocks_apart.txt", "lanes_after_outage.txt", "tier_gone.txt"}

var noon = time.Date(2024, 5, 14, 12, 0, 0, 0, time.UTC)

type story struct {
	w      *sim.World
	rule   limiter.Rule
	secret secret.Secret
	edges  int
	skew   func(edge int) time.Duration
	names  map[counter.Source]string
	full   []bool // by node
	health []string
	held   [][]*limiter.Decision // by edge, the oldest first
	judges map[string]*judge
	log    map[string]int // records by kind

	out    strings.Builder
	nodes  []map[string]int // by node: commands since the last look
	events []happening
}

// happening is what edges have noticed.
type happening struct {
	at   time.Time
	what string
	edge int
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	t.Helper()
	s := &story{
		secret: secret.Of([]byte("a story")), names: make(map[counter.Source]string), judges: make(map[string]*judge),
		log: make(map[string]int), edges: argument(t, d, "edges", 1),
	}
	estimate, err := algorithm.ParseEstimate(text(d, "estimate", "nearest"))
	must(t, err)
	window := duration(t, d, "window", time.Minute)
	r, err := algorithm.NewSliding("story", uint32(argument(t, d, "limit", 10)), window, argument(t, d, "sub", 12), estimate)
	must(t, err)
	s.rule = limiter.Rule{Rule: mitigation.Rule{Counter: r, Timeout: duration(t, d, "timeout", window)}}
	if status := argument(t, d, "statuses", 0); status != 0 {
		s.rule.Statuses = []int{status}
	}
	skew := duration(t, d, "skew", 0)
	s.skew = func(edge int) time.Duration { return time.Duration(edge%2) * skew }
	nodes := argument(t, d, "nodes", 1)
	s.full, s.held = make([]bool, nodes), make([][]*limiter.Decision, s.edges)
	for range nodes {
		s.nodes = append(s.nodes, make(map[string]int))
	}
	s.w, err = sim.New(sim.Config{
		Edges: s.edges, Nodes: nodes, RTT: duration(t, d, "rtt", time.Millisecond), Counters: argument(t, d, "counters", 1000),
		Skew: s.skew, Secret: s.secret, Carry: s.carry,
	}, []limiter.Rule{s.rule}, noon)
	must(t, err)
	s.health = make([]string, s.edges)
	for i := range s.edges {
		s.watch(i)
	}
	s.notice()
	s.events = nil
	return s
}

// watch notes the mitigations that come into force on an edge.
func (s *story) watch(edge int) {
	s.w.Edges[edge].Blocks.Observe = func(k mitigation.Key, b mitigation.Bit) {
		who := map[mitigation.By]string{mitigation.ByEdge: "blocked %s until %s", mitigation.ByPoP: "learned of %s blocked until %s"}[b.By]
		s.happened(edge, fmt.Sprintf(who, s.names[k.Source], clock(b.End.Add(-s.skew(edge)))))
	}
}

func (s *story) happened(edge int, what string) {
	s.events = append(s.events, happening{s.w.Now(), what, edge})
}

// carry carries out what a node is sent, and notes what that was: the first letter of a key says.
func (s *story) carry(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
	if s.full[c.Node] && (c.Op == wire.Add || c.Op == wire.Set) {
		return wire.Result{Command: c, Status: wire.Unsent, Err: wire.ErrFull}
	}
	r := node.Do(now, c)
	if r.Status == wire.Unknown || r.Status == wire.Unsent && r.Err != wire.ErrNotNumber {
		return r
	}
	note := func(what string, n int) { s.nodes[c.Node][what] += n }
	switch kind := c.Key[0]; {
	case kind == 'c' && c.Op == wire.Incr && r.Status == wire.Done:
		note("hits by incr", int(pop.Sum(s.rule.Rule, c.Delta)))
	case kind == 'c' && c.Op == wire.Add && r.Status == wire.Done:
		n, _ := strconv.ParseUint(string(c.Value), 10, 64)
		note("hits by add", int(pop.Sum(s.rule.Rule, n)))
	case kind == 'c' && c.Op == wire.Delete:
		note("counters deleted", 1)
	case kind == 'b' && c.Op != wire.Get && r.Status == wire.Done:
		note("bits", 1)
	case kind == 'l' && c.Op == wire.Set:
		for sealed, rest := record.Cut(c.Value); sealed != nil; sealed, rest = record.Cut(rest) {
			what := ""
			if r, ok := record.Open(s.secret, sealed); ok {
				what = r.Kind.String()
			}
			note("log: "+what, 1)
			s.log[what]++
		}
	}
	return r
}

func (s *story) source(name string) counter.Source {
	source := address(uint32(name[0]))
	s.names[source] = name
	if s.judges[name] == nil {
		s.judges[name] = &judge{window: s.rule.Counter.Window, limit: int(s.rule.Counter.Limit)}
	}
	return source
}

// run lets time pass, and looks every few milliseconds at what the edges think of the nodes.
func (s *story) run(d time.Duration) {
	for until := s.w.Now().Add(d); s.w.Now().Before(until); {
		s.w.Run(s.w.Now().Add(min(5*time.Millisecond, until.Sub(s.w.Now()))))
		s.notice()
	}
}

func (s *story) notice() {
	for i, e := range s.w.Edges {
		health := fmt.Sprint(e.Machine.Nodes.Health())
		if health == s.health[i] || !s.w.Runs(i) {
			continue
		}
		s.health[i] = health
		var down []string
		for node, up := range e.Machine.Nodes.Health() {
			if !up {
				down = append(down, strconv.Itoa(node))
			}
		}
		if down == nil {
			down = []string{"none"}
		}
		s.happened(i, "nodes down: "+strings.Join(down, " "))
	}
}

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.out.Reset()
	node, edge := argument(t, d, "node", 0), argument(t, d, "edge", 0)
	switch d.Cmd {
	case "world":
		fmt.Fprintf(&s.out, "%s  edges %d, nodes %d\n", clock(s.w.Now()), s.edges, len(s.w.Nodes))
	case "hit":
		s.hit(t, d)
	case "answer":
		for range argument(t, d, "n", 1) {
			s.w.Edges[edge].Settle(s.held[edge][0], argument(t, d, "status", 0))
			s.held[edge] = s.held[edge][1:]
		}
	case "run":
		s.run(duration(t, d, "for", 0))
	case "kill":
		s.w.Kill(node)
	case "restart":
		must(t, s.w.Restart(node))
	case "hang":
		s.w.Hang(node)
	case "resume":
		s.w.Resume(node)
	case "full":
		s.full[node] = true
	case "space":
		s.full[node] = false
	case "stop":
		s.w.Stop(edge, d.HasArg("flush"))
	case "start":
		must(t, s.w.Start(edge))
		s.health[edge] = fmt.Sprint(s.w.Edges[edge].Machine.Nodes.Health())
	case "pause":
		for _, e := range s.some(t, d) {
			s.w.Pause(e, s.w.Now().Add(duration(t, d, "for", time.Second)))
		}
	case "clock":
		for _, e := range s.some(t, d) {
			s.w.StepClock(e, duration(t, d, "by", 0))
		}
	case "write":
		s.write(t, d, node)
	case "counters":
		s.counters()
	case "log":
		for _, kind := range slices.Sorted(maps.Keys(s.log)) {
			fmt.Fprintf(&s.out, "%s %d\n", kind, s.log[kind])
		}
	case "judge":
		for _, name := range slices.Sorted(maps.Keys(s.judges)) {
			fmt.Fprintf(&s.out, "%s  %v\n", name, s.judges[name])
		}
	default:
		t.Fatalf("%s: no such command", d.Cmd)
	}
	if !d.HasArg("quiet") {
		s.writeNodes()
		s.writeEvents()
	}
	s.events = s.events[:0]
	for _, n := range s.nodes {
		clear(n)
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

// hit sends requests, and returns what became of them.
func (s *story) hit(t *testing.T, d *datadriven.TestData) {
	name, n, every := text(d, "source", "a"), argument(t, d, "n", 1), duration(t, d, "every", 0)
	source, edges := s.source(name), s.some(t, d)
	verdicts := make([][]string, s.edges)
	one := func(e int) {
		v := s.request(e, source)
		s.judges[name].saw(s.w.Now(), v == limiter.Passed)
		verdicts[e] = append(verdicts[e], v.String())
	}
	for i := range n {
		if i > 0 {
			s.run(every)
		}
		if d.HasArg("turn") {
			one(edges[i%len(edges)])
			continue
		}
		for _, e := range edges {
			one(e)
		}
	}
	if d.HasArg("turn") && len(edges) > 1 { // together: which edge said what is seldom of interest
		all := make(map[string]int)
		for _, list := range verdicts {
			for _, v := range list {
				all[v]++
			}
		}
		var parts []string
		for _, v := range []string{"pass", "limited", "mitigated"} {
			if all[v] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", all[v], v))
			}
		}
		fmt.Fprintf(&s.out, "%s  %s: %s\n", span(edges), name, strings.Join(parts, ", "))
		return
	}
	same := make(map[string][]int)
	for _, e := range edges {
		said := runs(verdicts[e])
		same[said] = append(same[said], e)
	}
	for _, said := range slices.SortedFunc(maps.Keys(same), func(a, b string) int { return cmp.Compare(same[a][0], same[b][0]) }) {
		fmt.Fprintf(&s.out, "%s  %s: %s\n", span(same[said]), name, said)
	}
}

func (s *story) request(edge int, source counter.Source) limiter.Verdict {
	if s.rule.Statuses == nil {
		return s.w.Edges[edge].Request(&s.rule, source).Verdict
	}
	d := new(limiter.Decision)
	d.Add(&s.rule, source)
	s.w.Edges[edge].Decide(d)
	if d.Held {
		s.held[edge] = append(s.held[edge], d)
	}
	return d.Verdict
}

// write plays an intruder who can write to a node.
func (s *story) write(t *testing.T, d *datadriven.TestData, node int) {
	now, source := s.w.Now(), s.source(text(d, "source", "a"))
	value, of := []byte(text(d, "value", "garbage")), s.source(text(d, "of", text(d, "source", "a")))
	seal := func(secret secret.Secret) []byte {
		return pop.Seal(secret, s.rule.Rule, of, now, now.Add(time.Hour))
	}
	switch string(value) {
	case "foreign":
		value = seal(secret.Of([]byte("a guess")))
	case "cut":
		value = seal(s.secret)
		value = value[:len(value)-1]
	case "own":
		value = seal(s.secret)
	}
	n := s.w.Nodes[node]
	set := func(key string, value []byte) {
		n.Do(now, wire.Command{Op: wire.Set, Key: key, Value: value, Expire: 1000})
	}
	switch key := text(d, "key", ""); key {
	case "head":
		set(s.secret.LogHeadKey(), value)
	case "bit":
		set(s.secret.BitKey(counter.Counter{Rule: s.rule.Counter, Source: source}, 0), value)
	case "counter":
		for _, key := range pop.CounterKeys(s.secret, s.rule.Rule, source, now) {
			set(key, value)
		}
	case "item":
		r := n.Do(now, wire.Command{Op: wire.Incr, Key: s.secret.LogHeadKey(), Delta: 1})
		if r.Status != wire.Done {
			t.Fatal("there is no log yet")
		}
		if d.HasArg("bare") {
			set(s.secret.LogItemKey(r.Number), value)
		} else {
			set(s.secret.LogItemKey(r.Number), record.Append(nil, value))
		}
	default:
		t.Fatalf("write key=%s: no such key", key)
	}
}

// counters returns what edges and nodes have counted in the window.
func (s *story) counters() {
	for _, name := range slices.Sorted(maps.Keys(s.judges)) {
		same := make(map[string][]int)
		for i, e := range s.w.Edges {
			if s.w.Runs(i) {
				v, _ := e.Counters.Peek(s.rule.Counter, s.source(name), s.w.Now().Add(s.skew(i)))
				known := strconv.FormatFloat(v.Estimate, 'f', -1, 64)
				same[known] = append(same[known], i)
			}
		}
		fmt.Fprintf(&s.out, "%s ", name)
		for _, known := range slices.SortedFunc(maps.Keys(same), func(a, b string) int { return cmp.Compare(same[a][0], same[b][0]) }) {
			fmt.Fprintf(&s.out, " %s: %s ", span(same[known]), known)
		}
		for i, n := range s.w.Nodes {
			sum, there := uint64(0), false
			for _, key := range pop.CounterKeys(s.secret, s.rule.Rule, s.source(name), s.w.Edges[0].Counters.Wall(s.w.Now())) {
				r := n.Do(s.w.Now(), wire.Command{Op: wire.Get, Key: key})
				if r.Status == wire.Done && r.Values[0] != nil {
					v, _ := strconv.ParseUint(strings.TrimRight(string(r.Values[0]), " "), 10, 64)
					sum, there = sum+pop.Sum(s.rule.Rule, v), true
				}
			}
			if there {
				fmt.Fprintf(&s.out, " node %d: %d ", i, sum)
			}
		}
		fmt.Fprintln(&s.out)
	}
	text := s.out.String()
	s.out.Reset()
	for line := range strings.Lines(text) {
		fmt.Fprintln(&s.out, strings.TrimRight(line, " \n"))
	}
}

// writeNodes writes what commands nodes got.
func (s *story) writeNodes() {
	for i, request := range s.nodes {
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(request)) {
			parts = append(parts, fmt.Sprintf("%s %d", what, request[what]))
		}
		if parts != nil {
			fmt.Fprintf(&s.out, "node %d  %s\n", i, strings.Join(parts, ", "))
		}
	}
}

// writeEvents writes what edges have noticed; what several did has its first and last time.
func (s *story) writeEvents() {
	type together struct {
		first, last time.Time
		edges       []int
	}
	same, order := make(map[string]*together), []string(nil)
	for _, e := range s.events {
		g := same[e.what]
		if g == nil {
			g = &together{first: e.at}
			same[e.what], order = g, append(order, e.what)
		}
		g.last = e.at
		if !slices.Contains(g.edges, e.edge) {
			g.edges = append(g.edges, e.edge)
		}
	}
	for _, what := range order {
		g := same[what]
		when := clock(g.first)
		if g.last != g.first {
			when += " to " + clock(g.last)
		}
		slices.Sort(g.edges)
		fmt.Fprintf(&s.out, "%s  %s  at %s\n", span(g.edges), what, when)
	}
}

// some are the edges that a command means.
func (s *story) some(t *testing.T, d *datadriven.TestData) (edges []int) {
	first, last, several := strings.Cut(text(d, "edge", "0"), "-")
	if first == "all" {
		first, last, several = "0", strconv.Itoa(s.edges-1), true
	}
	if !several {
		last = first
	}
	from, err := strconv.Atoi(first)
	must(t, err)
	to, err := strconv.Atoi(last)
	must(t, err)
	for e := from; e <= to; e++ {
		edges = append(edges, e)
	}
	return edges
}

// judge holds what edges said against an exact log. It shares no code with what it judges.
type judge struct {
	window         time.Duration
	limit          int
	sent, admitted []time.Time
}

func (j *judge) saw(at time.Time, admitted bool) {
	j.sent = append(j.sent, at)
	if admitted {
		j.admitted = append(j.admitted, at)
	}
}

func (j *judge) String() string {
	return fmt.Sprintf("sent %d, at most %d in a window; admitted %d, at most %d in a window; the limit is %d",
		len(j.sent), most(j.sent, j.window, false), len(j.admitted), most(j.admitted, j.window, false), j.limit)
}

// span writes 0 1 2 5 as edges 0-2 5.
func span(edges []int) string {
	if len(edges) == 1 {
		return fmt.Sprintf("edge %d", edges[0])
	}
	var b strings.Builder
	b.WriteString("edges")
	for i := 0; i < len(edges); i++ {
		from := i
		for i+1 < len(edges) && edges[i+1] == edges[i]+1 {
			i++
		}
		fmt.Fprintf(&b, " %d", edges[from])
		if i > from {
			fmt.Fprintf(&b, "-%d", edges[i])
		}
	}
	return b.String()
}

// runs writes pass pass limited as 2 pass, 1 limited.
func runs(words []string) string {
	var parts []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, words[i]))
		i += n
	}
	return strings.Join(parts, ", ")
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

func text(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return otherwise
}

func argument(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	t.Helper()
	value := text(d, key, "")
	if value == "" || key == "edge" && strings.Trim(value, "0123456789") != "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	must(t, err)
	return n
}

// duration reads 5s and key=5s alike, the first for commands that have one duration only.
func duration(t *testing.T, d *datadriven.TestData, key string, otherwise time.Duration) time.Duration {
	t.Helper()
	value := text(d, key, "")
	if value == "" && len(d.CmdArgs) > 0 && d.Cmd == "run" {
		value = d.CmdArgs[0].Key
	}
	if value == "" {
		return otherwise
	}
	v, err := time.ParseDuration(value)
	must(t, err)
	return v
}
