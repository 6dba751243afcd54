package message

import (
	"bytes"
	"strings"
)

// untrailed are names that must not stand in a trailer, beside those that have a lineKind; one that
// ends in * stands for all that begin so.
var untrailed = [...]string{
	"authorization", "authentication-info", "proxy-*", "www-authenticate", "set-cookie*", // who
	"content-type", "content-encoding", "content-range", "content-location", "content-language", "content-disposition", // what
	"age", "cache-control", "date", "expires", "location", "pragma", "retry-after", "vary", "warning", // what to do with an answer
	// What is asked for
	"range", "if-*", "accept*", "max-forwards", "origin", "referer", "server", "user-agent",
	"http2-settings",
	"ratelimit*", "x-ratelimit*", "sluice-*",
}

// MayTrail reports whether a line may stand in a trailer that is passed on.
func MayTrail(l *Line) bool {
	if l.Drop || l.Kind != Other {
		return false
	}
	for _, name := range untrailed {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			if len(l.Name) >= len(prefix) && EqualFold(l.Name[:len(prefix)], prefix) {
				return false
			}
		} else if EqualFold(l.Name, name) {
			return false
		}
	}
	return true
}

// TakesTrailers reports whether a line is a TE that requests trailers.
func TakesTrailers(l *Line) bool {
	if !EqualFold(l.Name, "te") {
		return false
	}
	for _, coding := range SplitList(l.Value) {
		coding, _, _ = bytes.Cut(coding, []byte{';'})
		if EqualFold(TrimSpace(coding), "trailers") {
			return true
		}
	}
	return false
}

// Forged reports whether a line may stand in no trailer at all, because some servers would take it
// for a header that frames or routes the request, or names its sender: a request with one is
// refused.
func Forged(l *Line) bool {
	switch l.Kind {
	case Other:
		return EqualFold(l.Name, "authorization") || EqualFold(l.Name, "proxy-authorization")
	case Via, Forwarded, Override, RequestID:
		return false
	}
	return true
}

// TrailerNames are the names in a head's Trailer that may stand in a trailer at all.
func TrailerNames(h *Head) (list [][]byte) {
	for i := range h.Lines {
		if l := &h.Lines[i]; l.Kind == HopByHop && EqualFold(l.Name, "trailer") {
			for _, name := range SplitList(l.Value) {
				if t := (Line{Name: name, Kind: classify(name)}); IsToken(name) && MayTrail(&t) {
					list = append(list, name)
				}
			}
		}
	}
	return list
}
