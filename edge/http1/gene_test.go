package http1_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pires/go-proxyproto"
)

// A gene is a part of a head, or of what comes behind it.
type gene struct {
	from    whence
	name    string // of the line
	element string // # in it is a number, another one each time
	glue    string
	lines   int // how many of them
	count   int // elements of each
}

// append appends what a gene says, as far as there is room.
func (g gene) append(b []byte, most int) []byte {
	for range max(1, g.lines) {
		before := len(b)
		if g.from == inLines || g.from == inTrailer {
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
		if g.from == inLines || g.from == inTrailer {
			b = append(b, "\r\n"...)
		}
		if len(b) > most {
			return b[:before]
		}
	}
	return b
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
		g.from, g.element, g.glue = inTarget, pick(r, geneSegments), pick(r, []string{"/", "/", "/", "\\", "%2f", ""})
	case 1:
		g.from, g.element, g.glue = inHost, pick(r, geneLabels), "."
	case 2:
		g.from, g.element, g.glue = inChunks, pick(r, geneChunks), ""
	case 3:
		g.from = inTrailer
		fallthrough
	case 4, 5:
		g.lines = 1 << r.IntN(8)
		g.count = 1 << r.IntN(5)
	case 6:
		if r.IntN(4) == 0 {
			g.from = inProxy
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
		case n == 6 && genes[i].from == inLines:
			genes[i].element = pick(r, geneElements)
		case n == 7 && genes[i].from == inLines:
			genes[i].glue = pick(r, geneGlue)
		default:
			j := r.IntN(len(genes))
			genes[i], genes[j] = genes[j], genes[i]
		}
	}
	return genes
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
		if g.from == inProxy {
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
			if g.from == p {
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
	behind := slices.ContainsFunc(genes, func(g gene) bool { return g.from == inChunks || g.from == inTrailer })
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
