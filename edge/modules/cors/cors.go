// Package cors lets pages of other origins read the edge's own refusals. A browser hides an answer
// from a page of another origin unless the answer says that the page may read it (CORS, in the
// Fetch standard). What an origin answers says so itself; this says it for what the edge answers.
//
// A preflight, which a browser sends before such a request, is not counted: its client did not ask
// for it. Where the edge would refuse one, it says yes instead, because the browser would else hide
// the refusal of the request itself, which follows.
package cors

import (
	"bytes"
	"net/http"
	"strings"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
)

const name = "cors"

// Module answers for the origins that a configuration names.
func Module() edge.Module {
	return edge.Module{Name: name, Config: config.Module{Settings: func() any {
		return &Settings{Expose: []header{"Retry-After", "RateLimit", "RateLimit-Policy"}}
	}}, Prepare: func(s *edge.Setup) (edge.Points, error) {
		said := config.SettingsOf[Settings](s.Config, name)
		if said == nil || len(said.Origins) == 0 {
			return edge.Points{}, nil
		}
		p := newPolicy(said)
		return edge.Points{Gates: []edge.Gate{{Phase: edge.Own, Answer: p.spare}},
			Answers: []func(*edge.Exchange){p.answer}}, nil
	}}
}

// A policy is a configuration as requests meet it.
type policy struct {
	any      bool
	origins  map[string]bool
	suffixes []suffix
	expose   []byte
}

// A suffix is the origins below a name: https://*.example is https:// and .example.
type suffix struct{ scheme, name []byte }

func newPolicy(c *Settings) *policy {
	p := &policy{origins: make(map[string]bool)}
	for i, name := range c.Expose {
		if i > 0 {
			p.expose = append(p.expose, ", "...)
		}
		p.expose = append(p.expose, name...)
	}
	for _, origin := range c.Origins {
		if scheme, name, below := strings.Cut(string(origin), "*"); origin == "*" {
			p.any = true
		} else if below {
			p.suffixes = append(p.suffixes, suffix{[]byte(scheme), []byte(name)})
		} else {
			p.origins[string(origin)] = true
		}
	}
	return p
}

// mostEchoed bounds what of a request an answer repeats.
const mostEchoed = 1024

// names reports whether an origin may read answers, and by its name.
func (p *policy) names(origin []byte) bool {
	if len(origin) == 0 || len(origin) > mostEchoed {
		return false
	}
	if p.origins[string(origin)] {
		return true
	}
	for _, s := range p.suffixes {
		if bytes.HasPrefix(origin, s.scheme) && bytes.HasSuffix(origin, s.name) &&
			len(origin) > len(s.scheme)+len(s.name) {
			return true
		}
	}
	return false
}

// isPreflight reports whether a request asks whether another may be sent, and for which method.
func isPreflight(x *edge.Exchange) (method []byte, is bool) {
	if string(x.Method) != http.MethodOptions {
		return nil, false
	}
	method = x.Head.First("access-control-request-method")
	return method, len(method) > 0 && len(method) <= mostEchoed && message.IsToken(method)
}

// spare has rules not count preflights of pages that may read answers.
func (p *policy) spare(x *edge.Exchange) bool {
	if _, is := isPreflight(x); is {
		if origin := x.Head.First("origin"); p.names(origin) || p.any && len(origin) > 0 {
			x.Spare(http.MethodOptions)
		}
	}
	return false
}

var (
	allOrigins = []byte("*")
	isTrue     = []byte("true")
	zero       = []byte("0")
	origin     = []byte("Origin")
)

// isRefusal reports whether a status is one that rules, lists and maintenance refuse with, or that
// sends the client elsewhere: no preflight may be redirected.
func isRefusal(status int) bool {
	return status < 400 || status == http.StatusTooManyRequests || status == http.StatusForbidden ||
		status == http.StatusServiceUnavailable
}

// answer adds to an answer of the edge's own that the page may read it. The refusal of a preflight
// becomes its approval, which holds for the next request alone.
func (p *policy) answer(x *edge.Exchange) {
	from := x.Head.First("origin")
	named := p.names(from)
	if len(from) == 0 || !named && !p.any || x.Status() < 300 {
		return // of a redirect as well: a browser follows none that it hides
	}
	method, preflight := isPreflight(x)
	if preflight && isRefusal(x.Status()) && !x.Checks() {
		x.Begin(http.StatusNoContent, "", nil)
		x.Add("Access-Control-Allow-Methods", method)
		asked := x.Head.First("access-control-request-headers")
		if len(asked) > 0 && len(asked) <= mostEchoed {
			x.Add("Access-Control-Allow-Headers", asked)
		}
		x.Add("Access-Control-Max-Age", zero)
	}
	if named {
		x.Add("Access-Control-Allow-Origin", from)
		x.Add("Access-Control-Allow-Credentials", isTrue)
		x.Add("Vary", origin)
	} else {
		x.Add("Access-Control-Allow-Origin", allOrigins)
	}
	if len(p.expose) > 0 && !preflight {
		x.Add("Access-Control-Expose-Headers", p.expose)
	}
}
