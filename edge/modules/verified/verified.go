// Package verified knows robots by the names of their addresses, not by what they say of themselves.
//
// An address is a robot's if the name that DNS has for it (PTR) is below one that the robot's owner
// publishes, and if that name has the address in turn: forward-confirmed reverse DNS. The owner of an
// address writes the first, and the owner of the name alone the second.
//
// No request waits for DNS. The first one of an address that says it is a robot has it looked up,
// and is not welcome until that is known; an address that says nothing is never looked up.
//
// Signatures of requests (Web Bot Auth, RFC 9421) are not verified: a directory of a robot's keys has
// to be fetched from wherever a request says, and no library that is kept up does that.
package verified

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/metric"
	"sluice/edge/rules/key"
)

// A robot is one that its owner tells how to verify so.
type robot struct {
	name string
	says string // in User-Agent, in small letters
	from []pattern
}

// A pattern is what the names of a robot's addresses begin and end with.
type pattern struct{ begin, end string }

func (p pattern) is(host string) bool {
	rest, is := strings.CutPrefix(host, p.begin)
	rest, ends := strings.CutSuffix(rest, p.end)
	// With a beginning it is one label
	return is && ends && (p.begin == "" || !strings.Contains(rest, "."))
}

// below are the patterns of all names below some.
func below(ends ...string) (list []pattern) {
	for _, end := range ends {
		list = append(list, pattern{end: "." + end + "."})
	}
	return list
}

// Of Google's names those that anybody's requests come from are left out: rented machines
// (googleusercontent.com), and proxies that fetch what a user names (google-proxy-….google.com).
var robots = []robot{
	{"applebot", "applebot", below("applebot.apple.com")},
	{"baiduspider", "baiduspider", below("baidu.com", "baidu.jp")},
	{"bingbot", "bingbot", below("search.msn.com")},
	{"googlebot", "google", append(below("googlebot.com"),
		pattern{"rate-limited-proxy-", ".google.com."})},
	{"petalbot", "petalbot", below("petalsearch.com")},
	{"seznambot", "seznambot", below("seznam.cz")},
	{"yandexbot", "yandex", below("yandex.ru", "yandex.net", "yandex.com")},
}

const name = "verified"

const (
	most     = 16 << 10 // addresses that are remembered; beyond, others are forgotten
	waiting  = 256      // that wait to be looked up; beyond, a later request has them looked up
	atOnce   = 4        // look-ups
	longest  = 5 * time.Second
	isFor    = 24 * time.Hour
	isNotFor = time.Hour
	failsFor = time.Minute
	mostFail = 1 << 10 // networks whose DNS does not answer; beyond, others are forgotten
)

// A Resolver is what of net.Resolver is asked.
type Resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// known is what is known of an address.
type known struct {
	robot int // of robots; less than 0: none of them
	until time.Time
}

// claim is an address that says it is a robot.
type claim struct {
	addr  netip.Addr
	robot int
}

type module struct {
	dns   Resolver
	queue chan claim

	mu sync.Mutex
	of map[netip.Addr]known // with the zero until: it waits to be looked up
	// Networks whose DNS did not answer, and until when nobody else of them is looked up: whoever
	// owns one has name servers of his own, and could have them hold up all look-ups
	failing map[netip.Prefix]time.Time
	results [3]uint64 // look-ups: is one, is none, failed
}

// Module makes verified a condition. dns is asked; nil: the machine's resolver.
func Module(dns Resolver) edge.Module {
	if dns == nil {
		dns = net.DefaultResolver
	}
	m := &module{dns: dns, queue: make(chan claim, waiting), of: make(map[netip.Addr]known)}
	facts := func(find func([]byte, *key.View) []byte) []*key.Fact {
		return []*key.Fact{{Name: name, Match: name, Parse: parse, Find: find}}
	}
	return edge.Module{Name: name, Config: config.Module{Facts: facts(nil)}, Run: m.run,
		Collect: m.collect, Prepare: func(*edge.Setup) (edge.Points, error) {
			return edge.Points{Facts: facts(m.find)}, nil
		}}
}

func parse(text string) (string, error) {
	if !slices.ContainsFunc(robots, func(r robot) bool { return r.name == text }) {
		var names []string
		for _, r := range robots {
			names = append(names, r.name)
		}
		return "", fmt.Errorf("%q is no robot that can be verified: want %s", text,
			strings.Join(names, " or "))
	}
	return text, nil
}

// find appends the robot that sends a request, if that is known.
func (m *module) find(buf []byte, v *key.View) []byte {
	says := v.Request.Head.First("user-agent")
	claimed := slices.IndexFunc(robots, func(r robot) bool { return containsFold(says, r.says) })
	if claimed < 0 || !v.Client.IsValid() {
		return buf
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, is := m.of[v.Client]
	switch {
	case is && (k.until.IsZero() || v.At.Before(k.until)):
	case len(m.of) >= most && !m.makeRoom(v.At):
		return buf
	default:
		select {
		case m.queue <- claim{v.Client, claimed}:
			if !is || k.robot < 0 { // a robot is one until it is looked up again
				k.robot = -1
			}
			k.until = time.Time{}
			m.of[v.Client] = k
		default:
		}
	}
	if k, is = m.of[v.Client]; is && k.robot == claimed {
		buf = append(buf, robots[claimed].name...)
	}
	return buf
}

// makeRoom forgets one that does not wait, of a few, and reports whether there is room.
func (m *module) makeRoom(now time.Time) bool {
	looked := 0
	for addr, k := range m.of {
		if looked++; looked > 16 {
			return false
		}
		if !k.until.IsZero() && (k.robot < 0 || !now.Before(k.until)) {
			delete(m.of, addr)
			return true
		}
	}
	return true
}

// containsFold reports whether text has a word in it, in whatever case; the word has small letters.
func containsFold(text []byte, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i]|0x20 == word[0] && bytes.EqualFold(text[i:i+len(word)], []byte(word)) {
			return true
		}
	}
	return false
}

// run looks up who says that it is a robot.
func (m *module) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for range atOnce {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case c := <-m.queue:
					m.lookUp(ctx, c)
				}
			}
		})
	}
}

// networkOf is about as much as has name servers of its own.
func networkOf(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr.Is4() {
		bits = 24
	}
	p, _ := addr.Prefix(bits)
	return p
}

// fails reports whether the DNS of an address has not answered a moment ago.
func (m *module) fails(addr netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, is := m.failing[networkOf(addr)]
	if !is || time.Now().Before(until) {
		return is
	}
	delete(m.failing, networkOf(addr))
	return false
}

// noteFailing notes that the DNS of an address has not answered. It is called with the lock.
func (m *module) noteFailing(addr netip.Addr, until time.Time) {
	if m.failing == nil {
		m.failing = make(map[netip.Prefix]time.Time)
	}
	if len(m.failing) >= mostFail {
		for p := range m.failing { // whichever comes first
			delete(m.failing, p)
			break
		}
	}
	m.failing[networkOf(addr)] = until
}

var errFailing = errors.New("the DNS of the network does not answer")

// lookUp finds out whether an address is a robot's.
func (m *module) lookUp(ctx context.Context, c claim) {
	asked, done := context.WithTimeout(ctx, longest)
	defer done()
	is, err := false, errFailing
	if !m.fails(c.addr) {
		is, err = m.confirms(asked, c)
	}
	k, result, lasts := known{robot: -1}, 1, isNotFor
	switch {
	case err != nil:
		result, lasts = 2, failsFor
	case is:
		k.robot, result, lasts = c.robot, 0, isFor
	}
	k.until = time.Now().Add(lasts)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		k.robot = m.of[c.addr].robot // what was known holds while DNS does not answer
		if err != errFailing {
			m.noteFailing(c.addr, k.until)
		}
	}
	m.of[c.addr] = k
	m.results[result]++
}

// confirms reports whether DNS has a name of the robot's for the address, and the address for that.
func (m *module) confirms(ctx context.Context, c claim) (bool, error) {
	names, err := m.dns.LookupAddr(ctx, c.addr.String())
	if err != nil {
		return false, unlessNone(err)
	}
	tried := 0
	for _, host := range names {
		host = strings.ToLower(strings.TrimSuffix(host, ".")) + "."
		if !slices.ContainsFunc(robots[c.robot].from,
			func(p pattern) bool { return p.is(host) }) {
			continue
		}
		if tried++; tried > 4 { // whoever owns the address may write as many as he likes
			break
		}
		addrs, err := m.dns.LookupNetIP(ctx, "ip", host)
		if err != nil && unlessNone(err) != nil {
			return false, err
		}
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap() == c.addr }) {
			return true, nil
		}
	}
	return false, nil
}

// unlessNone is the error, unless it says that there is no such name.
func unlessNone(err error) error {
	var of *net.DNSError
	if errors.As(err, &of) && of.IsNotFound {
		return nil
	}
	return err
}

func (m *module) collect(to metric.Sink) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, result := range [...]string{"robot", "none", "failed"} {
		to.Count(m.results[i], "sluice_verified_lookups_total",
			"Addresses of clients that said they were a robot (match: verified), by what DNS said: it is one, it is none, or no answer.",
			"result", result)
	}
}
