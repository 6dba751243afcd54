package edge

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// How long the search for the costliest head goes on. A longer one:
//
//	go test ./edge -run Worst -v -heads 20000 -seed 7
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

// A gene is a part of a head, or of what comes behind it.
type gene struct {
	place   whence
	name    string // of the line
	element string // # in it is a number, another one each time
	glue    string
	lines   int // how many of them
	count   int // elements of each
}

type whence uint8

const (
	inLines whence = iota
	inTarget
	inHost
	inChunks
	inTrailer
	inProxy
)

var (
	geneNames = []string{"Connection", "Trailer", "TE", "X-Forwarded-For", "X-Forwarded-For", "Forwarded", "Cookie", "Via", "Upgrade", "Expect", "Cache-Control",
		"Keep-Alive", "Proxy-Connection", "X-Real-IP", "X-Key", "X-#", "X_#", "a#", "!#!", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa#",
		"X_Forwarded_For_________________________#", "X-Forwarded-#", "Content-Length", "Transfer-Encoding", "Referer"}
	geneElements = []string{"#", "a#", "a", "", " ", "\t", "X-#", "a=#", "id=#", "id", "id=", "trailers", "close", "keep-alive", "upgrade", "timeout=", "127.0.0.1", "for=127.0.0.1", "for",
		"\x80", "\"", "%", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa#", "[::1]", "::::::", "chunked"}
	geneGlue     = []string{",", ", ", ";", "; ", " ", "\t", "=", ",,", "."}
	geneSegments = []string{"a", "", ".", "..", "%2e", "%2e%2e", "%2f", "\\", "%", "%61", "%5c", "#", "a.b", "*", "://", "?", "&a", "&a=#"}
	geneLabels   = []string{"a", "#", "", "%", "_"}
	geneChunks   = []string{"1\r\nx\r\n", "2\r\nxx\r\n", "1;\r\nx\r\n", "000000000000001\r\nx\r\n", "1;aaaaaaaa=\"bbbbbbbbbbbbbbbbbb\"\r\nx\r\n", "f\r\n0123456789abcde\r\n"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func newGene(r *rand.Rand) gene {
	g := gene{name: pick(r, geneNames), element: pick(r, geneElements), glue: pick(r, geneGlue), lines: 1, count: 1 << r.IntN(15)}
	switch r.IntN(10) {
	case 0:
		g.place, g.element, g.glue = inTarget, pick(r, geneSegments), pick(r, []string{"/", "/", "/", "\\", "%2f", ""})
	case 1:
		g.place, g.element, g.glue = inHost, pick(r, geneLabels), "."
	case 2:
		g.place, g.element, g.glue = inChunks, pick(r, geneChunks), ""
	case 3:
		g.place = inTrailer
		fallthrough
	case 4, 5:
		g.lines = 1 << r.IntN(8)
		g.count = 1 << r.IntN(5)
	case 6:
		if r.IntN(4) == 0 {
			g.place = inProxy
		}
	}
	return g
}

// mutate returns another one that differs a little.
func mutate(r *rand.Rand, genes []gene) []gene {
	genes = slices.Clone(genes)
	for range 1 + r.IntN(2) {
		i := 0
		if len(genes) > 0 {
			i = r.IntN(len(genes))
		}
		switch n := r.IntN(8); {
		case len(genes) == 0 || n == 0 && len(genes) < 8:
			genes = append(genes, newGene(r))
		case n == 1:
			genes = slices.Delete(genes, i, i+1)
		case n == 2:
			genes[i].lines = max(1, genes[i].lines*2)
		case n == 3:
			genes[i].lines = max(1, genes[i].lines/2)
		case n == 4:
			genes[i].count = min(32<<10, genes[i].count*2)
		case n == 5:
			genes[i].count = max(1, genes[i].count/2)
		case n == 6 && genes[i].place == inLines:
			genes[i].element = pick(r, geneElements)
		case n == 7 && genes[i].place == inLines:
			genes[i].glue = pick(r, geneGlue)
		default:
			j := r.IntN(len(genes))
			genes[i], genes[j] = genes[j], genes[i]
		}
	}
	return genes
}

// append appends what a gene says, as far as there is room.
func (g gene) append(b []byte, most int) []byte {
	for range max(1, g.lines) {
		before := len(b)
		if g.place == inLines || g.place == inTrailer {
			b = append(appendNumbered(b, g.name, len(b)), ": "...)
		}
		for i := range g.count {
			if i > 0 {
				b = append(b, g.glue...)
			}
			b = appendNumbered(b, g.element, len(b))
			if len(b) > most-100 {
				break
			}
		}
		if g.place == inLines || g.place == inTrailer {
			b = append(b, "\r\n"...)
		}
		if len(b) > most {
			return b[:before]
		}
	}
	return b
}

func appendNumbered(b []byte, text string, n int) []byte {
	before, after, found := strings.Cut(text, "#")
	if b = append(b, before...); found {
		b = fmt.Appendf(b, "%x%s", n, after)
	}
	return b
}

// proxyHeader is what a proxy says before the head, with as much behind the addresses as a gene wants; nil: nothing.
func proxyHeader(genes []gene) []byte {
	for _, g := range genes {
		if g.place == inProxy {
			h := proxyproto.HeaderProxyFromAddrs(byte(1+g.count%2), net.TCPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.1:1")),
				net.TCPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.2:2")))
			if h.Version == 2 {
				_ = h.SetTLVs(slices.Repeat([]proxyproto.TLV{{Type: 0x04, Value: bytes.Repeat([]byte{0}, g.lines)}}, min(g.count, worstSize/(g.lines+3))))
			}
			text, _ := h.Format()
			return text
		}
	}
	return nil
}

// express writes a request, or an answer, that has these genes.
func express(genes []gene, answer bool) []byte {
	var b []byte
	all := func(p whence, spare int) (some bool) {
		for _, g := range genes {
			if g.place == p {
				b, some = g.append(b, worstSize-spare), true
			}
		}
		return some
	}
	if answer {
		b = append(b, "HTTP/1.1 200 OK\r\n"...)
	} else {
		b = append(b, "POST /"...)
		all(inTarget, 200)
		b = append(b, " HTTP/1.1\r\nHost: a"...)
		all(inHost, 100)
		b = append(b, "\r\n"...)
	}
	all(inLines, 64)
	behind := slices.ContainsFunc(genes, func(g gene) bool { return g.place == inChunks || g.place == inTrailer })
	if !behind {
		return append(b, "Content-Length: 0\r\n\r\n"...)
	}
	b = append(b, "Transfer-Encoding: chunked\r\n\r\n"...)
	all(inChunks, 16)
	b = append(b, "0\r\n"...)
	all(inTrailer, 8)
	return append(b, "\r\n"...)
}

// plainHead is what others are compared with: it has the size of the largest, in a hundred lines.
func plainHead() []gene {
	return []gene{{name: "X-#", element: "some words and more of them", glue: ", ", lines: 100, count: 10}}
}

// An abacus measures what a request costs a whole process: the edge, its client and the origin.
type abacus struct {
	t      *testing.T
	edge   *edgeUnderTest
	proxy  *edgeUnderTest
	answer atomic.Pointer[[]byte] // of the origin
	talk   *talk
}

func newAbacus(t *testing.T) *abacus {
	a := &abacus{t: t}
	origin := startBareOrigin(t, func() []byte { return *a.answer.Load() })
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
	a.edge = startEdge(t, origin, "source: {trust: [127.0.0.0/8]}\n"+limits+rules)
	a.proxy = startEdge(t, origin, "source: {trust: [127.0.0.0/8], header: Forwarded, proxy_protocol: true}\n"+limits+rules)
	return a
}

func (a *abacus) says(answer []byte) { a.answer.Store(&answer) }

// startBareOrigin answers whatever ends in an empty line, at next to no cost.
func startBareOrigin(t *testing.T, answer func() []byte) string {
	addr := listenEach(t, "tcp4", func(c net.Conn) {
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
		if a.talk == nil || proxied != nil {
			e := a.edge
			if proxied != nil {
				e = a.proxy
			}
			c, err := net.Dial("tcp", e.addr)
			must(a.t, err)
			a.talk = &talk{a.t, c, bufio.NewReaderSize(c, 64<<10)}
		}
		_ = a.talk.SetDeadline(time.Now().Add(time.Minute))
		before := allProcessorTime()
		_, _ = a.talk.Write(append(slices.Clip(proxied), request...))
		resp, err := http.ReadResponse(a.talk.r, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			status = resp.StatusCode
		}
		if took := allProcessorTime() - before; least == 0 || took < least {
			least = took
		}
		if err != nil || resp.Close || proxied != nil {
			a.talk.Close()
			a.talk = nil
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
		{place: inChunks, element: "1\r\nx\r\n", count: 1}},
	{{name: "Connection", element: "#", glue: ",", count: 3500}, {name: "Trailer", element: "a#", glue: ",", count: 3500}, {place: inChunks, element: "1\r\nx\r\n", count: 1}},
	{{name: "Connection", element: "#", glue: ",", count: 4500}, {name: "X-#", element: "", lines: 120, count: 1}},
	{{name: "Connection", element: "", glue: ",", count: 32000}, {name: "X-#", element: "", lines: 120, count: 1}},
	{{name: "Connection", element: "X-#", glue: ",", count: 4500}, {name: "Connection", element: "a", glue: ",", count: 100, lines: 50}},
	{{name: "TE", element: "", glue: ",", count: 32000}},
	{{place: inTarget, element: "a", glue: "/", count: 16000}},
	{{place: inTarget, element: "", glue: "/", count: 32000}},
	{{place: inTarget, element: "..", glue: "/", count: 11000}},
	{{place: inTarget, element: "a", glue: "", count: 32000}},
	{{place: inTarget, element: "%61", glue: "", count: 32000}},
	{{name: "Cookie", element: "", glue: ";", count: 32000}},
	{{name: "Cookie", element: "id", glue: ";", count: 12000}},
	{{name: "Cookie", element: "a=#", glue: "; ", count: 5000}},
	{{name: "X-Key", element: "a", glue: ";", count: 32000}},
	{{name: "X-Forwarded-For", element: "", glue: ",", count: 32000}},
	{{name: "Forwarded", element: "", glue: ";", count: 32000}, {place: inProxy, count: 1, lines: 1}},
	{{place: inProxy, count: 8000, lines: 1}},
	{{name: "!#!", element: "a", count: 1, lines: 127}},
	{{place: inChunks, element: "1\r\nx\r\n", count: 5000}},
	{{name: "Trailer", element: "a#", glue: ",", count: 60}, {place: inTrailer, name: "a#", element: "x", count: 10, lines: 120}},
	{{place: inTrailer, name: "a#", element: "x", count: 1, lines: 128}, {name: "Connection", element: "#", glue: ",", count: 4000}},
	{{place: inTrailer, name: "a#", element: "x", count: 1, lines: 128}, {name: "Trailer", element: "a#", glue: ",", count: 30}, {name: "Connection", element: "#", glue: ",", count: 30}},
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
