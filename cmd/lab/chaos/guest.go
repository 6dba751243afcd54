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
	"strings"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/origin"
	"sluice/loadgen/scrape"
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

// visit is what guests do to an edge, so many times.
type visit func(st *stage, ctx context.Context, edge *lab.Member, times int) error

// guests are what clients can do to an edge beside the traffic, by their names.
var guests = map[string]visit{
	"half uploads": (*stage).halfUploads, "heads of 64 KB": (*stage).longHeads, "upgrades": (*stage).upgrades,
	"forged sources": (*stage).forged, "forged PROXY headers": (*stage).forgedProxy, "mapped addresses": (*stage).mapped,
	"new sources": (*stage).newSources, "sources over their limit": (*stage).overLimit,
}

// found is what came of guests or of what they did.
type found struct{ note, over string }

// guest sends guests to an edge.
func (st *stage) guest(ctx context.Context, visit visit, edge string, times int) error {
	for _, e := range st.site.EdgeProcesses {
		if e.Name == edge {
			err := visit(st, ctx, e, times)
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
