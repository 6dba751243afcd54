package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/loadgen/process"
)

// calmSources are addresses that nobody limits, calmSource is that of a client, and attackSource
// the first of those that attack.
var calmSources = netip.MustParsePrefix("127.0.0.0/24")
var calmSource, attackSource = netip.AddrFrom4([4]byte{127, 0, 0, 2}), netip.AddrFrom4([4]byte{127,
	0, 1, 1})

const (
	// attackTick is how often an attacker writes, and redialAfter how long it waits before it comes
	// back after its connection was ended.
	attackTick, redialAfter = 2 * time.Millisecond, 20 * time.Millisecond
	// calmPeriod is how often the calm client asks.
	calmPeriod = 2 * time.Millisecond
)

// attackTLS is what all clients here speak.
func attackTLS() *tls.Config {
	config := clientTLS(PeerCase{})
	config.NextProtos = []string{"h2"}
	return config
}

// An attackRun is an attack under way.
type attackRun struct {
	attack
	to     netip.AddrPort
	sent   atomic.Int64 // units
	opened atomic.Int64 // connections,
	ended  atomic.Int64 // and those that the server has ended
	failed atomic.Value // why one could not be opened
}

// run attacks until the time is up, and has ended every connection when it returns.
func (r *attackRun) run(ctx context.Context, length time.Duration) {
	ctx, stop := context.WithTimeout(ctx, length)
	defer stop()
	var all sync.WaitGroup
	for i := range r.conns {
		from := attackSource
		if r.spread {
			for range i {
				from = from.Next()
			}
		}
		all.Go(func() {
			for ctx.Err() == nil {
				r.connection(ctx, from)
				_ = process.Pause(ctx, redialAfter)
			}
		})
	}
	all.Wait()
}

// connection attacks on one connection until it or the time has ended.
func (r *attackRun) connection(ctx context.Context, from netip.Addr) {
	conn, err := dialH2(ctx, from, r.to)
	if err != nil {
		r.failed.Store(err.Error())
		return
	}
	r.opened.Add(1)
	defer conn.Close()
	until, _ := ctx.Deadline()
	_ = conn.SetDeadline(until)
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.unread {
		_ = conn.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	} else {
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			if ctx.Err() == nil {
				r.ended.Add(1)
			}
			cancel()
		}()
	}
	path := cmp.Or(r.path, "/")
	if r.path == "" && r.each > 0 {
		path = longAnswer
	}
	a := newAttacker(path, r.initial)
	rate := float64(r.rate) / float64(r.conns)
	begin := time.Now()
	for over.Err() == nil {
		due := int(rate * time.Since(begin).Seconds())
		if r.each > 0 {
			due = min(due, r.each)
		}
		// What could not be sent while the server did not read is not made up for.
		if behind := due - a.said - max(int(rate/20), 1); behind > 0 {
			begin = begin.Add(time.Duration(float64(behind) / rate * float64(time.Second)))
			due -= behind
		}
		n := max(due-a.said, 0)
		for range n {
			r.unit(a)
			a.said++
		}
		if a.out.Len() > 0 {
			if _, err := conn.Write(a.out.Bytes()); err != nil {
				return
			}
			r.sent.Add(int64(n))
			a.out.Reset()
		}
		_ = process.Pause(over, attackTick)
	}
}

// dialH2 makes a connection that speaks HTTP/2.
func dialH2(ctx context.Context, from netip.Addr, to netip.AddrPort) (*tls.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second,
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}, Config: attackTLS()}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	if c := conn.(*tls.Conn); c.ConnectionState().NegotiatedProtocol == "h2" {
		return c, nil
	}
	conn.Close()
	return nil, fmt.Errorf("loadgen: %v does not speak HTTP/2", to)
}

// A calmClient asks for a page now and then, over HTTP/2, whether or not the one before was slow,
// and measures from when it was due.
type calmClient struct {
	client *http.Client
	fresh  *http.Client // makes a connection for each request; nil: none does
	to     netip.AddrPort
}

// freshEvery is how many requests of a calm client have a connection of their own: one of so many.
const freshEvery = 25

func newCalmClient(to netip.AddrPort, patience time.Duration) *calmClient {
	return &calmClient{to: to, client: newH2Client(patience, false)}
}

func newH2Client(patience time.Duration, fresh bool) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second,
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(calmSource, 0))}
	return &http.Client{Timeout: patience,
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: attackTLS(),
			ForceAttemptHTTP2: true, DisableKeepAlives: fresh}}
}

// calmFigures is what a calm client met.
type calmFigures struct {
	P99    time.Duration
	Asked  int
	Failed int
	Why    map[string]int // failures, by their reason
}

// numbers are what differs from one connection or stream to the next in the same reason.
var numbers = regexp.MustCompile(`(stream ID |LastStreamID=)\d+`)

// fail counts a failure under the reason beneath whatever names the connection.
func (f *calmFigures) fail(err error) {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	if f.Why == nil {
		f.Why = make(map[string]int)
	}
	f.Failed++
	f.Why[numbers.ReplaceAllString(err.Error(), "${1}N")]++
}

// commonest is the reason that most failures have, and how many.
func (f *calmFigures) commonest() string {
	most := ""
	for _, why := range slices.Sorted(maps.Keys(f.Why)) {
		if f.Why[why] > f.Why[most] {
			most = why
		}
	}
	return fmt.Sprintf("%d of them: %s", f.Why[most], most)
}

// ask asks for so long.
func (c *calmClient) ask(ctx context.Context, length time.Duration) (f calmFigures) {
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	begin := time.Now()
	for due := begin; due.Sub(begin) < length &&
		process.Pause(ctx, time.Until(due)) == nil; due = due.Add(calmPeriod) {
		client := c.client
		if f.Asked++; c.fresh != nil && f.Asked%freshEvery == 0 {
			client = c.fresh
		}
		all.Go(func() {
			err := c.once(client)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				took = append(took, time.Since(due))
			} else {
				f.fail(err)
			}
		})
	}
	all.Wait()
	if len(took) > 0 {
		slices.Sort(took)
		f.P99 = took[min(len(took)*99/100, len(took)-1)]
	}
	return f
}

func (c *calmClient) once(client *http.Client) error {
	answer, err := client.Get("https://" + c.to.String() + "/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		return fmt.Errorf("answered %d over %s", answer.StatusCode, answer.Proto)
	}
	return nil
}
