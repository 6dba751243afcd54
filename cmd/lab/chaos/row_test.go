package chaos

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// What is above its bound is named, and what has no bound is not.
func TestJudge(t *testing.T) {
	s := &Scenario{Story: "made", Limit: 3, Window: time.Second, Block: time.Second, Bound: noBound}
	s.Bound.Failed, s.Bound.Refused, s.Bound.Limits, s.Bound.Normal = 0, 0, 1, time.Second
	s.Bound.Ready = time.Second
	at := func(ms int, source int32, v judge.Verdict, role trace.Role) judge.Decision {
		return judge.Decision{At: time.Duration(ms) * time.Millisecond, Source: source, Verdict: v, Role: role}
	}
	calm := []judge.Decision{at(0, 0, judge.Admitted, trace.Good), at(10, 1, judge.Admitted, trace.Abuser), at(15, 1, judge.Admitted, trace.Abuser), at(20, 1, judge.Admitted, trace.Abuser), at(30, 1, judge.Limited, trace.Abuser)}
	for _, c := range []struct {
		name string
		more []judge.Decision
		with func(*Observed)
		want []string
	}{
		{"nothing", nil, nil, nil},
		{"a steady source is refused", []judge.Decision{at(40, 0, judge.Limited, trace.Good)}, nil, []string{"wrongly refused"}},
		{"it is refused for want of the tier", []judge.Decision{at(40, 0, judge.Closed, trace.Good)}, nil, nil},
		{"one too many", []judge.Decision{at(25, 1, judge.Admitted, trace.Abuser)}, nil, []string{"most in a window"}},
		{"a failure, late", []judge.Decision{at(1500, 0, judge.Failed, trace.Good)}, func(o *Observed) { o.Failed = 1 }, []string{"failed", "normal after"}},
		{"an edge misses a node, late", nil, func(o *Observed) { o.Unsettled = 2 * time.Second }, []string{"normal after"}},
		{"a steady source came late", []judge.Decision{at(41, 0, judge.Admitted, trace.Good), at(42, 0, judge.Limited, trace.Good), at(1000, 0, judge.Mitigated, trace.Good)}, nil, nil},
		{"it is refused for longer than a block", []judge.Decision{at(41, 0, judge.Admitted, trace.Good), at(42, 0, judge.Limited, trace.Good), at(1200, 0, judge.Mitigated, trace.Good)},
			func(o *Observed) { o.Over = time.Second }, []string{"wrongly refused"}},
		{"it came late, and another is refused", []judge.Decision{at(41, 0, judge.Admitted, trace.Good), at(42, 0, judge.Limited, trace.Good), at(43, 2, judge.Limited, trace.Good)}, nil,
			[]string{"wrongly refused"}},
		{"a process is ready late", nil, func(o *Observed) { o.Ready = 2 * time.Second }, []string{"ready after"}},
		{"the balance", nil, func(o *Observed) { o.Unbalanced = errors.New("off") }, []string{"balance"}},
	} {
		o := &Observed{Edges: 1, Decisions: append(slices.Clone(calm), c.more...), Over: 100 * time.Millisecond}
		if c.with != nil {
			c.with(o)
		}
		r := s.Judge(o)
		if !slices.Equal(r.Over, c.want) {
			t.Errorf("%s: over are %q, want %q", c.name, r.Over, c.want)
		}
		var b strings.Builder
		if err := Write(&b, []*Row{r}); err != nil || strings.Contains(b.String(), "OVER") != (len(c.want) > 0) {
			t.Errorf("%s: %v\n%s", c.name, err, b.String())
		}
	}

	s.Untimed = true
	late := append(slices.Clone(calm), at(1500, 0, judge.Failed, trace.Good))
	if r := s.Judge(&Observed{Edges: 1, Failed: 1, Decisions: late, Over: 100 * time.Millisecond}); !slices.Equal(r.Over, []string{"failed"}) {
		t.Errorf("untimed: over are %q", r.Over)
	}
}

// Edges that count alone may admit a limit each, and no more.
func TestALimitForEachEdge(t *testing.T) {
	s := &Scenario{Story: "made", Limit: 3, Window: time.Second, Block: time.Second, Bound: noBound}
	s.Bound.EdgeLimits = 1
	for n, want := range map[int]string{6: "", 7: "most in a window"} {
		r := s.Judge(&Observed{Edges: 2, Decisions: make([]judge.Decision, n)})
		if strings.Join(r.Over, ", ") != want {
			t.Errorf("%d admitted by two edges: over are %q", n, r.Over)
		}
	}
}
