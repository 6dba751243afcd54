// Package whatif finds what rules would have done to the requests of a log: which sources would
// have been refused, when, how often, by which rule, how much of it was good traffic, and how that
// changes with the limit. The rules are handed in as a function (Options.DryRun).
package whatif

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
)

// Report is what rules would have done to the requests of a log: who would have been refused, when,
// how often, by which rule, and how much of it was good traffic. It says nothing of what clients
// would have done on being refused.
type Report struct {
	Run     report.Run      `json:"run"`
	Figures Figures         `json:"figures"`
	Rules   []RuleOutcome   `json:"rules"`
	Refused []RefusedSource `json:"refused"` // the most refused first, shadows' after all others
	Good    GoodTraffic     `json:"good"`
	Curves  []Curve         `json:"curves"`

	Recommended []Recommendation `json:"recommended"` // for each rule
	Next        []NextSource     `json:"next"`        // by rule, the nearest to its limit first
	Story       *Story           `json:"story,omitempty"`
	Forgotten   uint64           `json:"forgotten,omitempty"` // Options.Forgotten

	top      int // of Refused, how many to show
	start    time.Time
	timeline judge.Timeline
}

// Figures is all rules together.
type Figures struct {
	Requests       uint64  `json:"requests"`
	Refused        uint64  `json:"refused"` // by rules
	RefusedRatio   float64 `json:"refused_ratio"`
	Sources        int     `json:"sources"`
	RefusedSources int     `json:"refused_sources"`
	// Asked for a pass in place of being refused: who shows one goes on, which no log tells
	Challenged        uint64 `json:"challenged,omitempty"`
	ChallengedSources int    `json:"challenged_sources,omitempty"`
	Blocks            uint64 `json:"blocks"`
	Denied            uint64 `json:"denied"` // by the list, and in no other figure
	// Answered 400 for their form, and in no other figure
	Malformed uint64 `json:"malformed,omitempty"`
	Allowed   uint64 `json:"allowed"` // by the list: no rule was asked
}

// JudgedRule is a rule as far as a judge needs it.
type JudgedRule struct {
	Name    string
	About   string // which requests, and how they are counted, for people
	Limit   uint32
	Window  time.Duration
	Timeout time.Duration // of a block; 0: throttle
	Shadow  bool          // refuses nobody
	// Whom it would refuse it asks for a pass, and lets in with one
	Challenges bool

	Truth judge.Truth // what is exact of it, against Limit
	Units uint32      // of the limit that each request uses; 0: 1
	// Lacks is what the rule asks for that the log does not have, so that its outcome is not what
	// an edge would do; "": nothing.
	Lacks string
}

// RuleOutcome is what one rule would have done. A shadow's refusals are those it would have made if
// it were enforced, and are in no sum. A challenging rule's are its challenges.
type RuleOutcome struct {
	Name           string         `json:"name"`
	About          string         `json:"about,omitempty"`
	Limit          uint32         `json:"limit"`
	Window         report.Seconds `json:"window"`
	Timeout        report.Seconds `json:"mitigation_timeout"`
	Shadow         bool           `json:"shadow,omitempty"`
	Challenges     bool           `json:"challenges,omitempty"`
	Requests       uint64         `json:"requests"` // that fall under it
	Refused        uint64         `json:"refused"`
	RefusedSources int            `json:"refused_sources"`
	Blocks         uint64         `json:"blocks"`
	// Counted sources that exceeded the limit, by the exact log
	Over  int    `json:"over"`
	Lacks string `json:"lacks,omitempty"`
	// Delay is how long requests waited for their turn, of those that did, in seconds, and Queue as
	// long as the last of a full queue does.
	Delay   judge.Quantiles `json:"delay,omitzero"`
	Queue   report.Seconds  `json:"queue,omitzero"`
	Busiest Busiest         `json:"busiest"`
	First   Moment          `json:"first,omitzero"`
	Last    Moment          `json:"last,omitzero"`
}

// RefusedSource is a source that a rule would have refused.
type RefusedSource struct {
	Source string `json:"source"`
	Rule   string `json:"rule"`
	Shadow bool   `json:"shadow,omitempty"`
	// By being asked for a pass
	Challenged bool   `json:"challenged,omitempty"`
	Requests   uint64 `json:"requests"` // under the rule
	Refused    uint64 `json:"refused"`
	Blocks     uint64 `json:"blocks"`
	First      Moment `json:"first"`
	Last       Moment `json:"last"`
	// In any window, by the exact log; what the rule counts with it included
	Most uint32 `json:"most"`
	// Of the refused: those that the origin had answered with 2xx or 3xx
	Answered uint64  `json:"answered"`
	Innocent bool    `json:"innocent"`  // it never exceeded the limit
	Good     bool    `json:"good"`      // it was called good
	Mean     float64 `json:"per_block"` // refused requests per block
	Character

	rule    int
	source  int32
	counter int32
	refuses bool
}

// Moment is an instant of a log, or a time since the start of a trace that has no instants.
type Moment struct {
	Since time.Duration
	start time.Time
}

// GoodTraffic is the good traffic, and how much of it would have been refused: that of sources
// which never exceeded a limit that they were under, by the exact log of what they sent; that which
// was called good by whoever asked, or by the trace; and that which the origin answered as one
// answers good requests.
type GoodTraffic struct {
	Within Caught  `json:"within"`
	Called *Caught `json:"called,omitempty"` // by Options.Good or Answered
	Meant  *Caught `json:"meant,omitempty"`  // by the roles of a workload

	// By what the origin answered, for the requests whose answer the log has.
	Known           uint64  `json:"known"`
	Answered        uint64  `json:"answered"` // 2xx and 3xx
	RefusedKnown    uint64  `json:"refused_known"`
	RefusedAnswered uint64  `json:"refused_answered"`
	AnsweredRatio   float64 `json:"refused_answered_ratio"` // of the refused whose answer is known
}

// Caught is how much of some traffic was refused.
type Caught struct {
	Requests       uint64  `json:"requests"`
	Refused        uint64  `json:"refused"`
	RefusedRatio   float64 `json:"refused_ratio"`
	Sources        int     `json:"sources"`
	RefusedSources int     `json:"refused_sources"`
}

func (c *Caught) add(requests, refused uint64) {
	if requests == 0 {
		return
	}
	c.Requests += requests
	c.Refused += refused
	c.Sources++
	if refused > 0 {
		c.RefusedSources++
	}
	c.RefusedRatio = judge.Ratio(float64(c.Refused), c.Requests)
}

// Outcome is what became of one request.
type Outcome struct {
	Denied, Allowed bool // by lists; then no rule was asked
	Malformed       bool // refused for its form; then no rule was asked, either
	Refused         bool
	Challenged      bool // in place of that
	Results         []RuleResult
}

// RuleResult is one rule that a request falls under.
type RuleResult struct {
	Rule    int   // index of the rules
	Counter int32 // who it counts, numbered from 0 for each rule
	Refuses bool  // it refuses, or would if it were not a shadow
	Begins  bool  // with this request, and not by a mitigation in force
	Counts  bool  // the rule counts requests of this kind

	Delay time.Duration // it waits so long for its turn
}

// Options is what is asked.
type Options struct {
	Rules []JudgedRule
	// DryRun has the rules judge request i; it is called for one after the other. The answer is
	// valid until the next call.
	DryRun func(i int) Outcome
	Good   []netip.Prefix // addresses to be called good
	// Answered is which share of a source's requests the origin must have answered with 2xx or 3xx,
	// of those whose answer is known, for the source to be called good; 0: no share makes one good.
	Answered float64
	// Source is the source whose story is shown; the zero Addr: none.
	Source netip.Addr
	// Characters adds what the shown refused sources request.
	Characters bool
	Top        int // how many sources to show in a text; 0: 20
	// Forgotten is how many counters have made room for others, so that whoever they were of was
	// counted afresh; nil: none.
	Forgotten func() uint64
	Progress  func(done int) // storySource now and then how many requests are done, if not nil
}

// demand is what a rule's counter would have held of all requests that it might count: its exact
// form, nobody refused.
type demand struct {
	account   judge.Account
	now, most uint32 // in the unit of the limit
}

// Run has rules judge a trace. It ends early with the error of ctx.
func Run(ctx context.Context, t *trace.Trace, o Options) (*Report, error) {
	w := &Report{top: o.Top, start: t.Start, Rules: []RuleOutcome{}, Refused: []RefusedSource{},
		Curves: []Curve{}, Next: []NextSource{}}
	if w.top == 0 {
		w.top = 20
	}
	for _, r := range o.Rules {
		w.Rules = append(w.Rules, RuleOutcome{Name: r.Name, About: r.About, Limit: r.Limit,
			Window:  report.Seconds(r.Window),
			Timeout: report.Seconds(r.Timeout), Shadow: r.Shadow, Lacks: r.Lacks, Challenges: r.Challenges,
			Queue: report.Seconds(float64(r.Truth.Queue) * r.Truth.Interval)})
	}
	g := dryRun{Report: w, o: o, t: t, demands: make([]judge.PerSource[demand], len(o.Rules)),
		pairs: make([]map[pair]int32, len(o.Rules)),
		sent:  make([]sourceTally, len(t.Sources)), delays: make([]*hdrhistogram.Histogram,
			len(o.Rules))}
	for i := range g.pairs {
		g.pairs[i] = make(map[pair]int32)
		if o.Rules[i].Truth.Queue > 0 {
			g.delays[i] = hdrhistogram.New(1, int64(time.Hour), 3)
		}
	}
	if o.Source.IsValid() {
		if g.storySource = sourceOf(t, o.Source); g.storySource < 0 {
			return nil, fmt.Errorf("loadgen: %s made no request in %s", o.Source, t.Name)
		}
		w.Story = &Story{Source: t.Sources[g.storySource].Name, Statuses: make(map[int]uint64),
			Rules: []StoryRule{}, Blocks: []StoryBlock{}}
		g.passed = make([]uint64, len(o.Rules))
	}
	for i := range t.Requests {
		if i&0xfff == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if o.Progress != nil {
				o.Progress(i)
			}
		}
		g.request(i)
	}
	g.finish()
	if o.Forgotten != nil {
		w.Forgotten = o.Forgotten()
	}
	return w, nil
}

// sourceOf is the index of the source that an address is of, or -1.
func sourceOf(t *trace.Trace, addr netip.Addr) int32 {
	addr = addr.Unmap().WithZone("")
	for i := range t.Sources {
		s := t.Sources[i].Addr
		if s == addr {
			return int32(i)
		}
		if p, err := s.Prefix(64); err == nil && s.Is6() && p.Contains(addr) {
			return int32(i)
		}
	}
	return -1
}
