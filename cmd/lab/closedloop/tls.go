package closedloop

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/process"
)

// tlsRun is a Load over TLS under way. Each connection has a goroutine, because crypto/tls reads
// until it has a whole record.
type tlsRun struct {
	*Load
	sent atomic.Uint32

	mu      sync.Mutex // guards what follows
	measure bool
	out     *Outcome
	err     error // what the last connection broke by
}

// run applies the load. If nothing was answered it returns what the connections broke by.
func (r *tlsRun) run(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range r.Conns {
		conns.Go(func() {
			for buf := make([]byte, 16<<10); ctx.Err() == nil; {
				if err := r.connection(ctx, buf); err != nil && ctx.Err() == nil {
					r.failed(err)
				}
			}
		})
	}
	if err := process.Pause(ctx, r.Warm); err != nil {
		return err
	}
	begun := r.mark(true, r.Begun)
	if err := process.Pause(ctx, r.For); err != nil {
		return err
	}
	r.out.Took = r.mark(false, r.Ended).Sub(begun)
	stop()
	conns.Wait()
	if r.out.Answers == 0 {
		return r.err
	}
	return nil
}

// mark begins or ends the measurement.
func (r *tlsRun) mark(measure bool, note func()) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure = measure
	if note != nil {
		note()
	}
	return time.Now()
}

// connection makes requests on a connection of its own until it breaks or the run ends; a single
// one if Fresh. Its first latency includes the handshake.
func (r *tlsRun) connection(ctx context.Context, buf []byte) error {
	since := time.Now()
	nc, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(r.Edge))
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetLinger(0) // as Abort does: no port is left waiting
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	c := tls.Client(nc, r.TLS)
	if err := c.Handshake(); err != nil {
		return err
	}
	if r.Streams > 0 {
		return r.streams(ctx, c)
	}
	resumed := c.ConnectionState().DidResume
	var a answer.Answer
	for ctx.Err() == nil {
		a.Reset(false)
		if _, err := c.Write(r.request(buf, r.sent.Add(1)-1)); err != nil {
			return err
		}
		for !a.Done() {
			n, err := c.Read(buf[:cap(buf)])
			if bad := a.Feed(buf[:n]); bad != nil {
				return bad
			}
			if err != nil && !a.Ended() {
				return err
			}
		}
		r.answered(a.Status, resumed, time.Since(since))
		if r.Fresh || a.Close {
			return nil
		}
		since = time.Now()
	}
	return nil
}

func (r *tlsRun) answered(status int, resumed bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.measure {
		return
	}
	r.out.Answers++
	r.out.Statuses[status]++
	if resumed {
		r.out.Resumed++
	}
	judge.Record(r.out.Latency, int64(took))
}

func (r *tlsRun) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if r.measure {
		r.out.Failed++
	}
}
