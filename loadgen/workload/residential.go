package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"sluice/loadgen/trace"
)

// Residential is visitors of a site and a scraper who comes from addresses of homes, of which it
// uses each once or twice. Who sends what when follows from the options alone, so that every limit
// meets the same people.
type Residential struct {
	Options  ResidentialOptions
	Clients  []Client
	Requests []Visit // in the order of At
}

// A Client is a visitor, or an address of the scraper's.
type Client struct {
	Addr    netip.Addr
	Network int32 // autonomous system, or the like
	JA4     int32 // which TLS library it is told by
	Scraper bool
	Script  bool // it runs the script of a page, and keeps the cookie that it gets
}

// A Visit is a request.
type Visit struct {
	At     time.Duration
	Client int32
	Heavy  bool // of the pages that cost the origin most
}

// TLS is which TLS library a scraper has.
type TLS string

const (
	OwnTLS    TLS = "own"    // one that no visitor has
	CommonTLS TLS = "common" // that of the browser which most visitors have
)

// ResidentialOptions shapes the workload. DefaultResidential has the values that it is known by.
type ResidentialOptions struct {
	Seed     uint64
	Duration time.Duration

	Visitors    float64       // who come in an hour
	MostVisits  int           // requests of one, of which each number from 1 on is as likely
	Gap         time.Duration // between two requests of one, on average
	Heavy       float64       // share of their requests
	Script      float64       // share of visitors with JavaScript and cookies
	Networks    int           // of visitors, the n-th as frequent as 1/n^NetworkSkew
	NetworkSkew float64
	JA4s        int // of visitors, likewise
	JA4Skew     float64

	ScraperFrom     time.Duration // until the end
	ScraperRate     float64       // requests a second, of heavy pages alone
	ScraperNetworks int           // those of visitors among them
	// Share of the scraper's addresses that are in networks of visitors, each as often as these
	Shared     float64
	ScraperTLS TLS
	Solvers    float64 // share of its addresses that run the script
}

// DefaultResidential is the workload by which challenges are judged.
func DefaultResidential() ResidentialOptions {
	return ResidentialOptions{Seed: 1, Duration: time.Hour,
		Visitors: 3000, MostVisits: 15, Gap: 40 * time.Second, Heavy: 0.15, Script: 0.97,
		Networks: 300, NetworkSkew: 1.1, JA4s: 40, JA4Skew: 1.2,
		ScraperFrom: 10 * time.Minute, ScraperRate: 20, ScraperNetworks: 1200, Shared: 0.5,
		ScraperTLS: OwnTLS}
}

// networkBits is the prefix that a network has: 16 of /24 each.
const (
	networkBits = 20
	networksMax = 1 << (networkBits - 8) // in 10.0.0.0/8
)

// Check reports what makes no sense.
func (o *ResidentialOptions) Check() error {
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case o.Duration <= 0, o.ScraperFrom < 0, o.Gap <= 0:
		return fmt.Errorf("duration %v, scraper from %v, gap %v: must be positive", o.Duration,
			o.ScraperFrom, o.Gap)
	case !(o.Visitors >= 0), !(o.ScraperRate >= 0), !(o.NetworkSkew >= 0), !(o.JA4Skew >= 0):
		return fmt.Errorf("visitors %g, scraper rate %g, skews %g and %g: must not be negative",
			o.Visitors, o.ScraperRate, o.NetworkSkew, o.JA4Skew)
	case (o.Visitors*float64(o.MostVisits)/3600+o.ScraperRate)*o.Duration.Seconds() > 5_000_000:
		return fmt.Errorf("visitors %g an hour and scraper rate %g over %v: more than 5 million requests",
			o.Visitors, o.ScraperRate, o.Duration)
	case o.MostVisits < 1, o.JA4s < 1:
		return fmt.Errorf("%d visits at most, %d JA4: want at least 1", o.MostVisits, o.JA4s)
	case o.Networks < 1, o.ScraperNetworks < o.Networks, o.ScraperNetworks > networksMax:
		return fmt.Errorf("%d networks of visitors, %d of the scraper: want at least 1, as many, and at most %d",
			o.Networks, o.ScraperNetworks, networksMax)
	case !share(o.Heavy), !share(o.Script), !share(o.Shared), !share(o.Solvers):
		return fmt.Errorf("heavy %g, script %g, shared %g, solvers %g: want 0 to 1", o.Heavy,
			o.Script, o.Shared, o.Solvers)
	case o.Shared < 1 && o.ScraperNetworks == o.Networks:
		return fmt.Errorf("%d networks of the scraper are all visitors': want more, or shared 1",
			o.ScraperNetworks)
	case o.ScraperTLS != OwnTLS && o.ScraperTLS != CommonTLS:
		return fmt.Errorf("scraper's TLS %q: want %s or %s", o.ScraperTLS, OwnTLS, CommonTLS)
	}
	return nil
}

// NewResidential makes the workload. The visitors of a seed are the same whatever the scraper does.
func NewResidential(o ResidentialOptions) (*Residential, error) {
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("workload residential: %w", err)
	}
	r := &Residential{Options: o}
	networks, ja4s := newZipf(o.Networks, o.NetworkSkew), newZipf(o.JA4s, o.JA4Skew)
	r.visit(rand.New(rand.NewPCG(o.Seed, 1)), networks, ja4s)
	r.scrape(rand.New(rand.NewPCG(o.Seed, 2)), networks)
	slices.SortStableFunc(r.Requests, func(a, b Visit) int { return cmp.Compare(a.At, b.At) })
	return r, nil
}

// visit adds the visitors. Some were there when it begins.
func (r *Residential) visit(rng *rand.Rand, networks, ja4s *zipf) {
	o := &r.Options
	if o.Visitors == 0 {
		return
	}
	before := time.Duration(o.MostVisits) * o.Gap
	for at := -before; ; {
		at += time.Duration(rng.ExpFloat64() * 3600 / o.Visitors * float64(time.Second))
		if at >= o.Duration {
			return
		}
		network := networks.pick(rng)
		who := r.add(Client{Network: network, Addr: addrIn(network, rng), JA4: ja4s.pick(rng),
			Script: rng.Float64() < o.Script})
		t := at
		for range 1 + rng.IntN(o.MostVisits) {
			v := Visit{At: t, Client: who, Heavy: rng.Float64() < o.Heavy}
			if t >= 0 && t < o.Duration {
				r.Requests = append(r.Requests, v)
			}
			t += o.Gap/20 + time.Duration(rng.ExpFloat64()*float64(o.Gap-o.Gap/20))
		}
	}
}

// scrape adds the scraper: requests at an even rate, two of every other address, the second within
// a minute of the first.
func (r *Residential) scrape(rng *rand.Rand, networks *zipf) {
	o := &r.Options
	if o.ScraperRate == 0 {
		return
	}
	ja4 := int32(0) // the most frequent one
	if o.ScraperTLS == OwnTLS {
		ja4 = int32(o.JA4s)
	}
	step := time.Duration(float64(time.Second) / o.ScraperRate)
	type again struct {
		client int32
		due    time.Duration
	}
	var twice []again // in the order of due
	for at := o.ScraperFrom; at < o.Duration; at += step {
		if len(twice) > 0 && twice[0].due <= at {
			r.Requests = append(r.Requests, Visit{At: at, Client: twice[0].client, Heavy: true})
			twice = twice[1:]
			continue
		}
		network := int32(o.Networks + rng.IntN(max(o.ScraperNetworks-o.Networks, 1)))
		if rng.Float64() < o.Shared {
			network = networks.pick(rng)
		}
		who := r.add(Client{Network: network, Addr: addrIn(network, rng), JA4: ja4, Scraper: true,
			Script: rng.Float64() < o.Solvers})
		r.Requests = append(r.Requests, Visit{At: at, Client: who, Heavy: true})
		if rng.IntN(2) == 0 {
			twice = append(twice, again{who, at + 30*time.Second})
		}
	}
}

func (r *Residential) add(c Client) int32 {
	r.Clients = append(r.Clients, c)
	return int32(len(r.Clients) - 1)
}

// addrIn is an address in a network.
func addrIn(network int32, rng *rand.Rand) netip.Addr {
	const hosts = 1 << (32 - networkBits)
	return trace.AddrPlus(netip.MustParseAddr("10.0.0.0"), uint32(network)*hosts+rng.Uint32N(hosts))
}

// zipf draws ranks from 0 on, the n-th in proportion to 1/n^skew.
type zipf struct{ upTo []float64 }

func newZipf(n int, skew float64) *zipf {
	z := &zipf{make([]float64, n)}
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+1), -skew)
		z.upTo[i] = sum
	}
	return z
}

func (z *zipf) pick(rng *rand.Rand) int32 {
	i, _ := slices.BinarySearch(z.upTo, rng.Float64()*z.upTo[len(z.upTo)-1])
	return int32(min(i, len(z.upTo)-1))
}

// residential is the workload as a trace, in which nobody asks again: sluice-loadgen residential
// has who does.
func (g *generator) residential() {
	o := DefaultResidential()
	o.Seed, o.Duration = g.o.Seed, g.o.Duration
	o.ScraperFrom, o.ScraperRate = g.o.Duration/6, g.rate(o.ScraperRate)
	r, err := NewResidential(o)
	if err != nil {
		g.full = true // the rate is what may be wrong
		return
	}
	sources := make(map[netip.Addr]int32)
	for _, v := range r.Requests {
		c := &r.Clients[v.Client]
		role := trace.Good
		if c.Scraper {
			role = trace.Abuser
		}
		s, known := sources[c.Addr]
		if !known {
			s = g.source(role, c.Addr)
			sources[c.Addr] = s
		}
		if g.role, g.path = role, ""; v.Heavy {
			g.path = "/search?q=weir"
		}
		g.send(s, v.At.Seconds())
	}
	g.role, g.path = trace.Unknown, ""
}
