package chaos

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// Observed is what was seen of a story. Times are since the run began.
type Observed struct {
	Edges     int // all there were
	Decisions []judge.Decision
	InForce   []judge.InForce
	// Requests without an answer, or with one of 500 and above that no rule meant
	Failed int
	Over   time.Duration // when what happened last was done

	Unanswered, Unjudged int
	Trouble              string // what failed
	// From the first thing that happened until all edges that ran missed a node; below 0: never
	Noticed time.Duration
	// From when the last process was restarted until it was ready
	Ready          time.Duration
	Unsettled      time.Duration // when an edge last missed a node, or did not answer
	Evicted, Dials int
	Unbalanced     error
}

// Row is what came of a story.
type Row struct {
	Story                    string
	Edges                    int
	Bound                    Bound
	Limit                    uint32
	Failed, Refused          int
	Most                     uint32
	Blocked, Noticed, Normal time.Duration // below 0: never
	Closed, Evicted          int
	Unanswered, Dials        int
	Notes                    []string

	Over []string // what is above its bound
}

// blockNews is how much later than a source came to its limit its block may begin, at the edge that
// hears of it last.
const blockNews = 100 * time.Millisecond

// Judge makes a row of what was seen. Steady sources never exceed the limit, so each refusal of one
// is wrong, but for those of a rule that fails closed. A busy machine may hold back requests of one
// and let them go together. Then a refusal is right if the exact log says that the source had
// admitted its limit in the window but for one, by which an estimate may be off, or that a block
// which began so is in force. What is most in a window, when a source is blocked after it went over
// its limit, and whether an attacker was refused before that, is by the exact judge.
func (s *Scenario) Judge(o *Observed) *Row {
	r := &Row{
		Story: s.Story, Edges: o.Edges, Bound: s.Bound, Limit: s.Limit,
		Failed: o.Failed, Unanswered: o.Unanswered, Evicted: o.Evicted, Dials: o.Dials,
		Noticed: o.Noticed, Blocked: -1, Normal: -1,
	}
	judged := o.Decisions[:0:0]
	judge.SortDecisions(o.Decisions)
	last := max(o.Unsettled, 0)
	var logs judge.PerSource[judge.Log]
	rightly := make(map[int32]time.Duration) // until when a block of a source is right; 0: never
	excused := 0
	for i := range o.Decisions {
		d := &o.Decisions[i]
		if d.Verdict == judge.Closed {
			r.Closed++
			last = max(last, d.At)
			continue // by the word of its rule, which no count is held against
		}
		judged = append(judged, *d)
		log := logs.Of(d.Source)
		log.Drop(int64(d.At), int64(s.Window))
		switch {
		case d.Verdict == judge.Failed, d.Troubled:
			last = max(last, d.At)
		case d.Verdict == judge.Admitted:
			log.Push(int64(d.At))
			if log.Len() > int(s.Limit) {
				rightly[d.Source] = d.At + s.Block
			}
			if float64(log.Len()) > 1.1*float64(s.Limit)+1 {
				last = max(last, d.At)
			}
		case d.Role != trace.Good:
		case log.Len() >= int(s.Limit)-1: // with this one it would have been at its limit or above
			rightly[d.Source] = d.At + s.Block
			excused++
		case rightly[d.Source] > 0 && d.At < rightly[d.Source]+blockNews:
			excused++
		default:
			r.Refused++
			last = max(last, d.At)
		}
	}
	if excused > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%d refusals of steady sources that came late, and so at or over their limit by the exact log", excused))
	}
	options := judge.Options{Limit: s.Limit, Window: s.Window, Timeout: s.Block, Edges: o.Edges,
		Slack: answer.ClockSlack}
	f := judge.Judge(judge.Deployed, options, judged, o.InForce)
	r.Most = f.WorstWindow
	if early := int(f.WronglyLimited+f.WronglyMitigated) - r.Refused; early > excused {
		r.Notes = append(r.Notes,
			fmt.Sprintf("attackers refused %d times before or after their due", early))
	}
	if t := f.TimeToBlockExact; t != nil && t.FirstEdge.N > 0 {
		r.Blocked = time.Duration(t.FirstEdge.Max * float64(time.Second))
	}
	r.Normal = max(last-o.Over, 0)
	r.compare(s, o)
	return r
}

// compare says what is above its bound.
func (r *Row) compare(s *Scenario, o *Observed) {
	over := func(what string, is bool) {
		if is {
			r.Over = append(r.Over, what)
		}
	}
	most := func(what string, is, bound int) { over(what, bound >= 0 && is > bound) }
	within := func(what string, is, bound time.Duration) {
		over(what, bound >= 0 && (is < 0 || is > bound && !s.Untimed))
	}
	b := &r.Bound
	most("failed", r.Failed, b.Failed)
	most("wrongly refused", r.Refused, b.Refused)
	if b.EdgeLimits >= 0 {
		b.Limits = b.EdgeLimits * float64(r.Edges)
	}
	if s.Untimed && b.Limits >= 0 {
		// Edges of a busy machine hear of each other late: by half a second here, of an attacker
		// that sends half the limit in a second
		b.Limits = max(b.Limits, 1.5)
	}
	over("most in a window", b.Limits >= 0 && float64(r.Most) > b.Limits*float64(r.Limit))
	most("unanswered", r.Unanswered, b.Unanswered)
	within("normal after", r.Normal, b.Normal)
	within("noticed after", r.Noticed, b.Noticed)
	within("ready after", o.Ready, b.Ready)
	most("connections to nodes", r.Dials, b.Reconnections)
	over("too few refused for want of the tier", r.Closed < b.Closed)
	over("too few evicted", r.Evicted < b.Evicted)
	// Those under way while a clock steps cannot be
	over("not judged", o.Unjudged > o.Failed+len(o.Decisions)/1000)
	note := func(say bool, format string, args ...any) {
		if say {
			r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
		}
	}
	if o.Unbalanced != nil {
		over("balance", true)
		note(true, "%v", o.Unbalanced)
	}
	note(o.Trouble != "", "%s", o.Trouble)
	note(o.Unjudged > o.Failed, "%d answers without a judgement", o.Unjudged)
	note(b.Noticed >= 0, "noticed after %s", bounded(seconds(r.Noticed), seconds(b.Noticed)))
	note(b.Ready >= 0, "ready after %s", bounded(seconds(o.Ready), seconds(b.Ready)))
	note(b.Reconnections >= 0, "connections made to nodes: %d of %d", r.Dials, b.Reconnections)
	note(b.Unanswered >= 0, "without an answer: %d of %d", r.Unanswered, b.Unanswered)
	note(b.Closed > 0, "%d refused with 503 by the rule", r.Closed)
	note(b.Evicted > 0, "%d items evicted", r.Evicted)
}

// Write writes rows as a table: what was measured, and behind it what is promised.
func Write(w io.Writer, rows []*Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t,
		"what happens\tedges\tfailed\twrongly refused\tmost in a window\tblocked after\tnormal after\theld\talso")
	for _, r := range rows {
		edges, b := fmt.Sprint(r.Edges, " live"), &r.Bound
		held := "yes"
		if len(r.Over) > 0 {
			held = "OVER: " + strings.Join(r.Over, ", ")
		}
		also := "–"
		if len(r.Notes) > 0 {
			also = strings.Join(r.Notes, "; ")
		}
		limits := -1
		if b.Limits >= 0 {
			limits = int(b.Limits * float64(r.Limit))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Story, edges,
			count(r.Failed, b.Failed), count(r.Refused, b.Refused), count(int(r.Most), limits),
			seconds(r.Blocked), bounded(seconds(r.Normal), seconds(b.Normal)), held,
			strings.ReplaceAll(also, "  ", " "))
	}
	return t.Flush()
}

func count(is, bound int) string {
	if bound < 0 {
		return fmt.Sprint(is)
	}
	return fmt.Sprintf("%d of %d", is, bound)
}

// bounded is what was measured, and of how much at most, if that is bounded.
func bounded(is, bound string) string {
	if bound == "–" {
		return is
	}
	return is + " of " + bound
}

func seconds(d time.Duration) string {
	if d < 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g s", max(d.Seconds(), 0))
}
