package http1_test

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// How long the search for the costliest head goes on. A longer one:
//
//	go test ./edge/http1 -run Worst -v -heads 20000 -seed 7
var (
	worstHeads = flag.Int("heads", 250, "how many heads to try in search of the costliest")
	worstSeed  = flag.Uint64("seed", 1, "where the search for the costliest head begins")
)

const (
	// worstSize is the size of a head, and of what comes behind it, in bytes: as much as limits.header_bytes takes by default.
	worstSize = 32<<10 - 64
	// worstRatio is how many times the processor time of a plain head of that size any head may take.
	worstRatio = 40
)

// An abacus measures what a request costs a whole process: the edge, its client and the origin.
type abacus struct {
	T      *testing.T
	Edge   *edgetest.Edge
	proxy  *edgetest.Edge
	Answer atomic.Pointer[[]byte] // of the origin
	Talk   *edgetest.Talk
}

func newAbacus(t *testing.T) *abacus {
	a := &abacus{T: t}
	origin := startBareOrigin(t, func() []byte { return *a.Answer.Load() })
	a.says([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	const rules = `
rules:
  - {name: all, limit: 1000000000}
  - {name: key, limit: 1000000000, key: "header:X-Key"}
  - {name: cookie, limit: 1000000000, key: "cookie:id"}
  - {name: cookies, limit: 1000000000, key: ["cookie:id", "cookie:other", source]}
  - {name: path, limit: 1000000000, key: "cookie:id", match: {path: /a/*}}
  - {name: deep, limit: 1000000000, match: {path: /a/a/a/*}}
  - {name: exact, limit: 1000000000, match: {path: /a/a/a}}
  - {name: regexp, limit: 1000000000, match: {path: "~(?i)/login/?(;|$)"}}
  - {name: wild, limit: 1000000000, match: {hosts: ["*.a", "*.b"]}}
`
	const limits = "limits: {header_timeout: 10m, idle_timeout: 10m}\n"
	a.Edge = edgetest.Start(t, origin, "source: {trust: [127.0.0.0/8]}\n"+limits+rules)
	a.proxy = edgetest.Start(t, origin, "source: {trust: [127.0.0.0/8], header: Forwarded, proxy_protocol: true}\n"+limits+rules)
	return a
}

func (a *abacus) says(answer []byte) { a.Answer.Store(&answer) }

// startBareOrigin answers whatever ends in an empty line, at next to no cost.
func startBareOrigin(t *testing.T, answer func() []byte) string {
	addr := edgetest.ListenEach(t, "tcp4", func(c net.Conn) {
		buf, n := make([]byte, 4*worstSize), 0
		for {
			got, err := c.Read(buf[n:])
			if n += got; err != nil || n == len(buf) {
				return
			}
			head := bytes.Index(buf[:n], []byte("\r\n\r\n"))
			if head < 0 || bytes.Contains(buf[:head], []byte("\r\nTransfer-Encoding: chunked")) &&
				(!bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) || n == head+4) {
				continue
			}
			n = 0
			if _, err := c.Write(answer()); err != nil {
				return
			}
		}
	})
	return "http://" + addr
}

// cost is the processor time of a request; the least of a few, because others disturb it.
func (a *abacus) cost(proxied, request []byte) (least time.Duration, status int) {
	for range 3 {
		if a.Talk == nil || proxied != nil {
			e := a.Edge
			if proxied != nil {
				e = a.proxy
			}
			c, err := net.Dial("tcp", e.Addr)
			edgetest.Must(a.T, err)
			a.Talk = &edgetest.Talk{T: a.T, Conn: c, R: bufio.NewReaderSize(c, 64<<10)}
		}
		_ = a.Talk.SetDeadline(time.Now().Add(time.Minute))
		before := allProcessorTime()
		_, _ = a.Talk.Write(append(slices.Clip(proxied), request...))
		resp, err := http.ReadResponse(a.Talk.R, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			status = resp.StatusCode
		}
		if took := allProcessorTime() - before; least == 0 || took < least {
			least = took
		}
		if err != nil || resp.Close || proxied != nil {
			a.Talk.Close()
			a.Talk = nil
		}
	}
	return least, status
}

func allProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// knownBad are heads that once were the costliest, and where the search begins.
var knownBad = [][]gene{
	{{name: "Connection", element: "", glue: ",", count: 15000}, {name: "Trailer", element: "a", glue: ",", count: 8000}, {name: "a", count: 1, lines: 1},
		{from: inChunks, element: "1\r\nx\r\n", count: 1}},
	{{name: "Connection", element: "#", glue: ",", count: 3500}, {name: "Trailer", element: "a#", glue: ",", count: 3500}, {from: inChunks, element: "1\r\nx\r\n", count: 1}},
	{{name: "Connection", element: "#", glue: ",", count: 4500}, {name: "X-#", element: "", lines: 120, count: 1}},
	{{name: "Connection", element: "", glue: ",", count: 32000}, {name: "X-#", element: "", lines: 120, count: 1}},
	{{name: "Connection", element: "X-#", glue: ",", count: 4500}, {name: "Connection", element: "a", glue: ",", count: 100, lines: 50}},
	{{name: "TE", element: "", glue: ",", count: 32000}},
	{{from: inTarget, element: "a", glue: "/", count: 16000}},
	{{from: inTarget, element: "", glue: "/", count: 32000}},
	{{from: inTarget, element: "..", glue: "/", count: 11000}},
	{{from: inTarget, element: "a", glue: "", count: 32000}},
	{{from: inTarget, element: "%61", glue: "", count: 32000}},
	{{name: "Cookie", element: "", glue: ";", count: 32000}},
	{{name: "Cookie", element: "id", glue: ";", count: 12000}},
	{{name: "Cookie", element: "a=#", glue: "; ", count: 5000}},
	{{name: "X-Key", element: "a", glue: ";", count: 32000}},
	{{name: "X-Forwarded-For", element: "", glue: ",", count: 32000}},
	{{name: "Forwarded", element: "", glue: ";", count: 32000}, {from: inProxy, count: 1, lines: 1}},
	{{from: inProxy, count: 8000, lines: 1}},
	{{name: "!#!", element: "a", count: 1, lines: 127}},
	{{from: inChunks, element: "1\r\nx\r\n", count: 5000}},
	{{name: "Trailer", element: "a#", glue: ",", count: 60}, {from: inTrailer, name: "a#", element: "x", count: 10, lines: 120}},
	{{from: inTrailer, name: "a#", element: "x", count: 1, lines: 128}, {name: "Connection", element: "#", glue: ",", count: 4000}},
	{{from: inTrailer, name: "a#", element: "x", count: 1, lines: 128}, {name: "Trailer", element: "a#", glue: ",", count: 30}, {name: "Connection", element: "#", glue: ",", count: 30}},
}

// search goes from the costliest heads found so far to others like them, and returns the costliest.
func search(t *testing.T, cost func([]gene) (time.Duration, int)) (worst []gene, most time.Duration) {
	type found struct {
		genes  []gene
		cost   time.Duration
		status int
	}
	var best []found
	r := rand.New(rand.NewPCG(*worstSeed, 0))
	for n := range len(knownBad) + *worstHeads {
		var genes []gene
		switch {
		case n < len(knownBad):
			genes = knownBad[n]
		case r.IntN(5) == 0:
			for range 1 + r.IntN(4) {
				genes = append(genes, newGene(r))
			}
		default:
			genes = mutate(r, pick(r, best).genes)
		}
		took, status := cost(genes)
		best = append(best, found{genes, took, status})
		slices.SortStableFunc(best, func(a, b found) int { return int(b.cost - a.cost) })
		best = best[:min(len(best), 12)]
	}
	for i := range best {
		took, _ := cost(best[i].genes) // once more: the first time may have been disturbed
		best[i].cost = min(best[i].cost, took)
	}
	slices.SortStableFunc(best, func(a, b found) int { return int(b.cost - a.cost) })
	for _, f := range best[:3] {
		t.Logf("%.3f ms of processor time, answered with %d: %+v", f.cost.Seconds()*1000, f.status, f.genes)
	}
	return best[0].genes, best[0].cost
}

// No head makes an edge work much longer than a plain one of its size, whatever it is made of: from its first byte to the
// verdict, and on to the head that the origin gets and the answer.
func TestWorstHead(t *testing.T) {
	a := newAbacus(t)
	plain, status := a.cost(nil, express(plainHead(), false))
	if status != 200 {
		t.Fatalf("the plain head was answered with %d", status)
	}
	genes, most := search(t, func(genes []gene) (time.Duration, int) { return a.cost(proxyHeader(genes), express(genes, false)) })
	t.Logf("a plain head of that size: %.3f ms", plain.Seconds()*1000)
	if most > worstRatio*plain {
		t.Errorf("%v where a plain head of that size takes %v: %.300q", most, plain, express(genes, false))
	}
}

// The same of what an origin answers.
func TestWorstAnswer(t *testing.T) {
	a := newAbacus(t)
	cost := func(genes []gene) (time.Duration, int) {
		a.says(express(genes, true))
		return a.cost(nil, []byte("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n"))
	}
	plain, status := cost(plainHead())
	if status != 200 {
		t.Fatalf("the plain answer came as %d", status)
	}
	genes, most := search(t, cost)
	t.Logf("a plain answer of that size: %.3f ms", plain.Seconds()*1000)
	if most > worstRatio*plain {
		t.Errorf("%v where a plain answer of that size takes %v: %.300q", most, plain, express(genes, true))
	}
}
