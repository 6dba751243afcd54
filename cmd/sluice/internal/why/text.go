package why

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/edge/operator"
)

// Blocks last into the next day and longer, so each time has its date.
const (
	toSecond = "2006-01-02 15:04:05Z"
	toMilli  = "2006-01-02 15:04:05.000Z"
)

// Text writes the story for people. Times are UTC, as in the log.
func (s *Story) Text(w io.Writer) error {
	b := new(strings.Builder)
	if s.From.Year() > 1 { // otherwise neither the question nor a request has a time
		fmt.Fprintf(b, "%s, from %s to %s\n", name(s), s.From.Format(toSecond),
			s.To.Format(toSecond))
	} else {
		fmt.Fprintf(b, "%s\n", name(s))
	}
	if s.Bad > 0 {
		fmt.Fprintf(b, "%d of %d lines are no access log in JSON (access_log.format: json)\n",
			s.Bad, s.Lines)
	}
	if s.Requests == 0 {
		fmt.Fprintf(b, "no request of it in %d lines\n", s.Lines)
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(b, "first seen %s, last %s: %s, %d refused", s.First.Format(toSecond),
		s.Last.Format(toSecond), requests(s.Requests), s.Refused)
	if s.HTTP2 > 0 {
		fmt.Fprintf(b, ", %d by HTTP/2", s.HTTP2)
	}
	b.WriteByte('\n')
	if s.Unwritten > 0 {
		fmt.Fprintf(b,
			"the log holds a sample: about %d of them are not in it, and counted by the lines that stand for them\n", s.Unwritten)
	}
	if len(s.Minutes) == 0 {
		b.WriteString("none of them at that time\n")
	}
	for _, m := range s.Minutes {
		fmt.Fprintf(b, "  %s  %s", m.At.Format("2006-01-02 15:04Z"), requests(m.Requests))
		if m.Refused > 0 {
			fmt.Fprintf(b, ", %d refused", m.Refused)
		}
		b.WriteByte('\n')
	}
	for i := range s.Blocks {
		s.Blocks[i].text(b)
	}
	for _, r := range s.Others {
		what := map[string]string{"denied": "refused by the list deny",
			"closed": "refused by rule " + r.Rule + ", because no node of the tier answered",
			"limited": "over the limit of rule " + r.Rule +
				", which throttles and does not block", "tagged": "over the limit of rule " +
				r.Rule + ", which tags and does not refuse",
			"shadow": "over the limit of rule " + r.Rule + ", a shadow"}[r.Verdict]
		if what == "" {
			what = "refused by rule " + r.Rule
		}
		fmt.Fprintf(b, "%s: %s, from %s to %s\n", what, requests(r.Requests),
			r.First.Format(toMilli), r.Last.Format(toMilli))
	}
	if len(s.Blocks)+len(s.Others) == 0 && len(s.Minutes) > 0 {
		b.WriteString("nothing was refused at that time\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (bl *Block) text(b *strings.Builder) {
	verb := "blocked"
	if bl.Shadow {
		verb = "would have been blocked"
	} else if bl.Tagged {
		verb = "tagged"
	}
	fmt.Fprintf(b, "%s %s by rule %s, until %s\n", bl.Began.Format(toMilli), verb,
		cmp.Or(bl.Policy, bl.Rule), bl.Until.Format(toMilli))
	if bl.Known {
		fmt.Fprintf(b, "  with request %s", bl.ID)
		if bl.Edge != "" {
			fmt.Fprintf(b, " at edge %s", bl.Edge)
		}
		fmt.Fprintf(b, ": %.4g requests in %v, %d are allowed\n", bl.Estimate,
			time.Duration(bl.Window*float64(time.Second)), bl.Limit)
	} else if bl.By != "" {
		fmt.Fprintf(b, "  %s\n", ordered(bl.Who, bl.Reason))
	} else {
		b.WriteString("  began elsewhere: another edge's verdict, or an operator's\n")
	}
	if !bl.Shadow && !bl.Tagged {
		by := ""
		if bl.Action != "" {
			by = " by action: " + bl.Action
		}
		fmt.Fprintf(b, "  %s refused under it%s, the last at %s\n", requests(bl.Refused), by,
			bl.Last.Format(toMilli))
	}
	switch {
	case bl.Shadow, bl.Tagged:
	case bl.Then.IsZero():
		b.WriteString("  then: no request that was admitted\n")
	default:
		fmt.Fprintf(b, "  then: admitted again at %s\n", bl.Then.Format(toMilli))
	}
}

// ordered is an operator's block, by whom and why.
func ordered(who, reason string) string {
	text := "an operator ordered it"
	if who != "" {
		text += ": " + who
	}
	if reason != "" {
		text += ", because of: " + reason
	}
	return operator.Printable(text)
}

func name(s *Story) string {
	switch {
	case s.Key != "":
		return s.Key
	case s.Source.IsSingleIP():
		return s.Source.Addr().String()
	}
	return s.Source.String()
}

func requests(n uint64) string { return operator.Counted(int(n), "request") }
