// Package promise holds reports against what the documents promise: the numbers of
// docs/design/promises.yaml, and no others. A figure is taken of each run, or of all runs of a kind
// together (figure.go), and a promise is broken where it is above the most that the promise says.
//
// What the documents except no promise is about (Excepted): throttling, blocks shorter than the
// window, edges that share no tier, faults, clocks far apart. A live run that was disturbed is no
// measurement, so it keeps and breaks none.
package promise

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	promises "sluice/docs/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/report"
)

// Promise is one of promises.yaml, which says what the fields are.
type Promise struct {
	Name     string  `yaml:"name"`
	Figure   string  `yaml:"figure"`
	Runs     string  `yaml:"runs"`
	Mode     string  `yaml:"mode"`
	Estimate string  `yaml:"estimate"`
	Workload string  `yaml:"workload"`
	Of       string  `yaml:"of"`
	Edges    string  `yaml:"edges"`
	Most     float64 `yaml:"most"`
	Sum      bool    `yaml:"sum"`
	Some     float64 `yaml:"some"`
	Turns    float64 `yaml:"turns"`
	Page     string  `yaml:"page"`
	Says     string  `yaml:"says"`

	from, to int // edges
}

// All is every promise.
func All() ([]Promise, error) {
	var all []Promise
	if err := yaml.NewDecoder(bytes.NewReader(promises.YAML), yaml.Strict()).
		Decode(&all); err != nil {
		return nil, fmt.Errorf("docs/design/promises.yaml: %w", err)
	}
	for i := range all {
		if err := all[i].complete(); err != nil {
			return nil, fmt.Errorf("docs/design/promises.yaml: %s: %w", all[i].Name, err)
		}
	}
	return all, nil
}

func (p *Promise) complete() (err error) {
	if figures[p.Figure] == nil {
		return fmt.Errorf("figure %q: there is none of that name", p.Figure)
	}
	if p.Runs != virtual && p.Runs != live {
		return fmt.Errorf("runs %q: want virtual or live", p.Runs)
	}
	if p.Of != "" && p.Of != logs && p.Of != workloads {
		return fmt.Errorf("of %q: want logs or workloads", p.Of)
	}
	p.from, p.to = 1, 64
	if p.Edges != "" {
		from, to, _ := strings.Cut(p.Edges, "-")
		if p.from, err = strconv.Atoi(from); err != nil {
			return fmt.Errorf("edges %q: %w", p.Edges, err)
		}
		if p.to, err = strconv.Atoi(cmp.Or(to, from)); err != nil {
			return fmt.Errorf("edges %q: %w", p.Edges, err)
		}
	}
	return nil
}

// What a promise's runs are.
const (
	virtual = "virtual"
	live    = "live"

	logs      = "logs"
	workloads = "workloads"
)

// liveCommand is the Run.Command of a report on real edges whose promises are held.
const liveCommand = "lab"

// of reports whether the promise is about a run.
func (p *Promise) of(r *report.Report) bool {
	edges := max(r.Run.Edges, 1)
	return (p.Runs == live) == (r.Run.Command == liveCommand) &&
		(p.Mode == "" || p.Mode == r.Run.Mode) && (p.Estimate == "" ||
		p.Estimate == r.Run.Estimate) && edges >= p.from && edges <= p.to &&
		p.meets(r.Run.Workload) && (p.Of == "" || (p.Of == logs) == (r.Run.Trace != ""))
}

// meets reports whether the promise is about a workload: its name begins as the promise says, or
// does not begin so where the promise has ! before that.
func (p *Promise) meets(workload string) bool {
	but, not := strings.CutPrefix(p.Workload, "!")
	return strings.HasPrefix(workload, but) != not
}

// Excepted says why no promise is about a run; "": promises are.
func Excepted(r *report.Report) string {
	window := time.Duration(r.Run.Window)
	isLive := r.Run.Command == liveCommand
	switch {
	case len(r.Run.Faults) > 0:
		return "something was made to fail or to move"
	case r.Run.Mode != judge.Estimator.String() && r.Run.MitigationTimeout == 0:
		return "the rule throttles"
	case r.Run.Mode != judge.Estimator.String() && r.Run.MitigationTimeout < r.Run.Window:
		return "blocks are shorter than the window"
	case r.Run.Nodes == 0 && r.Run.Edges > 1:
		return "each edge counts alone"
	case time.Duration(r.Run.Skew)*10 > window:
		return "clocks are apart by more than a tenth of the window"
	case isLive && r.Run.Mode == judge.Estimator.String():
		return "nobody is blocked"
	case isLive && window < shortest:
		return fmt.Sprintf("the window is shorter than %v", shortest)
	case len(r.Rivals) > 0:
		return "several limiters were run"
	}
	return ""
}

// shortest is the shortest window of a live run that promises are about: in a shorter one, what a
// machine with all parts of a PoP does in turns is a large part of it.
const shortest = 2 * time.Second

// Check holds reports against all promises, and enters in each what is broken. It returns what it
// found of each that is about some of them, in the order of the file.
func Check(reports []*report.Report) ([]report.Promise, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var found []report.Promise
	for i := range all {
		p := &all[i]
		var runs []*report.Report
		for _, r := range reports {
			if p.of(r) && Excepted(r) == "" && !r.Run.Disturbed {
				runs = append(runs, r)
			}
		}
		found = append(found, p.check(runs)...)
	}
	return found, nil
}

// check takes the figure of a promise: of all runs that are alike in limit, workload and number of
// edges apart from their seeds, or of all together.
func (p *Promise) check(runs []*report.Report) (found []report.Promise) {
	if len(runs) == 0 {
		return nil
	}
	one := func(of []*report.Report, where string) report.Promise {
		most := p.Most
		if p.Turns > 0 {
			most += p.Turns * latest(of)
		}
		n, ratio := figures[p.Figure](of, most)
		out := report.Promise{Name: p.Name, Says: p.Says, Page: p.Page, Most: most, Found: ratio,
			Of: where, Broken: ratio > most*(1+1e-9) && n > p.Some}
		if out.Broken {
			for _, r := range of {
				r.Broken = append(r.Broken, out)
			}
		}
		return out
	}
	if p.Sum {
		return []report.Promise{one(runs, page.Plural(len(runs), "run"))}
	}
	for _, r := range runs {
		found = append(found, one([]*report.Report{r}, whereOf(r)))
	}
	return found
}

// whereOf names a run.
func whereOf(r *report.Report) string {
	return fmt.Sprintf("%s%s, %s, %s, limit %d, %s, seed %d", r.Run.Trace, r.Run.Workload,
		r.Run.Mode, r.Run.Estimate, r.Run.Limit,
		page.Plural(max(r.Run.Edges, 1), "edge"), r.Run.Seed)
}

// latest is the latest that the load of runs was sent.
func latest(runs []*report.Report) (most float64) {
	for _, r := range runs {
		if late := r.Figures.SendError; late != nil {
			most = max(most, late.Max)
		}
	}
	return most
}

// Write writes how many promises were kept and each that was broken, by how much.
func Write(w io.Writer, found []report.Promise) error {
	kept, broken := make(map[string]bool), make(map[string]bool)
	for _, f := range found {
		kept[f.Name] = true
		broken[f.Name] = broken[f.Name] || f.Broken
	}
	n := 0
	for _, is := range broken {
		if is {
			n++
		}
	}
	if _, err := fmt.Fprintf(w, "promises (docs/design/promises.md): %d held against, %d broken\n",
		len(kept), n); err != nil {
		return err
	}
	for _, f := range found {
		if f.Broken {
			if _, err := fmt.Fprintln(w, "  "+f.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Err names the promises that were broken, each once with its worst; nil: none was.
func Err(found []report.Promise) error {
	worst := make(map[string]report.Promise)
	var names []string
	for _, f := range found {
		if !f.Broken {
			continue
		}
		w, ok := worst[f.Name]
		if !ok {
			names = append(names, f.Name)
		}
		if !ok || f.Found > w.Found {
			worst[f.Name] = f
		}
	}
	if len(names) == 0 {
		return nil
	}
	var lines []string
	for _, name := range names {
		f := worst[name]
		lines = append(lines, f.String())
	}
	return fmt.Errorf("%s broken:\n  %s", page.Plural(len(names), "promise"),
		strings.Join(slices.Clip(lines), "\n  "))
}
