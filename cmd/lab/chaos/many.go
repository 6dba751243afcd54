package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// What a crowd of sources may cost an edge with a table for a million: 100 bytes for each counter, and as much for the collector, beside what an edge
// takes without any.
const memoryOfMany = 400 << 20

// crowdTime is how long they come at most, and few how many must have come: a busy machine may not manage all.
const (
	crowdTime = 25 * time.Second
	few       = 50_000
	fewOver   = 20_000 // over their limit
)

// many is many clients that a trusted proxy brings to an edge, on several connections at once.
type many struct {
	edge    *lab.Member
	size    int
	each    int // requests of each, one after the other
	path    string
	client  func(i, k int) netip.Addr // of the k-th request of the i-th
	came    func(i, k, status int)    // with the answer to it; several at once, but for one client
	stopped time.Time                 // then no more come
}

// come brings them.
func (c *many) come(ctx context.Context) error {
	const ways, batch = 4, 50
	var all errgroup.Group
	for way := range ways {
		all.Go(func() error {
			conn, err := guestFrom(ctx, proxyAddr, c.edge)
			if err != nil {
				return err
			}
			defer conn.Close()
			fmt.Fprintf(conn, behindHeader, behindAddr)
			r, b := bufio.NewReader(conn), []byte(nil)
			next, end := way*c.size/ways, (way+1)*c.size/ways
			for next < end && time.Now().Before(c.stopped) {
				first := next
				next = min(first+max(1, batch/c.each), end)
				b = b[:0]
				for i := first; i < next; i++ {
					for k := range c.each {
						b = fmt.Appendf(b, "GET %s HTTP/1.1\r\nHost: demo.test\r\nX-Forwarded-For: %s\r\n\r\n", c.path, c.client(i, k))
					}
				}
				conn.SetDeadline(time.Now().Add(guestTimeout))
				if _, err := conn.Write(b); err != nil {
					return fmt.Errorf("loadgen: chaos: a guest with many sources: %w", err)
				}
				for i := first; i < next; i++ {
					for k := range c.each {
						answer, err := http.ReadResponse(r, nil)
						if err != nil {
							return fmt.Errorf("loadgen: chaos: a guest with many sources: %w", err)
						}
						io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
						c.came(i, k, answer.StatusCode)
					}
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// newSources are so many, each with one request. All must be admitted, and neither memory nor what metrics say may grow with them.
func (st *stage) newSources(ctx context.Context, edge *lab.Member, times int) error {
	before, err := metricsOf(ctx, edge)
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(strings.TrimPrefix(edge.Name, "edge/"))
	if err != nil {
		return err
	}
	first := netip.AddrFrom4([4]byte{10, byte(16 * index), 0, 0}) // apart from those at other edges
	var came, failed atomic.Int64
	c := &many{edge: edge, size: times, each: 1, path: "/", stopped: time.Now().Add(crowdTime)}
	c.client = func(i, _ int) netip.Addr { return trace.AddrPlus(first, uint32(i)) }
	c.came = func(_, _, status int) {
		came.Add(1)
		if status != http.StatusOK {
			failed.Add(1)
		}
	}
	if err := c.come(ctx); err != nil {
		return err
	}
	after, err := metricsOf(ctx, edge)
	if err != nil {
		return err
	}
	st.find(failed.Load() > 0, "new sources refused", "of %d new sources at %s refused or failed: %d of 0", came.Load(), edge.Name, failed.Load())
	if came.Load() < int64(min(times, few)) {
		st.find(true, "too few new sources", "%d were to come", times)
	}
	st.memory(edge)
	st.find(len(after) > len(before)+10, "metrics", "its metrics: %d series, before %d", len(after), len(before))
	return nil
}

func metricsOf(ctx context.Context, edge *lab.Member) (scrape.Metrics, error) {
	return scrape.MetricsOf(ctx, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, edge.Admin)
}

// memory finds how much an edge has.
func (st *stage) memory(edge *lab.Member) {
	used := process.Memory(edge.PID())
	st.find(used > memoryOfMany, "memory", "memory of %s: %d MB of %d MB", edge.Name, used>>20, memoryOfMany>>20)
}

// Under oncePath a source may come once a minute, whatever else it does.
const (
	oncePath = "/once-a-minute"
	onceRule = "{name: once, match: {path: " + oncePath + "}, limit: 1, window: 1m, mitigation_timeout: 1m}"
)

// settled is how long after the last of many blocks all other edges must have them.
const settled = 2 * time.Second

// overLimit brings up to 65,536 sources, the /64s of one /48, to an edge, each of which comes twice where it may come once: from two addresses of its
// own, as which it must be one source. All are blocked then. Every other edge must have all blocks a moment later, and each source is refused by
// another edge at its first request there; no edge has more memory than a crowd may cost.
func (st *stage) overLimit(ctx context.Context, edge *lab.Member, times int) error {
	times = min(times, 1<<16)
	status := make([][2]int, times)
	c := &many{edge: edge, size: times, each: 2, path: oncePath, stopped: time.Now().Add(crowdTime)}
	c.client = func(i, k int) netip.Addr {
		a := netip.MustParseAddr("2001:db8:1::").As16()
		binary.BigEndian.PutUint16(a[6:], uint16(i))
		binary.BigEndian.PutUint64(a[8:], uint64(i+1)*uint64(k+1)*0x9e3779b97f4a7c15)
		return netip.AddrFrom16(a)
	}
	c.came = func(i, k, s int) { status[i][k] = s }
	if err := c.come(ctx); err != nil {
		return err
	}
	over := time.Now()
	var blocked []int
	came := 0
	for i, s := range status {
		if s[0] != 0 {
			came++
		}
		if s == [2]int{http.StatusOK, http.StatusTooManyRequests} {
			blocked = append(blocked, i)
		}
	}
	st.find(came > len(blocked), "sources over their limit not blocked", "of %d sources that came twice where once is the limit, admitted once and blocked: %d", came, len(blocked))
	if came < min(times, fewOver) {
		st.find(true, "too few sources over their limit", "%d were to come", times)
	}

	others := slices.DeleteFunc(slices.Clone(st.site.EdgeProcesses), func(e *lab.Member) bool { return e == edge })
	if len(others) == 0 {
		return errors.New("loadgen: chaos: there is no other edge")
	}
	all := false
	for !all && time.Since(over) < settled {
		all = true
		for _, e := range others {
			m, err := metricsOf(ctx, e)
			if err != nil {
				return err
			}
			all = all && int(m.By("sluice_mitigations_active", "rule")["once"]) >= len(blocked)
		}
		if err := process.Pause(ctx, watchPeriod); err != nil {
			return err
		}
	}
	st.find(!all, "blocks late at other edges", "all of these blocks were in force at every edge %v after the last of them", time.Since(over).Round(time.Millisecond))

	var refused atomic.Int64
	again := &many{edge: others[0], size: len(blocked), each: 1, path: oncePath, stopped: time.Now().Add(crowdTime)}
	again.client = func(i, _ int) netip.Addr { return c.client(blocked[i], 2) }
	again.came = func(_, _, status int) {
		if status == http.StatusTooManyRequests {
			refused.Add(1)
		}
	}
	if err := again.come(ctx); err != nil {
		return err
	}
	st.find(int(refused.Load()) < len(blocked), "blocked sources admitted elsewhere", "refused at their first request to %s: %d", others[0].Name, refused.Load())
	for _, e := range st.site.EdgeProcesses {
		st.memory(e)
	}
	return nil
}
