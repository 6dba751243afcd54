package lab

import (
	"fmt"

	"sluice/loadgen/judge"
	"sluice/loadgen/origin"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

// Balance holds what everybody counted against each other: the load generator, the edges all
// together, the origin. At rest the counts of a run without harmed processes agree exactly.
type Balance struct {
	Rows  []BalanceRow `json:"rows"`
	Notes []string     `json:"notes,omitempty"` // what could not be checked, and why
}

// BalanceRow is one equation.
type BalanceRow struct {
	Name  string `json:"name"`
	Left  int64  `json:"left"`
	Right int64  `json:"right"`
	Least bool   `json:"at_least,omitempty"` // Left may be more than Right
}

// Holds reports whether the equation holds.
func (r BalanceRow) Holds() bool { return r.Left == r.Right || r.Least && r.Left > r.Right }

func (r BalanceRow) String() string {
	sign := "="
	switch {
	case !r.Holds():
		sign = "IS NOT"
	case r.Least:
		sign = ">="
	}
	return fmt.Sprintf("%s: %d %s %d", r.Name, r.Left, sign, r.Right)
}

// Err names the equations that do not hold.
func (b *Balance) Err() error {
	var wrong string
	for _, r := range b.Rows {
		if !r.Holds() {
			wrong += "; " + r.String()
		}
	}
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("loadgen: the balance is off%s", wrong)
}

// counts is what a balance is drawn from.
type counts struct {
	out     *replay.Outcome
	edges   scrape.Metrics // added up over all edges, since the start of the run
	origin  origin.Stats
	harmed  []string // processes whose counts went with them
	noEdges bool     // among them an edge
	noOrig  bool     // among them the origin
	noWall  bool     // among them the wall
	wall    bool     // there is one
	walled  float64  // connections that the kernel says it refused
	shared  bool     // sources cannot have one address each
	guests  bool     // others sent as well: what all received is not what the trace's sources sent
}

// balance draws the balance. A client that repeats requests, or gets no answer to some, cannot know
// how many of those the edges received; a harmed process takes its counts with it. What then
// remains is an inequality or a note.
func (b counts) balance() Balance {
	var out Balance
	row := func(name string, left, right float64, least bool) {
		out.Rows = append(out.Rows, BalanceRow{name, int64(left), int64(right), least})
	}
	admitted, refused, bySource := 0, 0, make(map[string]int)
	for _, d := range b.out.Decisions {
		switch d.Verdict {
		case judge.Admitted:
			admitted++
			bySource[b.out.Addresses[d.Source].String()]++
		case judge.Limited, judge.Mitigated, judge.Closed:
			refused++
		}
	}
	admitted -= b.out.Troubled
	vague := b.out.Retried > 0 || len(b.out.Errors) > 0 || b.out.Unknown > 0
	unjudged := len(b.out.Unjudged) > 0 // answered, and what was decided is not known
	// Back: whether they reached the origin, and were answered, is a matter of moments
	taken := b.out.Resets > 0
	if taken {
		out.Notes = append(out.Notes,
			"a request that is reset may be answered and reach the origin, or not, so what comes from there is at least what was seen of it")
	}
	ended := len(b.out.Ended) > 0
	if ended {
		out.Notes = append(out.Notes,
			"edges ended connections for what was done on them, and count that as requests that nobody sent")
	}
	for _, name := range b.harmed {
		out.Notes = append(out.Notes, "what "+name+" counted went with it")
	}
	if b.guests {
		out.Notes = append(out.Notes,
			"others sent as well, so only what came of each source of the trace is held")
	}
	received, answers := b.edges.Sum("sluice_received_total"), b.edges.Sum("sluice_answers_total")
	if !b.noEdges {
		row("requests received by edges, answers plus aborted", received,
			answers+b.edges.Sum("sluice_aborted_total"), false)
	}
	if !b.noEdges && !b.guests {
		if !ended {
			row("requests received by edges, sent", received, float64(b.out.Sent-b.out.Unread),
				vague)
		}
		row("answers by edges, got", answers, float64(b.out.Answered), vague || taken)
		row("refusals by edges, got", b.edges.Sum("sluice_answers_total", "code", "429"),
			float64(b.out.Statuses[429]), vague || taken)
		limited := 0.0
		for _, verdict := range []string{"limited", "mitigated", "closed"} {
			limited += b.edges.Sum("sluice_requests_total", "verdict", verdict)
		}
		row("refusals by the rule, judged as such", limited, float64(refused), vague || unjudged)
		if b.wall {
			row("connections closed by edges unanswered, seen",
				b.edges.Sum("sluice_connections_refused_total", "cap",
					"mitigated"), float64(b.out.Verdicts(judge.Shed)), vague)
		}
		if b.wall && !b.noWall {
			row("connections refused by the kernel, seen", b.walled,
				float64(b.out.Verdicts(judge.Walled)), vague)
		}
		passed := b.edges.Sum("sluice_answers_total", "from", "origin")
		if !taken {
			row("answers by edges from the origin, answers of the origin", passed,
				b.edges.Sum("sluice_origin_requests_total"), vague)
		}
		if !b.noOrig {
			row("requests received by the origin, answers of the origin", float64(b.origin.Received), b.edges.Sum("sluice_origin_requests_total"), vague || taken || b.out.Troubled > 0) // an edge may have given up before its answer
		}
	}
	if b.noOrig {
		return out
	}
	if taken {
		if !vague {
			row("requests admitted, received by the origin", float64(admitted),
				float64(b.origin.Received), true)
		}
		return out
	}
	if !b.guests {
		row("requests received by the origin, admitted", float64(b.origin.Received),
			float64(admitted), vague || unjudged || b.noEdges || b.out.Troubled > 0)
	}
	if b.shared || b.origin.Others > 0 || vague || unjudged || b.noEdges || b.out.Troubled > 0 {
		return out
	}
	differ := 0
	for source, n := range bySource {
		if b.origin.BySource[source] != n {
			differ++
		}
	}
	for source := range b.origin.BySource {
		if bySource[source] == 0 && !b.guests {
			differ++
		}
	}
	row("sources of whom the origin received another number than was admitted, none",
		float64(differ), 0, false)
	return out
}
