package workload

import (
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

func residential(t *testing.T, change func(*ResidentialOptions)) *Residential {
	t.Helper()
	o := DefaultResidential()
	if change != nil {
		change(&o)
	}
	r, err := NewResidential(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*want {
		t.Errorf("%s: %.4g, want %.4g", what, got, want)
	}
}

// Its visitors and its scraper are as many, and as they are said to be.
func TestResidentialIsAsItIsSaid(t *testing.T) {
	r := residential(t, func(o *ResidentialOptions) { o.Solvers = 0.2 })
	var people, with, solvers, addresses, shared float64
	for _, c := range r.Clients {
		switch {
		case !c.Scraper:
			people++
			if c.Script {
				with++
			}
			if c.Network >= 300 || c.JA4 >= 40 {
				t.Fatalf("visitor %+v", c)
			}
		default:
			addresses++
			if c.Script {
				solvers++
			}
			if c.Network < 300 {
				shared++
			}
			if c.JA4 != 40 || c.Network >= 1200 {
				t.Fatalf("scraper %+v", c)
			}
		}
		if in := netip.PrefixFrom(addrOf(c.Network), networkBits); !in.Contains(c.Addr) {
			t.Fatalf("%v is not in network %d", c.Addr, c.Network)
		}
	}
	var visits, heavy, scraped float64
	times := make(map[int32]int)
	last := time.Duration(0)
	for _, v := range r.Requests {
		if v.At < last || v.At >= time.Hour {
			t.Fatalf("a request at %v after one at %v", v.At, last)
		}
		last = v.At
		if !r.Clients[v.Client].Scraper {
			visits++
			if v.Heavy {
				heavy++
			}
			continue
		}
		if scraped++; !v.Heavy || v.At < 10*time.Minute {
			t.Fatalf("the scraper requests %+v", v)
		}
		if times[v.Client]++; times[v.Client] > 2 {
			t.Fatalf("an address of the scraper is used %d times", times[v.Client])
		}
	}
	near(t, "visits", visits, 3000*8, 0.05)
	near(t, "heavy", heavy/visits, 0.15, 0.1)
	near(t, "with script", with/people, 0.97, 0.02)
	near(t, "scraped", scraped, 50*60*20, 0.001)
	near(t, "addresses", addresses, scraped/1.5, 0.03)
	near(t, "solvers", solvers/addresses, 0.2, 0.05)
	near(t, "in visitors' networks", shared/addresses, 0.5, 0.05)
}

func addrOf(network int32) netip.Addr {
	n := uint32(network) << (32 - networkBits)
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// One seed gives the same people, whatever the scraper does.
func TestResidentialVisitorsAreTheSame(t *testing.T) {
	visitors := func(r *Residential) (list []Client) {
		for _, c := range r.Clients {
			if !c.Scraper {
				list = append(list, c)
			}
		}
		return list
	}
	a := visitors(residential(t, nil))
	b := visitors(residential(t, func(o *ResidentialOptions) {
		o.ScraperRate, o.ScraperTLS, o.Solvers = 2, CommonTLS, 0.5
	}))
	if !reflect.DeepEqual(a, b) {
		t.Error("a seed has other visitors beside another scraper")
	}
	if !reflect.DeepEqual(residential(t, nil), residential(t, nil)) {
		t.Error("one seed gives two workloads")
	}
	if other := visitors(residential(t, func(o *ResidentialOptions) { o.Seed = 2 })); reflect.DeepEqual(a, other) {
		t.Error("two seeds give the same visitors")
	}
}

func TestResidentialOptions(t *testing.T) {
	for name, change := range map[string]func(*ResidentialOptions){
		"no time":              func(o *ResidentialOptions) { o.Duration = 0 },
		"too many":             func(o *ResidentialOptions) { o.ScraperRate = 1e6 },
		"no number":            func(o *ResidentialOptions) { o.Visitors = math.NaN() },
		"a share of 2":         func(o *ResidentialOptions) { o.Solvers = 2 },
		"networks":             func(o *ResidentialOptions) { o.ScraperNetworks = 10 },
		"networks all shared":  func(o *ResidentialOptions) { o.ScraperNetworks = 300 },
		"too many networks":    func(o *ResidentialOptions) { o.ScraperNetworks = networksMax + 1 },
		"an unknown library":   func(o *ResidentialOptions) { o.ScraperTLS = "" },
		"a visitor of nothing": func(o *ResidentialOptions) { o.MostVisits = 0 },
	} {
		o := DefaultResidential()
		change(&o)
		if _, err := NewResidential(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
