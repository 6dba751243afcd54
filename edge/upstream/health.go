package upstream

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"sluice/edge/beat"
	"sluice/edge/http1"
	"sluice/edge/socket"
)

const (
	// ejectAfter failures in a row take a server out of its group for ejectTime. Then it is tried
	// again, and one failure is enough to take it out again; one success forgets them all.
	ejectAfter = 3
	ejectTime  = 10 * time.Second
	// probeFailures checks in a row take a server out until one succeeds.
	probeFailures = 2
	probeTimeout  = 2 * time.Second
	// resolveEvery is how often names of servers are looked up again.
	resolveEvery   = 30 * time.Second
	resolveTimeout = 5 * time.Second
	// maxAddresses of a name are tried for one connection.
	maxAddresses = 3
	// checkLook is how often it is looked whether a check is due, where any are configured.
	checkLook = 100 * time.Millisecond
	// refreshEvery is how often files for TLS to origins are read again.
	refreshEvery = 5 * time.Second
)

// Failing notes that a server did not answer as it should, and succeeded that it did.
func (o *Origin) Failing(now time.Time) {
	if o.Failures.Add(1) >= ejectAfter {
		o.ejected.Store(now.Add(ejectTime).UnixNano())
	}
}

func (o *Origin) Succeeded() {
	if o.Failures.Load() != 0 {
		o.Failures.Store(0)
		o.ejected.Store(0)
	}
}

// Healthy reports whether requests should go to a server while there are others.
func (o *Origin) Healthy(now time.Time) bool {
	return !o.Down.Load() && (o.ejected.Load() == 0 || now.UnixNano() >= o.ejected.Load())
}

// A probe is how a server is checked.
type probe struct {
	path  string
	every time.Duration
}

// check requests a path of a server. A status of 200 to 399 within the time is health; moved is
// called when that changes, with the reason.
func (o *Origin) check(ctx context.Context, path string, moved func(o *Origin, why string)) {
	status, err := o.sendProbe(ctx, path)
	switch {
	case ctx.Err() != nil:
	case err == nil && status >= 200 && status < 400:
		o.probesFailed = 0
		if o.Down.Swap(false) {
			moved(o, "")
		}
	default:
		if o.probesFailed++; o.probesFailed >= probeFailures && !o.Down.Swap(true) {
			why := fmt.Sprintf("status %d", status)
			if err != nil {
				why = err.Error()
			}
			moved(o, why)
		}
	}
}

func (o *Origin) sendProbe(ctx context.Context, path string) (int, error) {
	l, err := o.dial(probeTimeout)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(socket.LongAgo) })
	defer stop()
	if err := l.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return 0, err
	}
	defer l.Rest()
	if _, err := l.Ask([]byte("GET " + path + " HTTP/1.1\r\nHost: " + o.Host +
		"\r\nUser-Agent: sluice\r\nConnection: close\r\n\r\n")); err != nil {
		return 0, err
	}
	var head http1.Answer
	for range http1.MaxInterim {
		raw, _, err := head.Read(l.Reader)
		if err != nil || head.Status >= 200 {
			return head.Status, err
		}
		_, _ = l.Reader.Discard(len(raw))
	}
	return 0, http1.ErrInterim
}

// resolve looks a server's name up. What was known stays if that fails.
func (o *Origin) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", o.lookup)
	if err != nil || len(list) == 0 {
		return
	}
	o.learn(list)
}

func (o *Origin) learn(list []netip.Addr) {
	addrs := make([]string, len(list))
	for i, a := range list {
		addrs[i] = net.JoinHostPort(a.Unmap().String(), o.port)
	}
	o.addrs.Store(&addrs)
}

// connect dials the server by one of its addresses, the next if that one does not answer in its
// share of the time. Before they are known the name itself is dialled.
func (o *Origin) connect(deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	if o.socket != "" {
		return dialer.Dial("unix", o.socket)
	}
	known := o.addrs.Load()
	if known == nil {
		return dialer.Dial("tcp", o.addr)
	}
	var err error
	first, n := o.turn.Add(1), uint32(len(*known))
	for i := range min(n, maxAddresses) {
		now := time.Now()
		dialer.Deadline = now.Add(deadline.Sub(now) / time.Duration(min(n, maxAddresses)-i))
		var nc net.Conn
		if nc, err = dialer.Dial("tcp", (*known)[(first+i)%n]); err == nil {
			return nc, nil
		}
	}
	o.ResolveAt.Store(0) // perhaps it has moved
	return nil, err
}

// Watch keeps an eye on the origins, those in force now, until ctx is done: it looks their names up
// and reads their files for TLS again, and checks those that are configured to be checked: moved is
// called with those that fail, and why, and those that are back (""). It blocks until all that it
// started has ended.
func Watch(ctx context.Context, now func() []*Origin, warn func(string, ...any),
	moved func(o *Origin, why string)) {
	var wait sync.WaitGroup
	defer wait.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		at := time.Now()
		next := beat.In(at, beat.Period)
		refresh := at.Sub(refreshed) >= refreshEvery
		if refresh {
			refreshed = at
		}
		for _, o := range now() {
			if refresh && o.secure.Load() != nil && o.reading.CompareAndSwap(false, true) {
				wait.Go(func() {
					defer o.reading.Store(false)
					o.Refresh(warn)
				})
			}
			if o.lookup != "" && o.ResolveAt.Load() <= at.UnixNano() {
				o.ResolveAt.Store(at.Add(resolveEvery).UnixNano())
				wait.Go(func() { o.resolve(ctx) })
			}
			p := o.probe.Load()
			if p == nil {
				o.Down.Store(false)
				continue
			}
			next = min(next, checkLook)
			if o.probeAt.Load() <= at.UnixNano() && o.probing.CompareAndSwap(false, true) {
				o.probeAt.Store(at.Add(p.every).UnixNano())
				wait.Go(func() {
					defer o.probing.Store(false)
					o.check(ctx, p.path, moved)
				})
			}
		}
		timer.Reset(next)
	}
}
