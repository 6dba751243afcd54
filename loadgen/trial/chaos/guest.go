package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/loadgen/lab"
	"sluice/loadgen/origin"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// guestAddr is where guests come from: clients that do what no client of a trace does. Replays leave its /16 out.
var guestAddr = netip.AddrFrom4([4]byte{127, 255, 0, 1})

// proxyAddr is a guest whom edges trust to name its clients in PROXY headers, and behindAddr one of its clients, whom they trust to name its own.
var (
	proxyAddr  = guestAddr.Next()
	behindAddr = proxyAddr.Next()
)

// guestTimeout is how long a guest waits for an answer.
const guestTimeout = 10 * time.Second

// guests are what clients can do to an edge beside the traffic, by their verbs: what each sends, and what came of it.
var guests = map[string]func(st *stage, ctx context.Context, edge *lab.Member, times int) error{
	"half uploads": (*stage).halfUploads, "heads of 64 KB": (*stage).longHeads, "forged sources": (*stage).forged, "upgrades": (*stage).upgrades,
	"forged PROXY headers": (*stage).forgedProxy, "mapped addresses": (*stage).mapped, "new sources": (*stage).newSources,
}

// found is what came of guests or of what they did.
type found struct{ note, over string }

// guest sends something to an edge so many times.
func (st *stage) guest(ctx context.Context, what, edge string, times int) error {
	for _, e := range st.site.EdgeProcesses {
		if e.Name == edge {
			err := guests[what](st, ctx, e, times)
			if err == nil {
				st.mu.Lock()
				st.done++
				st.mu.Unlock()
			}
			return err
		}
	}
	return errors.New("loadgen: chaos: there is no " + edge)
}

// find records what came of guests. What is above is named over, if it is.
func (st *stage) find(above bool, over, format string, args ...any) {
	f := found{note: fmt.Sprintf(format, args...)}
	if above {
		f.over = over
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.found = append(st.found, f)
}

// guestTo connects to an edge from the address of guests.
func guestTo(ctx context.Context, edge *lab.Member) (net.Conn, error) {
	return guestFrom(ctx, guestAddr, edge)
}

func guestFrom(ctx context.Context, from netip.Addr, edge *lab.Member) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: guestTimeout}
	c, err := d.DialContext(ctx, "tcp", edge.Addr.String())
	if err != nil {
		return nil, fmt.Errorf("loadgen: chaos: a guest: %w", err)
	}
	return c, c.SetDeadline(time.Now().Add(guestTimeout))
}

// halfUploads vanishes in the middle of bodies, of a length and in chunks, by turns with a reset and in silence. The origin must see none of them whole.
func (st *stage) halfUploads(ctx context.Context, edge *lab.Member, times int) error {
	before, err := st.reached(ctx)
	if err != nil {
		return err
	}
	part := bytes.Repeat([]byte("x"), 64<<10)
	for i := range times {
		c, err := guestTo(ctx, edge)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: demo.test\r\nContent-Length: %d\r\n\r\n%s", 2*len(part), part)
		} else {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: demo.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(part), part)
		}
		if i%4 < 2 {
			reset(c)
		} else {
			c.Close()
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.later = append(st.later, func(ctx context.Context) error { // at rest: a request that is under way has no right to end well
		after, err := st.reached(ctx)
		if err == nil {
			whole := after.BySource[guestAddr.String()] - before.BySource[guestAddr.String()]
			st.find(whole > 0, "uploads shown whole", "half uploads that reached the origin as whole: %d of %d", whole, times)
		}
		return err
	})
	return nil
}

// longHeads sends heads beyond what edges take. Each must be refused with the end of the connection: with 431, or with 429 once their source is blocked,
// since they count.
func (st *stage) longHeads(ctx context.Context, edge *lab.Member, times int) error {
	head := "GET / HTTP/1.1\r\nHost: demo.test\r\nX-Long: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
	refused := make(map[int]int)
	for range times {
		c, err := guestTo(ctx, edge)
		if err != nil {
			return err
		}
		go io.WriteString(c, head) // an edge may answer before it has read all
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && answer.Close {
			refused[answer.StatusCode]++
		}
		c.Close()
	}
	long, blocked := refused[http.StatusRequestHeaderFieldsTooLarge], refused[http.StatusTooManyRequests]
	st.find(long == 0 || long+blocked < times, "long heads not refused", "of %d long heads refused with 431: %d, with 429: %d", times, long, blocked)
	return nil
}

// forged names another source in each request, in every header that proxies write. All must count as of one source, and none may reach the origin
// under a forged address.
func (st *stage) forged(ctx context.Context, edge *lab.Member, times int) error {
	c, err := guestTo(ctx, edge)
	if err != nil {
		return err
	}
	defer c.Close()
	began, admitted, r := time.Now(), 0, bufio.NewReader(c)
	for i := range times {
		forged := fmt.Sprintf("203.0.113.%d", i%256)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: demo.test\r\nX-Forwarded-For: %s\r\nX-Real-IP: %s\r\nForwarded: for=%s\r\nTrue-Client-IP: %s\r\n\r\n", forged, forged, forged, forged)
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return fmt.Errorf("loadgen: chaos: a guest with a forged source: %w", err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			admitted++
		}
	}
	due := int(st.limit) * int(1+time.Since(began)/st.window)
	st.find(admitted > due, "forged sources admitted", "admitted of %d requests with forged sources: %d of %d", times, admitted, due)
	return st.underForged(ctx)
}

// underForged finds how much came to the origin under a forged address.
func (st *stage) underForged(ctx context.Context) error {
	stats, err := st.reached(ctx)
	if err != nil {
		return err
	}
	under := 0
	for source, n := range stats.BySource {
		if strings.HasPrefix(source, "203.0.113.") {
			under += n
		}
	}
	st.find(under > 0, "forged sources at the origin", "under a forged address at the origin: %d of 0", under)
	return nil
}

// forgedProxy begins connections with PROXY headers, which nobody believes who is not trusted. Each must be refused: with 400, or with 429 once the
// source that it has is blocked, since they count.
func (st *stage) forgedProxy(ctx context.Context, edge *lab.Member, times int) error {
	refused := make(map[int]int)
	for i := range times {
		header := fmt.Sprintf("PROXY TCP4 203.0.113.%d 192.0.2.1 4000 80\r\n", i%256)
		if i%2 > 0 {
			header = string(append([]byte(proxyV2+"\x11\x00\x0c"), 203, 0, 113, byte(i), 192, 0, 2, 1, 15, 160, 0, 80))
		}
		status, err := once(ctx, guestAddr, edge, header, "")
		if err != nil {
			return err
		}
		refused[status]++
	}
	bad, blocked := refused[http.StatusBadRequest], refused[http.StatusTooManyRequests]
	st.find(bad == 0 || bad+blocked < times, "forged PROXY headers not refused", "of %d forged PROXY headers refused with 400: %d, with 429: %d", times, bad, blocked)
	return st.underForged(ctx)
}

const (
	proxyV2      = "\r\n\r\n\x00\r\nQUIT\n\x21"
	behindHeader = "PROXY TCP4 %s 192.0.2.1 4000 80\r\n"
)

// mapped has a trusted proxy name one client in all the ways in which an IPv4 address can be written. It must count as one source.
func (st *stage) mapped(ctx context.Context, edge *lab.Member, times int) error {
	client := netip.MustParseAddr("198.51.100.7")
	in6 := client.As16()
	behind := fmt.Sprintf(behindHeader, behindAddr)
	spellings := []struct{ header, more string }{
		{"PROXY TCP4 198.51.100.7 192.0.2.1 4000 80\r\n", ""},
		{"PROXY TCP6 ::ffff:198.51.100.7 2001:db8::1 4000 80\r\n", ""},
		{"PROXY TCP6 ::ffff:c633:6407 2001:db8::1 4000 80\r\n", ""},
		{proxyV2 + "\x11\x00\x0c" + string(client.AsSlice()) + "\xc0\x00\x02\x01\x0f\xa0\x00\x50", ""},
		{proxyV2 + "\x21\x00\x24" + string(in6[:]) + string(in6[:]) + "\x0f\xa0\x00\x50", ""},
		{behind, "X-Forwarded-For: 198.51.100.7\r\n"},
		{behind, "X-Forwarded-For: ::ffff:198.51.100.7\r\n"},
		{behind, "X-Forwarded-For: ::FFFF:C633:6407\r\n"},
	}
	began, seen := time.Now(), make(map[int]int)
	for i := range times {
		s := spellings[i%len(spellings)]
		status, err := once(ctx, proxyAddr, edge, s.header, s.more)
		if err != nil {
			return err
		}
		seen[status]++
	}
	admitted, due := seen[http.StatusOK], int(st.limit)*int(1+time.Since(began)/st.window)
	st.find(admitted > due, "mapped addresses admitted", "admitted of %d requests of one client, in %d spellings: %d of %d", times, len(spellings), admitted, due)
	st.find(admitted+seen[http.StatusTooManyRequests] < times, "mapped addresses misread", "of these answered with anything but 200 and 429: %d of 0", times-admitted-seen[http.StatusTooManyRequests])
	stats, err := st.reached(ctx)
	if err == nil {
		under := stats.BySource[client.String()]
		st.find(under != admitted, "mapped addresses at the origin", "at the origin under that address: %d of %d", under, admitted)
	}
	return err
}

// once asks an edge once, on a connection of its own that begins with a header, and returns the status; 0: there was no answer.
func once(ctx context.Context, from netip.Addr, edge *lab.Member, header, more string) (status int, err error) {
	c, err := guestFrom(ctx, from, edge)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	io.WriteString(c, header+"GET / HTTP/1.1\r\nHost: demo.test\r\n"+more+"Connection: close\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, nil
	}
	return answer.StatusCode, nil
}

// What a crowd of sources may cost an edge with a table for a million: 100 bytes for each counter, and as much for the collector, beside what an edge
// takes without any.
const memoryOfMany = 400 << 20

// crowdTime is how long new sources come at most, and fewSources how many there must be: a busy machine may not manage all.
const (
	crowdTime  = 25 * time.Second
	fewSources = 50_000
)

// newSources has a trusted proxy bring so many clients, each with one request. All must be admitted, and neither memory nor what metrics say may grow
// with them.
func (st *stage) newSources(ctx context.Context, edge *lab.Member, times int) error {
	const ways, batch = 4, 50
	series := func() (int, error) {
		m, err := scrape.MetricsOf(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, edge.Admin)
		return len(m), err
	}
	before, err := series()
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(strings.TrimPrefix(edge.Name, "edge/"))
	if err != nil {
		return err
	}
	first := netip.AddrFrom4([4]byte{10, byte(16 * index), 0, 0}) // apart from those at other edges
	var came, failed atomic.Int64
	var all errgroup.Group
	began := time.Now()
	for way := range ways {
		all.Go(func() error {
			c, err := guestFrom(ctx, proxyAddr, edge)
			if err != nil {
				return err
			}
			defer c.Close()
			fmt.Fprintf(c, behindHeader, behindAddr)
			r, b := bufio.NewReader(c), []byte(nil)
			for i := way * times / ways; i < (way+1)*times/ways && time.Since(began) < crowdTime; {
				n := min(batch, (way+1)*times/ways-i)
				b = b[:0]
				for range n {
					b = fmt.Appendf(b, "GET / HTTP/1.1\r\nHost: demo.test\r\nX-Forwarded-For: %s\r\n\r\n", trace.AddrPlus(first, uint32(i)))
					i++
				}
				c.SetDeadline(time.Now().Add(guestTimeout))
				if _, err := c.Write(b); err != nil {
					return fmt.Errorf("loadgen: chaos: a guest with many sources: %w", err)
				}
				for range n {
					answer, err := http.ReadResponse(r, nil)
					if err != nil {
						return fmt.Errorf("loadgen: chaos: a guest with many sources: %w", err)
					}
					io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					came.Add(1)
					if answer.StatusCode != http.StatusOK {
						failed.Add(1)
					}
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	after, err := series()
	if err != nil {
		return err
	}
	used := process.Memory(edge.PID())
	st.find(failed.Load() > 0, "new sources refused", "of %d new sources at %s refused or failed: %d of 0", came.Load(), edge.Name, failed.Load())
	if came.Load() < int64(min(times, fewSources)) {
		st.find(true, "too few new sources", "%d were to come", times)
	}
	st.find(used > memoryOfMany, "memory", "its memory: %d MB of %d MB", used>>20, memoryOfMany>>20)
	st.find(after > before+10, "metrics", "its metrics: %d series, before %d", after, before)
	return nil
}

// upgrades asks for another protocol, which nobody offers. The answer must be of HTTP/1.1, and the next request must find the connection as it was.
func (st *stage) upgrades(ctx context.Context, edge *lab.Member, times int) error {
	sound := 0
	for range times {
		c, err := guestTo(ctx, edge)
		if err != nil {
			return err
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: demo.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nHost: demo.test\r\nConnection: close\r\n\r\n")
		r, answers := bufio.NewReader(c), 0
		for range 2 {
			answer, err := http.ReadResponse(r, nil)
			if err != nil || answer.StatusCode == http.StatusSwitchingProtocols {
				break
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			answers++
		}
		c.Close()
		if answers == 2 {
			sound++
		}
	}
	st.find(sound < times, "upgrades", "upgrades asked for that left the connection sound: %d of %d", sound, times)
	return nil
}

// reached is what reached the origin so far.
func (st *stage) reached(ctx context.Context) (origin.Stats, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: guestTimeout}
	var stats origin.Stats
	if err := scrape.Get(ctx, client, st.site.Before, origin.StatsPath, scrape.JSON(&stats)); err != nil {
		return stats, fmt.Errorf("loadgen: chaos: read the origin's counts: %w", err)
	}
	return stats, nil
}

// crowd takes so many connections of a node, none of which says anything.
func (st *stage) crowd(ctx context.Context, name string, connections int) error {
	for _, n := range st.site.NodeProcesses {
		if n.Name != name {
			continue
		}
		for range connections {
			c, err := dial(ctx, n.Addr)
			if err != nil {
				return err
			}
			st.mu.Lock()
			st.crowds = append(st.crowds, c)
			st.mu.Unlock()
		}
		return nil
	}
	return errors.New("loadgen: chaos: there is no " + name)
}

// disperse gives back all connections that were taken.
func (st *stage) disperse() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range st.crowds {
		c.Close()
	}
	st.crowds = nil
}
