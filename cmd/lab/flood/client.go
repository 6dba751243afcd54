package flood

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/loadgen/process"
)

// workers is how many connections of a flood are under way at once, at most.
const workers = 64

// limit is how many requests a source of a flood may make in an hour; one more blocks it for as long.
const limit = 1

// A client is all sources of a flood.
type client struct {
	to      netip.AddrPort
	rate    int
	sources int
}

// counts are of connections: all that were made, those that the kernel refused, and those of which a request was passed on.
type counts struct{ made, refused, admitted int64 }

// source is the address of one.
func source(i int) string {
	return netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}).String()
}

func dialer(from string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
}

// once makes a connection and a request, and returns the status of the answer; 0: there was none.
func (c *client) once(ctx context.Context, from string) (status string, err error) {
	nc, err := dialer(from).DialContext(ctx, "tcp", c.to.String())
	if err != nil {
		return "", err
	}
	_ = nc.(*net.TCPConn).SetLinger(0) // leaves nothing behind that a source port would wait for
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		return "", nil // closed when it came
	}
	head := make([]byte, 1024)
	n, _ := nc.Read(head)
	if first := string(head[:n]); strings.HasPrefix(first, "HTTP/1.1 ") && n > 12 {
		return first[9:12], nil
	}
	return "", nil
}

// block has each source pass its limit.
func (c *client) block(ctx context.Context) error {
	var wait sync.WaitGroup
	failed := make(chan error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < c.sources; i += workers {
				for range limit + 1 {
					if _, err := c.once(ctx, source(i)); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
						failed <- err
						return
					}
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	return <-failed
}

// flood makes connections, each of the next source, in an open loop: what is late is made up for.
func (c *client) flood(ctx context.Context, length time.Duration) counts {
	var next, made, refused, admitted atomic.Int64
	begin := time.Now()
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for ctx.Err() == nil {
				n := next.Add(1) - 1
				due := time.Duration(n) * time.Second / time.Duration(c.rate)
				if due >= length || process.Pause(ctx, due-time.Since(begin)) != nil || time.Since(begin) >= length {
					return
				}
				status, err := c.once(ctx, source(int(n)%c.sources))
				made.Add(1)
				switch {
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				case status == "200":
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return counts{made.Load(), refused.Load(), admitted.Load()}
}

// A neighbour is a client whom nobody blocks, and who makes a connection for each request.
type neighbour struct {
	client http.Client
	url    string
}

type asked struct {
	asked, failed int
	p99           time.Duration
}

func newNeighbour(to netip.AddrPort) *neighbour {
	return &neighbour{http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(calm).DialContext}}, "http://" + to.String() + "/"}
}

func (n *neighbour) end() { n.client.CloseIdleConnections() }

// ask makes a request every five milliseconds, one after the other.
func (n *neighbour) ask(ctx context.Context, length time.Duration) (a asked) {
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < length && ctx.Err() == nil; {
		at := time.Now()
		resp, err := n.client.Get(n.url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		a.asked++
		if err != nil || resp.StatusCode != http.StatusOK {
			a.failed++
		}
		took = append(took, time.Since(at))
		_ = process.Pause(ctx, 5*time.Millisecond-time.Since(at))
	}
	slices.Sort(took)
	if len(took) > 0 {
		a.p99 = took[len(took)*99/100]
	}
	return a
}
