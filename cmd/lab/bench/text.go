package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// settle makes medians of the rounds.
func (f *PeerFigures) settle() {
	medians(f, f.measured, func(f *PeerFigures) *float64 { return &f.CPU },
		func(f *PeerFigures) *float64 { return &f.Tier },
		func(f *PeerFigures) *float64 { return &f.Rate },
		func(f *PeerFigures) *float64 { return &f.P50 },
		func(f *PeerFigures) *float64 { return &f.P99 },
		func(f *PeerFigures) *float64 { return &f.Memory },
		func(f *PeerFigures) *float64 { return &f.Wrong },
		func(f *PeerFigures) *float64 { return &f.Busy })
	for _, m := range f.measured {
		f.AllCPU = append(f.AllCPU, m.CPU)
	}
}

// compare fills in the ratios of the rows of one case: medians of the ratios within each round,
// because the rounds of a busy machine differ more than the edges. Edges that close connections are
// held against those that do so too.
func compare(rows []PeerFigures) {
	cpu := func(f PeerFigures) float64 { return f.CPU }
	ratio := func(f *PeerFigures, to string, of func(PeerFigures) float64) float64 {
		i := slices.IndexFunc(rows, func(r PeerFigures) bool { return r.Edge == to })
		if i < 0 {
			return 0
		}
		return medianOf(len(f.measured),
			func(n int) float64 { return over(of(f.measured[n]), of(rows[i].measured[n])) })
	}
	// spread is the least and the most of those ratios over the rounds.
	spread := func(f *PeerFigures, to string) (s [2]float64) {
		i := slices.IndexFunc(rows, func(r PeerFigures) bool { return r.Edge == to })
		for n := range f.measured {
			if i < 0 {
				break
			}
			by := over(f.measured[n].CPU, rows[i].measured[n].CPU)
			s = [2]float64{min(cmp.Or(s[0], by), by), max(s[1], by)}
		}
		return s
	}
	for i := range rows {
		f, nginx, haproxy := &rows[i], "nginx", "haproxy"
		if closers[f.Edge] {
			nginx, haproxy = "nginx 444", "haproxy reject"
		}
		f.ByNginx, f.ByProxy, f.ByOff = ratio(f, nginx, cpu), ratio(f, haproxy, cpu), ratio(f,
			"sluice off", cpu)
		f.ByBare = ratio(f, "fasthttp", cpu)
		f.SpreadNginx, f.SpreadProxy = spread(f, nginx), spread(f, haproxy)
		f.SpreadBare = spread(f, "fasthttp")
		f.ByBefore = ratio(f, Before, cpu)
		f.P99Nginx = ratio(f, nginx, func(f PeerFigures) float64 { return f.P99 })
	}
}

// over is a ratio; 0 if it is to nothing, as an edge at rest may take.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// WritePeers prints figures as a table, and below it what was measured.
func WritePeers(w io.Writer, figures []PeerFigures, versions []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, columns := "work\tconns\tsources\tedge\tµs/request\tof memcached\t/nginx\t/haproxy\t/off\trequests/s\tp50 ms\tp99 ms\tp99/nginx\tbusy\tMB\twrong\tµs min-max\t/nginx min-max\t/haproxy min-max\t/fasthttp\t/fasthttp min-max\t", 21
	before := slices.ContainsFunc(figures, func(f PeerFigures) bool { return f.Edge == Before })
	if before {
		head, columns = head+"/before\t", columns+1
	}
	fmt.Fprintln(t, head)
	ratio := func(r float64) string {
		if r == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", r)
	}
	for i, f := range figures {
		if i > 0 && f.PeerCase != figures[i-1].PeerCase {
			fmt.Fprintln(t, strings.Repeat("\t", columns))
		}
		fmt.Fprintf(t,
			"%s\t%d\t%d\t%s\t%.2f\t%s\t%s\t%s\t%s\t%.0f\t%.2f\t%.2f\t%s\t%.2f\t%.0f\t%.4f\t",
			f.Work, f.Conns, f.Sources, f.Edge, f.CPU*1e6,
			ratio(f.Tier*1e6), ratio(f.ByNginx), ratio(f.ByProxy), ratio(f.ByOff), f.Rate,
			f.P50*1e3, f.P99*1e3, ratio(f.P99Nginx), f.Busy, f.Memory/1e6, f.Wrong)
		least, most := 0.0, 0.0
		if len(f.AllCPU) > 0 {
			least, most = slices.Min(f.AllCPU)*1e6, slices.Max(f.AllCPU)*1e6
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t", between(least, most), between(f.SpreadNginx[0],
			f.SpreadNginx[1]), between(f.SpreadProxy[0], f.SpreadProxy[1]), ratio(f.ByBare),
			between(f.SpreadBare[0], f.SpreadBare[1]))
		if before {
			fmt.Fprintf(t, "%.3f\t", f.ByBefore)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Join(versions, ", "))
	return err
}

// between is a range, or nothing.
func between(least, most float64) string {
	if most == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f-%.2f", least, most)
}

// PeersJSON are figures for programs: seconds, bytes, shares.
type PeersJSON struct {
	Versions []string      `json:"versions"`
	Peers    []PeerFigures `json:"peers"`
}
