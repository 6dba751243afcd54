package cli

import (
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/virtual"
	"sluice/counter"
	"sluice/loadgen/anycast"
	"sluice/loadgen/lab"
)

// PoP says how large the PoPs are, and what happens to them.
type PoP struct {
	virtual.Size
	PerConnection     int
	FaultTexts, Flaps []string // what faults and routes were given as
	Quiet             bool     // no bar
}

// AddPoP registers its flags.
func AddPoP(flags *pflag.FlagSet) *PoP {
	f := new(PoP)
	flags.IntVar(&f.PoPs, "pops", 1,
		"points of presence; sources belong to one by their routed prefix (/24, /48)")
	flags.IntVar(&f.Edges, "edges", 1,
		"edges of each; one alone counts without a tier unless --memcached is given")
	flags.IntVar(&f.Nodes, "memcached", 0, "memcached nodes; 0: one for every two edges")
	flags.DurationVar(&f.RTT, "rtt", time.Millisecond, "`TIME` from an edge to a node and back")
	flags.IntVar(&f.PerConnection, "per-connection", 20,
		"requests of a connection, after which a source may meet another edge")
	flags.DurationVar(&f.Skew, "skew", 0, "how far the clocks of the edges are `APART` at most")
	flags.StringArrayVar(&f.FaultTexts, "fault", nil,
		`what happens when, such as "20s kill memcached/0"; kill, stop, cont and restart of memcached/N,`+"\n"+
			"kill, term and restart of edge/N, and \"20s step-clock edge/1 -5s\"; an edge killed at 0s and restarted later is one that is added; repeatable")
	flags.StringArrayVar(&f.Flaps, "flap", nil,
		`from when on a prefix reaches another PoP, such as "20s 198.51.100.0/24 1"; repeatable`)
	flags.BoolVar(&f.Peers, "peers", false,
		"PoPs send each other their blocks, and counts of sources near their limit (pop.peers), which takes 250ms")
	return f
}

// Check completes what was left open, and reads faults and routes.
func (f *PoP) Check() error {
	switch {
	case f.PoPs < 0 || f.PoPs > counter.MaxEdges:
		return Usagef("--pops %d: want 1 to %d", f.PoPs, counter.MaxEdges)
	case f.Edges < 1 || f.Edges > counter.MaxEdges:
		return Usagef("--edges %d: want 1 to %d", f.Edges, counter.MaxEdges)
	case f.Nodes < 0:
		return Usagef("--memcached %d: must not be negative", f.Nodes)
	case f.RTT < 0 || f.Skew < 0:
		return Usagef("--rtt %v, --skew %v: must not be negative", f.RTT, f.Skew)
	case f.Peers && f.PoPs < 2:
		return Usagef("--peers: PoPs send each other their blocks: give --pops 2 or more")
	case f.PerConnection < 1:
		return Usagef("--per-connection %d: want at least 1", f.PerConnection)
	}
	f.PoPs = max(f.PoPs, 1)
	if f.PoPs*f.Edges > counter.MaxEdges {
		return Usagef("--pops %d, --edges %d: at most %d edges in all", f.PoPs, f.Edges,
			counter.MaxEdges)
	}
	if f.Nodes == 0 && (f.Edges > 1 || f.PoPs > 1) {
		f.Nodes = (f.Edges + 1) / 2
	}
	var err error
	if f.Routes, err = ParseFlaps(f.Flaps, f.PoPs); err != nil {
		return err
	}
	if f.Faults, err = ParseFaults(f.FaultTexts); err != nil {
		return err
	}
	for _, fault := range f.Faults {
		if err := f.supports(fault); err != nil {
			return err
		}
	}
	return nil
}

// ParseFaults reads --fault.
func ParseFaults(texts []string) (faults []lab.Fault, err error) {
	for _, text := range texts {
		fault, err := lab.ParseFault(text)
		if err != nil {
			return nil, Usagef("--%v", err)
		}
		faults = append(faults, fault)
	}
	return faults, nil
}

// supports reports whether a fault can happen in virtual time.
func (f *PoP) supports(fault lab.Fault) error {
	there := map[string]int{"edge": f.PoPs * f.Edges, "memcached": f.PoPs * f.Nodes}
	n, known := there[fault.Kind]
	switch {
	case !known:
		return Usagef("--fault %q: in virtual time there are edges and memcached nodes", fault)
	case fault.Kind == "edge" && f.Nodes == 0:
		return Usagef("--fault %q: an only edge; give --memcached or more --edges", fault)
	case fault.Index >= n:
		return Usagef("--fault %q: there is no %s; of this kind there are %d", fault,
			fault.Target(), n)
	case fault.Kind == "edge" && (fault.Action == lab.Stop || fault.Action == lab.Cont):
		return Usagef("--fault %q: an edge in virtual time can be killed, ended (term) and restarted, and its clock stepped", fault)
	}
	return nil
}

// ParseFlaps reads changes of routes as --flap gives them.
func ParseFlaps(flaps []string, pops int) ([]anycast.Route, error) {
	var routes []anycast.Route
	for _, text := range flaps {
		r, err := anycast.ParseRoute(text)
		if err != nil {
			return nil, Usagef("--flap: %v", err)
		}
		routes = append(routes, r)
	}
	if _, err := anycast.New(pops, routes); err != nil {
		return nil, Usagef("--flap: %v", err)
	}
	return routes, nil
}

// FlapLines is how reports show them.
func FlapLines(flaps []string) (lines []string) {
	for _, f := range flaps {
		lines = append(lines, "route changes: "+f)
	}
	return lines
}
