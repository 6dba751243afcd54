package edge

import (
	"bytes"
	"strings"
)

// untrailed are names that must not stand in a trailer, beside those that have a lineKind; one that ends in * stands
// for all that begin so.
var untrailed = [...]string{
	"authorization", "authentication-info", "proxy-*", "www-authenticate", "set-cookie*", // who
	"content-type", "content-encoding", "content-range", "content-location", "content-language", "content-disposition", // what
	"age", "cache-control", "date", "expires", "location", "pragma", "retry-after", "vary", "warning", // what to do with an answer
	"range", "if-*", "accept*", "max-forwards", "origin", "referer", "server", "user-agent", // what is asked for
	"http2-settings",
	"ratelimit*", "x-ratelimit*", "sluice-*",
}

// mayTrail reports whether a line may stand in a trailer that is passed on.
func mayTrail(l *line) bool {
	if l.drop || l.kind != lineOther {
		return false
	}
	for _, name := range untrailed {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			if len(l.name) >= len(prefix) && equalFold(l.name[:len(prefix)], prefix) {
				return false
			}
		} else if equalFold(l.name, name) {
			return false
		}
	}
	return true
}

// takesTrailers reports whether a line is a TE that asks for trailers.
func takesTrailers(l *line) bool {
	if !equalFold(l.name, "te") {
		return false
	}
	for _, coding := range splitList(l.value) {
		coding, _, _ = bytes.Cut(coding, []byte{';'})
		if equalFold(trimSpace(coding), "trailers") {
			return true
		}
	}
	return false
}

// forged reports whether a line may stand in no trailer at all, because some servers would take it for a header that frames or
// routes the request, or says who sent it: a request with one is refused.
func forged(l *line) bool {
	switch l.kind {
	case lineOther:
		return equalFold(l.name, "authorization") || equalFold(l.name, "proxy-authorization")
	case lineVia, lineForwarded, lineOverride:
		return false
	}
	return true
}

// trailerNames are the names in a head's Trailer that may stand in a trailer at all.
func trailerNames(h *head) (list [][]byte) {
	for i := range h.lines {
		if l := &h.lines[i]; l.kind == lineHopByHop && equalFold(l.name, "trailer") {
			for _, name := range splitList(l.value) {
				if t := (line{name: name, kind: classify(name)}); isToken(name) && mayTrail(&t) {
					list = append(list, name)
				}
			}
		}
	}
	return list
}
