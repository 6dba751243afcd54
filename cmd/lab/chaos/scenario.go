// Package chaos tries what must happen when things break. A scenario is a text that reads as a
// story: what there is, who sends, what goes wrong and what is put right again, and what clients
// may notice of it at most (Parse). It is run with real edges (Live), and judged (Judge) against
// the exact log, which shares no code with the limiter. What comes of it is a row of a table
// (Write). Soak does faults at random, for as long as one likes, and holds afterwards that nothing
// was lost and nothing grew.
package chaos

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/lab"
)

//go:embed scenarios/*.txt
var texts embed.FS

// Scenario is one story.
type Scenario struct {
	Story string
	Place string // where it stands: file and line
	Short bool   // it is part of the short form
	// Of real edges, times are shown and not held to a bound, because the machine may be busy
	Untimed bool

	Edges         int // that run
	Nodes         int
	MB            int // of each node; 0: the lab's default
	Proxied       bool
	FailurePolicy string // on_store_failure

	Limit         uint32
	Window, Block time.Duration
	Patience      time.Duration // of the edges with the origin; 0: their default

	Steady    int
	Share     float64 // of the limit, that each of them sends
	Attackers int
	Rate      float64 // of each of them, a second
	For       time.Duration

	Steps []Step
	Bound Bound
}

// Step is something that happens at a time.
type Step struct {
	At    time.Duration
	Text  string
	Fault *lab.Fault // of a process, or of a clock
	node  string     // or the node that is filled with so many items
	items int
}

// Bound is what clients and operators may notice at most. Of what a scenario does not say, it is
// below 0.
type Bound struct {
	Failed, Refused int     // requests that failed, or were refused wrongly
	Limits          float64 // admitted of one source in any window, by its limit
	EdgeLimits      float64 // the same, by the limit and how many edges there are
	Noticed, Normal time.Duration
	Ready           time.Duration // from when a process was restarted until it was ready
	// At least so many were refused because the tier was gone
	Closed                    int
	Evicted                   int // at least so many items were evicted from nodes
	Unanswered, Reconnections int
}

var noBound = Bound{Failed: -1, Refused: -1, Limits: -1, EdgeLimits: -1, Noticed: -1, Normal: -1,
	Ready: -1, Unanswered: -1, Reconnections: -1}

// All are the scenarios of this package.
func All() ([]*Scenario, error) {
	files, err := fs.Glob(texts, "scenarios/*.txt")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, file := range files {
		text, err := texts.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some, err := Parse(file, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Parse reads scenarios. A line that begins at the left tells which story begins; those below it,
// further right, what happens in it, in clauses with semicolons between. What stands behind # is
// for readers. Each thing that cannot be read is an error that says where it stands.
func Parse(file, text string) (all []*Scenario, wrong error) {
	fail := func(line int, format string, args ...any) {
		wrong = errors.Join(wrong, fmt.Errorf("%s:%d: %s", file, line,
			fmt.Sprintf(format, args...)))
	}
	var s *Scenario
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case !indented:
			s = &Scenario{Story: line, Place: fmt.Sprintf("%s:%d", file, i+1), FailurePolicy: "local",
				Share: 0.9, Bound: noBound}
			all = append(all, s)
		case s == nil:
			fail(i+1, "%q belongs to no story: begin with a line at the left that tells it", line)
		default:
			for clause := range strings.SplitSeq(line, ";") {
				if clause = strings.TrimSpace(clause); clause != "" {
					if err := s.read(clause); err != nil {
						fail(i+1, "%v", err)
					}
				}
			}
		}
	}
	seen := make(map[string]bool)
	for _, s := range all {
		if wrong == nil {
			wrong = s.check()
		}
		if seen[s.Story] && wrong == nil {
			wrong = fmt.Errorf("%s: the story %q is told twice", s.Place, s.Story)
		}
		seen[s.Story] = true
	}
	if wrong != nil {
		return nil, wrong
	}
	return all, nil
}

// endsWithRestart reports whether a process is restarted last.
func (s *Scenario) endsWithRestart() bool {
	n := len(s.Steps)
	return n > 0 && s.Steps[n-1].Fault != nil && s.Steps[n-1].Fault.Action == lab.Restart
}

// mostAllowed is how much of one source may be admitted in a window; below 0: any number.
func (s *Scenario) mostAllowed() float64 {
	return max(s.Bound.Limits, s.Bound.EdgeLimits*float64(s.Edges)) * float64(s.Limit)
}

// check completes a scenario, or says what it lacks.
func (s *Scenario) check() error {
	lacks := ""
	switch {
	case s.Edges == 0:
		lacks = `no edges: say "3 edges live"`
	case s.Limit == 0:
		lacks = `no limit: say "limit 50 in 5s"`
	case s.Steady == 0 && s.Attackers == 0:
		lacks = `nobody who sends: say "20 steady sources at 90% of the limit", or "5 attackers at 100 a second"`
	case s.Steady > 0 && int(s.Share*float64(s.Limit)+0.5)+1 > int(s.Limit):
		lacks = "steady sources that would come over their limit now and then: each may be late by half the time between two of its requests"
	case s.For == 0:
		lacks = `no end: say "for 20s"`
	case s.mostAllowed() >= s.Rate*s.Window.Seconds()+1:
		lacks = "more allowed in a window than an attacker sends: let it send more, or allow less"
	case s.Bound.Ready >= 0 && !s.endsWithRestart():
		lacks = `no restart at its end, after which something could be ready`
	case s.Bound == noBound:
		lacks = `nothing that must hold: say "at most 0 failed"`
	}
	if lacks != "" {
		return fmt.Errorf("%s: the story %q has %s", s.Place, s.Story, lacks)
	}
	if s.Block == 0 {
		s.Block = s.Window
	}
	for _, step := range s.Steps {
		if step.At >= s.For {
			return fmt.Errorf("%s: the story %q is over after %v, before %q", s.Place, s.Story,
				s.For, step.Text)
		}
	}
	return nil
}

// A clause is something that a story can say.
type clause struct {
	like *regexp.Regexp
	want string // an example of it
	read func(s *Scenario, m []string) error
}

const (
	number = `(\d[\d,]*)`
	span   = `(\d[\d.]*(?:ms|s|m|h))`
)

// clauses are all that there are, but for what happens at a time.
var clauses = []clause{
	say(number+` edges? live`, "3 edges live",
		func(s *Scenario, m []string) error { return whole(&s.Edges, m[1], 1, 64) }),
	say(number+` nodes?(?: of `+number+` MB)?( behind twemproxy)?`, "2 nodes behind twemproxy",
		func(s *Scenario, m []string) error {
			s.Proxied = m[3] != ""
			if m[2] != "" {
				if err := whole(&s.MB, m[2], 1, 1024); err != nil {
					return err
				}
			}
			return whole(&s.Nodes, m[1], 1, 16)
		}),
	say(`limit `+number+` in `+span, "limit 50 in 5s", func(s *Scenario, m []string) error {
		var n int
		if err := whole(&n, m[1], 1, 1_000_000); err != nil {
			return err
		}
		s.Limit = uint32(n)
		return long(&s.Window, m[2])
	}),
	say(`blocks of `+span, "blocks of 5s",
		func(s *Scenario, m []string) error { return long(&s.Block, m[1]) }),
	say(`without the tier (local|share|open|closed)`, "without the tier closed",
		func(s *Scenario, m []string) error { s.FailurePolicy = m[1]; return nil }),
	say(`the origin has `+span, "the origin has 1s",
		func(s *Scenario, m []string) error { return long(&s.Patience, m[1]) }),
	say(number+` steady sources? at `+number+`% of the limit`,
		"20 steady sources at 90% of the limit", func(s *Scenario, m []string) error {
			var percent int
			if err := whole(&percent, m[2], 1, 95); err != nil {
				return err
			}
			s.Share = float64(percent) / 100
			return whole(&s.Steady, m[1], 1, 10_000)
		}),
	say(number+` attackers? at `+number+` a second`, "5 attackers at 100 a second",
		func(s *Scenario, m []string) error {
			var rate int
			if err := whole(&rate, m[2], 1, 10_000); err != nil {
				return err
			}
			s.Rate = float64(rate)
			return whole(&s.Attackers, m[1], 1, 60_000)
		}),
	say(`for `+span, "for 20s", func(s *Scenario, m []string) error { return long(&s.For, m[1]) }),
	say(`short`, "short", func(s *Scenario, m []string) error { s.Short = true; return nil }),

	say(`at most `+number+` failed`, "at most 0 failed",
		func(s *Scenario, m []string) error { return whole(&s.Bound.Failed, m[1], 0, 1e9) }),
	say(`at most `+number+` wrongly refused`, "at most 0 wrongly refused",
		func(s *Scenario, m []string) error { return whole(&s.Bound.Refused, m[1], 0, 1e9) }),
	say(`at most (\d+(?:\.\d+)?) limits? in a window`, "at most 2 limits in a window",
		func(s *Scenario, m []string) (err error) {
			s.Bound.Limits, err = strconv.ParseFloat(m[1], 64)
			return err
		}),
	say(`at most (\d+(?:\.\d+)?) limits? for each edge in a window`,
		"at most 1 limit for each edge in a window", func(s *Scenario, m []string) (err error) {
			s.Bound.EdgeLimits, err = strconv.ParseFloat(m[1], 64)
			return err
		}),
	say(`at most `+number+` unanswered`, "at most 0 unanswered",
		func(s *Scenario, m []string) error { return whole(&s.Bound.Unanswered, m[1], 0, 1e9) }),
	say(`at most `+number+` connections to a node`, "at most 100 connections to a node",
		func(s *Scenario, m []string) error { return whole(&s.Bound.Reconnections, m[1], 0, 1e9) }),
	say(`at least `+number+` refused for want of the tier`,
		"at least 1 refused for want of the tier", func(s *Scenario, m []string) error {
			return whole(&s.Bound.Closed, m[1], 1, 1e9)
		}),
	say(`at least `+number+` evicted`, "at least 1 evicted",
		func(s *Scenario, m []string) error { return whole(&s.Bound.Evicted, m[1], 1, 1e9) }),
	say(`noticed within `+span, "noticed within 500ms",
		func(s *Scenario, m []string) error { return long(&s.Bound.Noticed, m[1]) }),
	say(`ready within `+span, "ready within 1s",
		func(s *Scenario, m []string) error { return long(&s.Bound.Ready, m[1]) }),
	say(`normal within `+span, "normal within 2s",
		func(s *Scenario, m []string) error { return long(&s.Bound.Normal, m[1]) }),
}

func say(like, want string, read func(*Scenario, []string) error) clause {
	return clause{regexp.MustCompile("^" + like + "$"), want, read}
}

var happens = regexp.MustCompile(`^at ` + span + ` +(.*)$`)

var fills = regexp.MustCompile(`^fill (memcached/\d+) with ` + number + ` items$`)

// readStep reads what happens at a time.
func readStep(at, text string) (*Step, error) {
	s := &Step{Text: text}
	var err error
	if s.At, err = time.ParseDuration(at); err != nil {
		return nil, fmt.Errorf("%s is no time: want one such as 20s", at)
	}
	if m := fills.FindStringSubmatch(text); m != nil {
		s.node = m[1]
		return s, whole(&s.items, m[2], 1, 10_000_000)
	}
	f, err := lab.ParseFault(at + " " + text)
	if err != nil {
		return nil, fmt.Errorf("%w; or such as %q", err, "fill memcached/0 with 200,000 items")
	}
	s.Fault = &f
	return s, nil
}

// read reads one clause.
func (s *Scenario) read(text string) error {
	text = strings.Join(strings.Fields(text), " ")
	if m := happens.FindStringSubmatch(text); m != nil {
		step, err := readStep(m[1], m[2])
		if err == nil {
			s.Steps = append(s.Steps, *step)
		}
		return err
	}
	for _, c := range clauses {
		if m := c.like.FindStringSubmatch(text); m != nil {
			if err := c.read(s, m); err != nil {
				return fmt.Errorf("%q: %w", text, err)
			}
			return nil
		}
	}
	var known []string
	for _, c := range clauses {
		known = append(known, strconv.Quote(c.want))
	}
	return fmt.Errorf("%q says nothing that is known here; stories say %s, and what happens: %q",
		text, strings.Join(known, ", "), "at 5s kill memcached/0")
}

func whole(into *int, text string, least, most int) error {
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	if err != nil || n < least || n > most {
		return fmt.Errorf("%s: want %d to %d", text, least, most)
	}
	*into = n
	return nil
}

func long(into *time.Duration, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%s is no time: want one such as 500ms or 20s", text)
	}
	*into = d
	return nil
}
