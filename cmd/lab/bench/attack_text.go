package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// settleAttack makes medians of the rounds.
func settleAttack(rounds []AttackFigures) AttackFigures {
	f := rounds[0]
	medians(&f, rounds, func(f *AttackFigures) *float64 { return &f.Sent },
		func(f *AttackFigures) *float64 { return &f.Opened },
		func(f *AttackFigures) *float64 { return &f.Ended },
		func(f *AttackFigures) *float64 { return &f.CPU },
		func(f *AttackFigures) *float64 { return &f.Memory },
		func(f *AttackFigures) *float64 { return &f.Peak },
		func(f *AttackFigures) *float64 { return &f.P99 },
		func(f *AttackFigures) *float64 { return &f.Calm },
		func(f *AttackFigures) *float64 { return &f.Ratio },
		func(f *AttackFigures) *float64 { return &f.Failed },
		func(f *AttackFigures) *float64 { return &f.Reached },
		func(f *AttackFigures) *float64 { return &f.Charged })
	f.Abuse = nil
	for _, r := range rounds { // the kinds of all rounds, each as often as in a middle one
		for kind := range r.Abuse {
			if f.Abuse == nil {
				f.Abuse = make(map[string]int)
			}
			f.Abuse[kind] = int(medianOf(len(rounds),
				func(i int) float64 { return float64(rounds[i].Abuse[kind]) }))
		}
	}
	f.Blocked = !slices.ContainsFunc(rounds, func(r AttackFigures) bool { return !r.Blocked })
	f.measured = rounds
	return f
}

// WriteAttacks prints figures as tables, and below them what was measured.
func WriteAttacks(w io.Writer, figures []AttackFigures, memory []ConnectionMemory,
	versions []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t,
		"attack\tserver\tasked/s\tsent/s\tconnections\tended\tCPU ms/s\tMB more\tp99 ms\tcalm p99 ms\tp99/calm\tfailed\tat origin\tcharged\tends by kind\tblocked")
	for _, f := range figures {
		charged, kinds, blocked := "-", "-", "-"
		if f.Server == "sluice" || f.Server == "before" {
			charged, blocked, kinds = fmt.Sprintf("%.0f", f.Charged), map[bool]string{true: "yes",
				false: "no"}[f.Blocked], "none"
			if len(f.Abuse) > 0 {
				var list []string
				for _, kind := range slices.Sorted(maps.Keys(f.Abuse)) {
					list = append(list, fmt.Sprintf("%s %d", kind, f.Abuse[kind]))
				}
				kinds = strings.Join(list, ", ")
			}
		}
		fmt.Fprintf(t,
			"%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%s\t%s\t%s\n", f.Attack, f.Server, f.Asked, f.Sent, f.Opened, f.Ended,
			f.CPU*1e3, f.Memory/1e6, f.P99*1e3, f.Calm*1e3, f.Ratio, f.Failed, f.Reached, charged,
			kinds, blocked)
	}
	if slices.ContainsFunc(figures, func(f AttackFigures) bool { return f.Limit > 0 }) {
		fmt.Fprintln(t, "\nattack on memory\tserver\tMB at most\tlimit MB\tof it\tp99 ms\tfailed")
	}
	for _, f := range figures {
		limit, of := "-", "-"
		if f.Limit == 0 {
			continue
		}
		if f.Server == "sluice" || f.Server == "before" {
			limit, of = fmt.Sprintf("%.0f", f.Limit/1e6), fmt.Sprintf("%.0f %%", 100*f.Peak/f.Limit)
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%s\t%s\t%.2f\t%.0f\n", f.Attack, f.Server, f.Peak/1e6, limit,
			of, f.P99*1e3, f.Failed)
	}
	if len(memory) > 0 {
		fmt.Fprintln(t, "\nconnection\tserver\tmeasured\tKB each")
		for _, m := range memory {
			fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\n", m.Connection, m.Server, m.Count, m.Each/1e3)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Join(versions, ", "))
	return err
}

// AttacksJSON are figures for programs: seconds, bytes.
type AttacksJSON struct {
	Versions    []string           `json:"versions"`
	Attacks     []AttackFigures    `json:"attacks"`
	Connections []ConnectionMemory `json:"connections"`
}
