package live

import (
	"os"
	"slices"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/counter"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// Lab says what a lab consists of.
type Lab struct {
	PoPs, Edges, Nodes int
	Twemproxy          bool
	Sluice             string
	FailurePolicy      string
	Flaps              []string
	Routes             []anycast.Route // what Flaps say
	Peers              bool
	Wall               bool
	WallProgram        string
}

// AddLab adds the flags of Lab.
func AddLab(flags *pflag.FlagSet) *Lab {
	f := new(Lab)
	flags.IntVar(&f.PoPs, "pops", 1,
		"points of presence; sources belong to one by their routed prefix")
	flags.IntVar(&f.Edges, "edges", 3, "edges of each")
	flags.IntVar(&f.Nodes, "memcached", 2, "memcached nodes of each; 0: every edge counts alone")
	flags.BoolVar(&f.Twemproxy, "twemproxy", false,
		"put a nutcracker between the edges and the nodes")
	flags.StringVar(&f.Sluice, "sluice", "",
		"`PATH` of the edge's executable; none: sluice beside this one")
	flags.StringVar(&f.FailurePolicy, "on-store-failure", "local",
		"of the rule: local, share, open or closed")
	flags.StringArrayVar(&f.Flaps, "flap", nil,
		`from when on a prefix reaches another PoP, such as "20s 198.51.100.0/24 1"; repeatable`)
	flags.BoolVar(&f.Peers, "peers", false,
		"PoPs tell each other whom they block, and who is near the limit (pop.peers)")
	flags.BoolVar(&f.Wall, "wall", false,
		"edges shed in the kernel (shed: kernel), by a sluice-wall, in a network made for it: Linux, as root or in a user namespace;\n"+
			"the judge knows which connections the kernel refused; --per-connection 1 makes a flood of connections")
	flags.StringVar(&f.WallProgram, "wall-program", "",
		"`PATH` of sluice-wall; none: sluice-wall beside this one")
	return f
}

// mostWalled is how many edges a sluice-wall serves.
const mostWalled = 8

// CheckWall reports what cannot be with a wall.
func (f *Lab) CheckWall(send *Send, rule mitigation.Rule, mode judge.Mode) error {
	switch {
	case !f.Wall:
		return nil
	case f.PoPs > 1:
		return cli.Usagef("--wall, --pops %d: the kernel refuses a source at all edges here, so there must be one PoP", f.PoPs)
	case f.Edges > mostWalled:
		return cli.Usagef("--wall, --edges %d: a sluice-wall serves at most %d", f.Edges,
			mostWalled)
	case send.Carrier != replay.Loopback:
		return cli.Usagef("--wall, --source %v: the kernel knows peers alone, and those are of edges in front; leave --source out", send.Carrier)
	case send.HTTP2:
		return cli.Usagef("--wall, --http2: a source's connection stays open, and the kernel refuses new ones alone; leave --http2 out")
	case mode == judge.Estimator:
		return cli.Usagef("--wall, --mode estimator: nobody is blocked then")
	case rule.Timeout == 0:
		return cli.Usagef("--wall, --mitigation-timeout 0: a source that is throttled is blocked for no time, and stays out of the kernel's set")
	}
	return nil
}

// LabSecret keys the PoPs of a lab, so that windows begin and sources are placed the same in every
// run.
const LabSecret = "a secret that everybody knows, for labs alone"

// LabSecrets are those of the PoPs of a lab.
func LabSecrets(pops int) (list []secret.Secret) {
	for i := range pops {
		list = append(list, secret.Of([]byte(LabSecret)).At(lab.PoPName(i)))
	}
	return list
}

// Complete checks what was given, and finds what was not.
func (f *Lab) Complete() error {
	switch {
	case f.PoPs < 1 || f.PoPs > 64:
		return cli.Usagef("--pops %d: want 1 to 64", f.PoPs)
	case f.Edges < 1 || f.Edges > counter.MaxEdges:
		return cli.Usagef("--edges %d: want 1 to %d", f.Edges, counter.MaxEdges)
	case f.PoPs*f.Edges > counter.MaxEdges:
		return cli.Usagef("--pops %d, --edges %d: at most %d edges in all", f.PoPs, f.Edges,
			counter.MaxEdges)
	case f.Peers && (f.PoPs < 2 || f.PoPs > 16 || f.Nodes == 0):
		return cli.Usagef("--peers: PoPs send each other their blocks: give --pops 2 to 16, and --memcached")
	case f.Nodes < 0 || f.Nodes > 64:
		return cli.Usagef("--memcached %d: want 0 to 64", f.Nodes)
	case !slices.Contains([]string{"local", "share", "open", "closed"}, f.FailurePolicy):
		return cli.Usagef("--on-store-failure %s: want local, share, open or closed", f.FailurePolicy)
	}
	var err error
	if f.Routes, err = cli.ParseFlaps(f.Flaps, f.PoPs); err != nil {
		return err
	}
	if f.Wall {
		if err := cli.Beside(&f.WallProgram, "sluice-wall"); err != nil {
			return err
		}
	}
	return cli.Beside(&f.Sluice, "sluice")
}

// Site is the site for a rule.
func (f *Lab) Site(rule mitigation.Rule, mode judge.Mode, carrier replay.Carrier) (lab.Lab, error) {
	self, err := os.Executable()
	if err != nil {
		return lab.Lab{}, err
	}
	wall := ""
	if f.Wall {
		wall = f.WallProgram
	}
	return lab.Lab{
		PoPs: f.PoPs, Edges: f.Edges, Memcached: f.Nodes, Twemproxy: f.Twemproxy,
		Sluice: f.Sluice, Origin: []string{self, "origin"}, Secret: LabSecret, Carrier: carrier,
		Rule: lab.RuleConfig{
			Limit: rule.Counter.Limit, Window: rule.Counter.Window, MitigationTimeout: rule.Timeout,
			SubWindows: rule.Counter.SubWindows, Estimate: rule.Counter.Estimate.String(),
			OnStoreFailure: f.FailurePolicy, Mode: mode,
		},
		Log: cli.Logf, Peers: f.Peers, Wall: wall,
	}, nil
}
