package replay

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// resetAgent begins the User-Agent of a request that is reset. What follows is the run's token, and
// which request it is.
const resetAgent = "sluice-loadgen/"

// Silent is a request that was reset as soon as it was made, and has no answer: its edge has
// counted it, but only the edge's log shows the decision.
type Silent struct {
	Request     int32
	Edge        int16
	Asked, Sent time.Duration // as of any other
}

// Learn makes decisions of what is Silent, by the access logs of the edges (JSON), in their order;
// what they do not show is judge.Failed. Where an edge has charged a source for a connection that
// it ended, that is a decision as well, though nobody made a request. It is called after Run, once,
// and also if there is no log.
func (o *Outcome) Learn(t *trace.Trace, logs ...io.Reader) error {
	silent := make(map[int32]Silent, len(o.Silent))
	for _, s := range o.Silent {
		silent[s.Request] = s
	}
	sources := make(map[string]int32, len(o.Addresses))
	for i, a := range o.Addresses {
		sources[a.String()] = int32(i)
	}
	for edge, log := range logs {
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l logLine
			if json.Unmarshal(lines.Bytes(), &l) != nil {
				continue // of a file in another format, or cut by a full disk
			}
			d, ok := l.decision(o.Start)
			if !ok {
				continue
			}
			name, ours := strings.CutPrefix(l.Agent, resetAgent+o.token+"/")
			if !ours {
				source, known := sources[l.Source]
				if known && l.Method == "" && d.At >= -answer.ClockSlack &&
					d.At <= o.Took+answer.ClockSlack {
					o.Charged++
					d.Source, d.Edge, d.Role = source, int16(edge), t.Sources[source].Role
					o.Decisions = append(o.Decisions, d)
				}
				continue
			}
			n, err := strconv.ParseInt(name, 10, 32)
			s, there := silent[int32(n)]
			if err != nil || !there || d.At < s.Asked-answer.ClockSlack {
				continue
			}
			delete(silent, s.Request)
			o.Logged++
			d.Source, d.Edge, d.Role = t.Requests[n].Source, s.Edge, t.Role(int(n))
			o.Decisions = append(o.Decisions, d)
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("loadgen: read the access log of edge %d: %w", edge, err)
		}
	}
	for _, s := range o.Silent {
		if _, unknown := silent[s.Request]; unknown {
			o.Unknown++
			o.Decisions = append(o.Decisions, judge.Decision{At: s.Sent,
				Source: t.Requests[s.Request].Source, Edge: s.Edge, Verdict: judge.Failed,
				Estimate: math.NaN(), Role: t.Role(int(s.Request))})
		}
	}
	slices.SortStableFunc(o.Decisions, func(a, b judge.Decision) int {
		return cmp.Compare(a.At, b.At)
	})
	return nil
}

// logLine is what is read of a line of an access log.
type logLine struct {
	T        float64   `json:"t"`
	Source   string    `json:"source"`
	Method   string    `json:"method"` // empty: it is of no request
	Agent    string    `json:"user_agent"`
	Verdict  string    `json:"verdict"`
	Estimate *float64  `json:"estimate"`
	Until    time.Time `json:"until"`
}

// decision is what the line says of one.
func (l *logLine) decision(epoch time.Time) (d judge.Decision, ok bool) {
	v := answer.ParseVerdict([]byte(l.Verdict))
	if !v.Found {
		return d, false
	}
	at := int64(math.Round(l.T*1e6)) * 1000
	d = judge.Decision{At: time.Duration(at - epoch.UnixNano()), Verdict: v.Is, Over: v.Shadow ||
		v.Is == judge.Limited, Estimate: math.NaN()}
	// Of who is blocked the counter was not asked
	if l.Estimate != nil && (v.Is == judge.Admitted || v.Is == judge.Limited) {
		d.Estimate = *l.Estimate
	}
	if !l.Until.IsZero() && (v.Is != judge.Admitted || v.Shadow) {
		d.Until = l.Until.Sub(epoch)
	}
	return d, true
}

// resetLines says what is known of requests that were reset.
func (o *Outcome) resetLines() []string {
	if o.Resets == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("judged: %d requests reset as soon as they were made: %d by the head of their answer, %d by the edges' access logs, %d not known",
		o.Resets, o.Resets-o.Logged-o.Unknown, o.Logged, o.Unknown)}
	if o.Unknown > 0 {
		lines = append(lines,
			"judged: what is not known was counted all the same, so a refusal after it may look wrong: the edges' access logs show it")
	}
	if o.Charged > 0 {
		lines = append(lines,
			fmt.Sprintf("judged: %d times an edge charged a source for a connection that it ended, as one request", o.Charged))
	}
	return lines
}
