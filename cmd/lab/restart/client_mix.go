package restart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/loadgen/judge"
	"sluice/loadgen/process"
)

// A clientMix is clients of every kind, together at one rate. They keep to HTTP strictly and never try anything twice, so that
// whatever an edge does to a connection shows: a connection refused, one reset, a request without its whole and right answer.
type clientMix struct {
	rate int           // requests a second in all
	to   func() string // where a client that opens a connection goes

	kinds []*clientKind
}

// A clientKind is how some of the clients use their connections, and what has become of their requests.
type clientKind struct {
	name    string
	clients int               // connections that are used again; 0: each request has its own
	each    time.Duration     // between the requests of a client, or of all
	ahead   int               // requests sent at once, without waiting for answers between
	shared  []*http.Transport // connections of HTTP/2, of which each client has one with others; nil: HTTP/1.1

	mu      sync.Mutex // guards what follows
	made    int
	refused int
	reset   int
	failed  int
	why     string // the first failure
	latency *hdrhistogram.Histogram
}

const (
	answerTimeout = 20 * time.Second // for an answer
	slowOrigin    = 300 * time.Millisecond
	postBytes     = 2 << 10 // of a POST, one request in four
)

func newClientMix(rate int, to func() string) *clientMix {
	const kept, seldom, ahead = 40, 20, 4
	every := func(n int, perSecond float64) time.Duration {
		return time.Duration(float64(n) / perSecond * float64(time.Second))
	}
	fresh, pipelined := float64(rate)/2, float64(rate)/12
	rest := max(float64(rate)-fresh-pipelined-seldom/1.3, 1)
	c := &clientMix{rate: rate, to: to, kinds: []*clientKind{
		{name: "a connection each", each: every(1, fresh), ahead: 1},
		{name: "kept connections", clients: kept, each: every(kept, rest), ahead: 1},
		{name: "kept, seldom used", clients: seldom, each: 1300 * time.Millisecond, ahead: 1},
		{name: "pipelined", clients: 4, each: every(4*ahead, pipelined), ahead: ahead},
	}}
	for _, h := range c.kinds {
		h.latency = hdrhistogram.New(1, int64(time.Minute), 2)
	}
	return c
}

// newStreamMix is newClientMix over HTTP/2, without TLS: many requests share a connection, or few do that is mostly idle. A request that the edge has
// said it has not taken (GOAWAY, REFUSED_STREAM) goes on another connection, as HTTP/2 has it (RFC 9113, 8.7); no other is sent twice.
func newStreamMix(rate int, to func() string) *clientMix {
	const clients, seldom = 60, 20
	rest := max(float64(rate)-seldom/1.3, 1)
	c := &clientMix{rate: rate, to: to, kinds: []*clientKind{
		{name: "HTTP/2, many at once", clients: clients, each: time.Duration(clients / rest * float64(time.Second)), ahead: 1, shared: transports(4, to)},
		{name: "HTTP/2, seldom used", clients: seldom, each: 1300 * time.Millisecond, ahead: 1, shared: transports(seldom, to)},
	}}
	for _, h := range c.kinds {
		h.latency = hdrhistogram.New(1, int64(time.Minute), 2)
	}
	return c
}

// transports make n transports, each with one connection at a time.
func transports(n int, to func() string) (list []*http.Transport) {
	for range n {
		t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to())
		}}
		t.Protocols.SetUnencryptedHTTP2(true)
		list = append(list, t)
	}
	return list
}

// run has the clients send until ctx is done, and returns when every answer is there.
func (c *clientMix) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, h := range c.kinds {
		if h.clients == 0 {
			all.Go(func() {
				for n := range h.beats(ctx, h.each, 0) {
					all.Go(func() {
						v := &client{clientMix: c, clientKind: h}
						v.send(n, n)
						v.leave()
					})
				}
			})
		}
		for i := range h.clients {
			all.Go(func() {
				v := &client{clientMix: c, clientKind: h}
				if h.shared != nil {
					v.over = h.shared[i%len(h.shared)]
				}
				defer v.leave()
				for n := range h.beats(ctx, h.each, h.each*time.Duration(i)/time.Duration(h.clients)) {
					v.send(n*h.clients+i, n+i)
				}
			})
		}
	}
}

// beats yields numbers at even times until ctx is done. One that comes late does not make the next ones late.
func (h *clientKind) beats(ctx context.Context, each, first time.Duration) func(func(int) bool) {
	return func(yield func(int) bool) {
		start := time.Now().Add(first)
		for n := 0; ; n++ {
			if process.Pause(ctx, time.Until(start.Add(time.Duration(n)*each))) != nil || ctx.Err() != nil || !yield(n) {
				return
			}
		}
	}
}

// A client is one client and its connection.
type client struct {
	*clientMix
	*clientKind
	conn net.Conn
	br   *bufio.Reader
	over *http.Transport // nil: HTTP/1.1
}

// send makes as many requests as its kind sends ahead: number says which in all, turn which of this client.
func (v *client) send(number, turn int) {
	began := time.Now()
	var asked []*http.Request
	for i := range v.ahead {
		asked = append(asked, v.request(number*v.ahead+i, turn*v.ahead+i))
	}
	for left := asked; len(left) > 0; {
		answered, err := v.ask(left)
		if err != nil {
			v.note(len(left)-answered, time.Since(began), err)
			v.leave()
		}
		v.note(answered, time.Since(began), nil)
		if err != nil {
			return
		}
		left = left[answered:] // those behind an answer that closes are not processed, and may be sent again
	}
}

func (v *client) request(number, turn int) *http.Request {
	method, path, body := http.MethodGet, fmt.Sprintf("/%s/%d", strings.ReplaceAll(v.name, " ", "-"), number), ""
	if turn%16 == 5 && v.ahead == 1 {
		path = "/slow" + path
	}
	if turn%4 == 3 {
		method, body = http.MethodPost, strings.Repeat("x", postBytes)
	}
	r, err := http.NewRequest(method, "http://edge.test"+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the names above are no URL
	}
	r.Close = v.clients == 0 && turn%2 == 0
	return r
}

// ask sends requests and reads the answers up to the last or to one that closes the connection.
func (v *client) ask(requests []*http.Request) (answered int, err error) {
	if v.over != nil {
		return v.stream(requests[0])
	}
	if v.conn != nil && v.ended() {
		v.leave()
	}
	if v.conn == nil {
		if v.conn, err = net.DialTimeout("tcp", v.to(), answerTimeout); err != nil {
			return 0, err
		}
		v.br = bufio.NewReader(v.conn)
	}
	if err := v.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return 0, err
	}
	var text strings.Builder
	for _, r := range requests {
		if r.Body, err = r.GetBody(); err != nil {
			return 0, err
		}
		if err := r.Write(&text); err != nil {
			return 0, err
		}
	}
	// A failure to write is not the last word: the answer to the first of several may be there, and close the connection.
	_, unsent := io.WriteString(v.conn, text.String())
	for _, r := range requests {
		answer, err := http.ReadResponse(v.br, r)
		if err != nil {
			return answered, errors.Join(err, unsent)
		}
		if err := right(r, answer); err != nil {
			return answered, err
		}
		answered++
		if answer.Close {
			v.leave()
			break
		}
	}
	return answered, nil
}

// stream makes a request on a stream of its own.
func (v *client) stream(r *http.Request) (answered int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	answer, err := v.over.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if err := right(r, answer); err != nil {
		return 0, err
	}
	return 1, nil
}

// right reads an answer, and says what is wrong with it.
func right(r *http.Request, answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if want := mixAnswer(r.URL.Path, r.ContentLength); answer.StatusCode != http.StatusOK || string(body) != want {
		return fmt.Errorf("%s %s: %d %.100q", r.Method, r.URL.Path, answer.StatusCode, body)
	}
	return nil
}

// ended reports whether the edge has closed the connection while it was idle. A client looks before it sends.
func (v *client) ended() bool {
	raw, err := v.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	var b [1]byte
	n := -1
	err = raw.Control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && n == 0
}

func (v *client) leave() {
	if v.conn != nil {
		v.conn.Close()
		v.conn = nil
	}
}

// note books what became of n requests.
func (h *clientKind) note(n int, d time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.made += n
	switch {
	case err == nil:
		for range n {
			judge.Record(h.latency, int64(d))
		}
		return
	case errors.Is(err, syscall.ECONNREFUSED):
		h.refused += n
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		h.reset += n
	default:
		h.failed += n
	}
	if h.why == "" {
		h.why = err.Error()
	}
}

// mixAnswer is what the clients' origin says to a request.
func mixAnswer(path string, length int64) string { return fmt.Sprintf("%s %d", path, length) }

// mixOrigin says to every request what it was, slowly under /slow.
func mixOrigin(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the edge has gone: whoever asked it will say so
	}
	if strings.HasPrefix(r.URL.Path, "/slow/") {
		time.Sleep(slowOrigin)
	}
	_, _ = io.WriteString(w, mixAnswer(r.URL.Path, n))
}
