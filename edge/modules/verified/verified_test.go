package verified

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/message"
	"sluice/edge/rules/key"
)

// zone is a DNS.
type zone struct {
	names map[string][]string // of addresses
	addrs map[string][]string // of names
	fails error

	mu    sync.Mutex
	asked int
}

func none() error { return &net.DNSError{Err: "no such host", IsNotFound: true} }

func (z *zone) LookupAddr(_ context.Context, addr string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.asked++; z.fails != nil {
		return nil, z.fails
	}
	if z.names[addr] == nil {
		return nil, none()
	}
	return z.names[addr], nil
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) (list []netip.Addr, err error) {
	if z.addrs[host] == nil {
		return nil, none()
	}
	for _, text := range z.addrs[host] {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

const googlebot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"

func (m *module) at(t *testing.T, addr, agent string) string {
	t.Helper()
	v := &key.View{Request: new(message.Request), Client: netip.MustParseAddr(addr), At: time.Now()}
	if err := v.Request.Head.Add([]byte("User-Agent"), []byte(agent), 10); err != nil {
		t.Fatal(err)
	}
	return string(m.find(nil, v))
}

func TestRobotsAreKnownByTheirNames(t *testing.T) {
	z := &zone{
		names: map[string][]string{
			"66.249.66.1":  {"crawl-66-249-66-1.googlebot.com."},
			"198.51.100.1": {"crawl-66-249-66-1.googlebot.com."}, // whoever owns the address writes it
			"198.51.100.2": {"googlebot.com.evil.example."},
			"198.51.100.3": {"evilgooglebot.com."},
			"157.55.39.1":  {"msnbot-157-55-39-1.SEARCH.msn.com."},
			"66.249.90.77": {"rate-limited-proxy-66-249-90-77.google.com."},
			// Machines that anybody rents, programs that he writes, and pages that he has translated
			"34.1.2.3":      {"3.2.1.34.bc.googleusercontent.com."},
			"107.178.200.1": {"107-178-200-1.gae.googleusercontent.com."},
			"66.102.6.1":    {"google-proxy-66-102-6-1.google.com."},
			"66.102.6.2":    {"rate-limited-proxy-.evil.google.com."},
		},
		addrs: map[string][]string{
			"crawl-66-249-66-1.googlebot.com.":   {"66.249.66.1"},
			"googlebot.com.evil.example.":        {"198.51.100.2"},
			"evilgooglebot.com.":                 {"198.51.100.3"},
			"msnbot-157-55-39-1.search.msn.com.": {"2001:db8::1", "157.55.39.1"},

			"rate-limited-proxy-66-249-90-77.google.com.": {"66.249.90.77"},
			"3.2.1.34.bc.googleusercontent.com.":          {"34.1.2.3"},
			"107-178-200-1.gae.googleusercontent.com.":    {"107.178.200.1"},
			"google-proxy-66-102-6-1.google.com.":         {"66.102.6.1"},
			"rate-limited-proxy-.evil.google.com.":        {"66.102.6.2"},
		}}
	synctest.Test(t, func(t *testing.T) {
		m := &module{dns: z, queue: make(chan claim, waiting), of: make(map[netip.Addr]known)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.run(ctx)
		for _, c := range []struct{ name, addr, agent, want string }{
			{"a robot", "66.249.66.1", googlebot, "googlebot"},
			{"another", "157.55.39.1", "Mozilla/5.0 (compatible; BINGBOT/2.0)", "bingbot"},
			{"a name that does not have the address", "198.51.100.1", googlebot, ""},
			{"a name below another", "198.51.100.2", googlebot, ""},
			{"a name that ends alike", "198.51.100.3", googlebot, ""},
			{"no name", "198.51.100.4", googlebot, ""},
			{"a robot of another name", "66.249.90.77", "AdsBot-Google", "googlebot"},
			{"a rented machine", "34.1.2.3", googlebot, ""},
			{"a program of anybody's", "107.178.200.1", googlebot, ""},
			{"a proxy for anybody", "66.102.6.1", googlebot, ""},
			{"a name within another", "66.102.6.2", googlebot, ""},
			{"it says it is another", "66.249.66.1", "bingbot/2.0", ""},
		} {
			if got := m.at(t, c.addr, c.agent); got != "" && c.want == "" {
				t.Errorf("%s: %q at once", c.name, got)
			}
			synctest.Wait()
			if got := m.at(t, c.addr, c.agent); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		asked := z.asked
		m.at(t, "203.0.113.1", "Mozilla/5.0 Firefox/140")
		m.at(t, "66.249.66.1", googlebot)
		synctest.Wait()
		if z.asked != asked {
			t.Error("who says nothing, or is known, is looked up")
		}
		// A day later it is looked up again, and welcome meanwhile, and as long as no answer comes.
		time.Sleep(isFor + time.Second)
		z.fails = errors.New("timeout")
		if got := m.at(t, "66.249.66.1", googlebot); got != "googlebot" {
			t.Errorf("while it is looked up again: %q", got)
		}
		synctest.Wait()
		if got := m.at(t, "66.249.66.1", googlebot); got != "googlebot" {
			t.Errorf("without DNS: %q", got)
		}
		z.fails = nil
		delete(z.names, "66.249.66.1")
		time.Sleep(failsFor + time.Second)
		m.at(t, "66.249.66.1", googlebot)
		synctest.Wait()
		if got := m.at(t, "66.249.66.1", googlebot); got != "" {
			t.Errorf("its name is gone: %q", got)
		}
	})
}

// Whose DNS does not answer holds up no look-up of others: of his network one is tried now and then.
func TestSilentNameServersHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &slow{zone{names: map[string][]string{"66.249.66.1": {"crawl.googlebot.com."}},
			addrs: map[string][]string{"crawl.googlebot.com.": {"66.249.66.1"}}}}
		m := &module{dns: z, queue: make(chan claim, waiting), of: make(map[netip.Addr]known)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.run(ctx)
		for i := range 120 {
			for j := range 8 { // of a /32, which has name servers of its own
				addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(j), byte(i), 15: 1})
				m.at(t, addr.String(), googlebot)
			}
			if i == 60 {
				m.at(t, "66.249.66.1", googlebot)
			}
			time.Sleep(time.Second)
		}
		if got := m.at(t, "66.249.66.1", googlebot); got != "googlebot" {
			t.Errorf("a robot beside them: %q", got)
		}
		if z.asked > 3*atOnce+1 {
			t.Errorf("%d look-ups", z.asked)
		}
	})
}

// slow is a DNS that does not answer for addresses of IPv6.
type slow struct{ zone }

func (z *slow) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	names, err := z.zone.LookupAddr(ctx, addr)
	if strings.Contains(addr, ":") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return names, err
}

// Whoever says from many addresses that he is a robot fills no memory, and holds up no request.
func TestClaimsAreBounded(t *testing.T) {
	m := &module{queue: make(chan claim, waiting), of: make(map[netip.Addr]known)}
	addr := netip.MustParseAddr("2001:db8::")
	for range most {
		addr = addr.Next()
		m.of[addr] = known{-1, time.Now().Add(time.Hour)}
	}
	for range 2 * waiting {
		addr = addr.Next()
		m.at(t, addr.String(), googlebot)
	}
	if len(m.of) > most || len(m.queue) != waiting {
		t.Errorf("%d are known, %d wait", len(m.of), len(m.queue))
	}
	if _, err := parse("nobot"); err == nil || !strings.Contains(err.Error(), "want applebot or") {
		t.Errorf("a robot that there is not: %v", err)
	}
}
