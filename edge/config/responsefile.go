package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
)

func (r *reader) response(n ast.Node, p *rules.Response) {
	f := r.settings("response.", p)
	f["location"] = r.kept("response.location", rules.CheckLocation, &p.Location)
	f["bodies"] = r.each("response.bodies", func(n ast.Node) {
		var b rules.Body
		r.into(n, "response.bodies", &b)
		switch {
		case b.ContentType == "" || b.Body == "":
			r.fail(n, "response.bodies: want a content_type and a body in each of them")
		case len(p.Bodies) == maxBodies:
			r.fail(n, "response.bodies: more than %d: leave out some", maxBodies)
		}
		p.Bodies = append(p.Bodies, b)
	})
	f["headers"] = r.pairs("response.headers", func(at, n ast.Node, text string) {
		name := scalar(at)
		if err := rules.CheckHeader(name, text); err != nil {
			r.fail(n, "response.headers: %v", err)
			return
		}
		if p.Headers == nil {
			p.Headers = make(map[string]string)
		}
		for other := range p.Headers {
			if strings.EqualFold(other, name) {
				r.fail(at, "response.headers: %s is there twice: remove one", name)
			}
		}
		p.Headers[name] = text
	})
	r.mapping(n, "response", f)
}

// maxBodies is how many bodies a response may have beside the first: a client's Accept is read for
// each.
const maxBodies = 8

// answer returns what is wrong with a rule's response for its action. A redirection without a
// status has 302.
func (r *reader) answer(n ast.Node, seen map[string]ast.Node, rule *rules.Config) {
	if seen["response"] != nil {
		n = seen["response"]
	}
	p := &rule.Response
	if rule.Action == rules.Redirect && p.Status == rules.Default("", 0).Response.Status {
		p.Status = 302
	}
	switch {
	case rule.Action != rules.Redirect && p.Location != "":
		r.fail(n,
			"response.location: only action: redirect sends clients anywhere: add it, or remove location")
	case rule.Action != rules.Redirect && p.Status < 400:
		r.fail(n, "response.status: %d is out of range: want 400 to 599", p.Status)
	case rule.Action != rules.Redirect:
	case p.Location == "":
		r.fail(n,
			"action: redirect needs a location to send clients to: add response: {location: https://…}")
	case p.Status != 302 && p.Status != 303 && p.Status != 307:
		r.fail(n, "response.status: %d is no redirection for a while: want 302, 303 or 307",
			p.Status)
	case p.Location[0] == '/' && rule.Match.About(pathOf(p.Location)):
		r.fail(n,
			"response.location: the rule is about %s as well, so clients would be sent there for ever: want another host, or a path that the rule's match leaves out", pathOf(p.Location))
	}
}

// pathOf is the path of a location without a host.
func pathOf(location string) string {
	path, _, _ := strings.Cut(location, "#")
	path, _, _ = strings.Cut(path, "?")
	canonical, _ := message.AppendPath(nil, []byte(path))
	return string(canonical)
}

func checkHeaderValue(text string) error {
	if strings.ContainsFunc(text, func(c rune) bool { return c < 0x20 || c == 0x7f }) {
		return fmt.Errorf("%q has bytes that no header may have", text)
	}
	return nil
}

func checkTagValue(text string) error {
	if text == "" || len(text) > 256 || !message.IsText([]byte(text)) ||
		strings.TrimSpace(text) != text {
		return fmt.Errorf("%q is not the value of a header: want 1 to 256 bytes of text", text)
	}
	return nil
}

// tags returns what makes no sense together with, or without, action: tag.
func (r *reader) tags(n ast.Node, seen map[string]ast.Node, rule *rules.Config) {
	standard := rules.Default("", 0)
	at := func(field string) ast.Node { return cmp.Or(seen[field], n) }
	switch {
	case rule.Action != rules.Tag:
		if rule.Tag != standard.Tag {
			r.fail(at("tag"), "tag: only action: tag sends origins anything: add it, or remove tag")
		}
	case !reflect.DeepEqual(rule.Response, standard.Response):
		r.fail(at("response"),
			"response: action: tag refuses no request, so no client gets it: remove it, or choose another action")
	case rule.OnStoreFailure == limiter.Closed:
		r.fail(at("on_store_failure"),
			"on_store_failure: closed refuses, and action: tag refuses no request: want local or open, or another action")
	}
}
