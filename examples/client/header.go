package client

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads Retry-After (RFC 9110, 10.2.3): seconds, or a date. It reports false if it says
// neither. More seconds than have room are 68 years.
func RetryAfter(text string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// A Limit is what is left of one.
type Limit struct {
	Policy           string // "": it has no name
	Remaining, Quota uint64
	Unit             string        // of both, such as content-bytes; "": requests
	Reset            time.Duration // after which there is more than Remaining
}

// Left reads RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11, and as the
// drafts from -08 on had them), of several limits the one with the least left; or, if there is
// none, what older drafts had. It reports false if there is neither, or a header is malformed:
// structured fields are taken whole or not at all (RFC 9651).
func Left(header http.Header) (least Limit, ok bool) {
	list, ok1 := items(strings.Join(header.Values("RateLimit"), ","))
	policies, ok2 := items(strings.Join(header.Values("RateLimit-Policy"), ","))
	if !ok1 || !ok2 || len(list) == 0 {
		return older(header)
	}
	for _, i := range list {
		r, has := i.number("r")
		t, _ := i.number("t")
		if !has || ok && r >= least.Remaining {
			continue
		}
		least, ok = Limit{Policy: i.name, Remaining: r,
			Reset: time.Duration(min(t, 1<<31)) * time.Second}, true
		for _, p := range policies {
			if q, has := p.number("q"); has && p.name == i.name {
				least.Quota = q
				if least.Unit = p.parameters["qu"]; least.Unit == "requests" {
					least.Unit = ""
				}
			}
		}
	}
	return least, ok
}

// older reads what drafts up to -07 had: one field, limit=100, remaining=50, reset=5, and before
// that one for each of the three.
func older(header http.Header) (l Limit, ok bool) {
	said := make(map[string]string)
	for part := range strings.SplitSeq(header.Get("RateLimit"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		said[name] = value
	}
	number := func(name, field string) (uint64, bool) {
		text := cmp.Or(said[name], header.Get(field))
		if i := strings.IndexAny(text, ",;"); i >= 0 { // policies follow
			text = text[:i]
		}
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
		return n, err == nil
	}
	l.Quota, _ = number("limit", "RateLimit-Limit")
	reset, _ := number("reset", "RateLimit-Reset")
	l.Reset = time.Duration(min(reset, 1<<31)) * time.Second
	l.Remaining, ok = number("remaining", "RateLimit-Remaining")
	return l, ok
}

// An item is a name with parameters.
type item struct {
	name       string
	parameters map[string]string
}

func (i *item) number(name string) (uint64, bool) {
	n, err := strconv.ParseUint(i.parameters[name], 10, 63)
	return n, err == nil
}

// items reads a list of names with parameters, which is all that these headers have of structured
// fields. A name is a string, or a token, as -08 had it.
func items(text string) (list []item, ok bool) {
	rest := strings.Trim(text, " \t")
	if rest == "" {
		return nil, true
	}
	for {
		i := item{parameters: make(map[string]string)}
		if end := strings.IndexAny(rest, "\";, \t="); end > 0 && rest[end] == ';' {
			i.name, rest = rest[:end], rest[end:]
		} else if i.name, rest, ok = quoted(rest); !ok {
			return nil, false
		}
		for strings.HasPrefix(rest, ";") {
			rest = strings.TrimLeft(rest[1:], " ")
			n := strings.IndexFunc(rest, func(c rune) bool {
				return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' ||
					strings.ContainsRune("_-.*", c))
			})
			if n < 0 {
				n = len(rest)
			}
			name := rest[:n]
			if rest = rest[n:]; name == "" || name[0] != '*' && (name[0] < 'a' || name[0] > 'z') {
				return nil, false
			}
			value := "?1"
			if strings.HasPrefix(rest, `="`) {
				if value, rest, ok = quoted(rest[1:]); !ok {
					return nil, false
				}
			} else if strings.HasPrefix(rest, "=") {
				if n = strings.IndexAny(rest, ",; \t"); n < 0 {
					n = len(rest)
				}
				if value, rest = rest[1:n], rest[n:]; value == "" || strings.Contains(value, `"`) {
					return nil, false
				}
			}
			i.parameters[name] = value
		}
		list = append(list, i)
		if rest = strings.TrimLeft(rest, " \t"); rest == "" {
			return list, true
		}
		if rest[0] != ',' {
			return nil, false
		}
		rest = strings.TrimLeft(rest[1:], " \t")
	}
}

// quoted reads a string, and returns what follows it.
func quoted(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], true
		case c < ' ' || c > '~':
			return "", "", false
		case c == '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
