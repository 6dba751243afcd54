package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// A checkPath is where other proxies ask for verdicts (nginx's auth_request, Traefik's ForwardAuth, Caddy's forward_auth,
// Envoy's ext_authz over HTTP): a request there is judged and counted as the one that it is about would be, and answered
// instead of forwarded.
//
// Who asks is identified as the source of any request is: a trusted proxy names its client in source.header. What the
// request was is read as well from trusted peers only. Anybody else who asks gets a verdict on this very request, for
// himself: he can neither count for others nor learn how they stand.
type checkPath struct {
	exact string // the canonical path; "": none
	below string // what the target begins with, with its last slash, where the original's target follows; "": none
}

// parseCheckPath reads none, a path, or a path that ends in /*.
func parseCheckPath(text string) (checkPath, error) {
	if text == "" || text == "none" {
		return checkPath{}, nil
	}
	prefix, below := strings.CutSuffix(text, "*")
	path, _ := message.AppendPath(nil, []byte(prefix))
	switch canonical := string(path); {
	case !strings.HasPrefix(text, "/") || strings.ContainsAny(prefix, "*?# \t") || below && !strings.HasSuffix(prefix, "/") || prefix == "/":
		return checkPath{}, fmt.Errorf("%q is not a path to ask at: want one such as /check, or /check/* where the original path follows, or none", text)
	case canonical != prefix:
		return checkPath{}, fmt.Errorf("%q is never the path of a request as rules see it: write %s", text, canonical+text[len(prefix):])
	case below:
		return checkPath{below: prefix}, nil
	}
	return checkPath{exact: text}, nil
}

// is reports whether a request asks for a verdict. A prefix is compared with the target as it came: what follows it is a
// target of its own, whose dots must not lead out of it.
func (c checkPath) is(path, target []byte) bool {
	return c.exact != "" && string(path) == c.exact || c.below != "" && bytes.HasPrefix(target, []byte(c.below))
}

var errAsked = errors.New("edge: the request that a proxy asks about is malformed, or told in two ways")

// Headers in which proxies say what the request was that they ask about.
var (
	askedTargets = [...]string{"x-original-uri", "x-forwarded-uri"}
	askedMethods = [...]string{"x-original-method", "x-forwarded-method"}
	askedHosts   = [...]string{"x-forwarded-host"}
)

// ask puts the request that a trusted proxy asks about in place of the one that asks, for rules and the log. What it does
// not say is taken from the request that asks. Below a prefix the target follows, and nothing else is read: such a proxy
// sends method and host as they were.
func (x *exchange) ask(c checkPath) error {
	if c.below != "" {
		x.Target = x.Target[len(c.below)-1:]
		return x.canonical()
	}
	target, err := x.asked(askedTargets[:])
	if err != nil {
		return err
	}
	method, err := x.asked(askedMethods[:])
	if err != nil {
		return err
	}
	host, err := x.asked(askedHosts[:])
	if err != nil {
		return err
	}
	if host != nil {
		canonical, ok := message.AppendHost(x.HostBuf[:0], host)
		if !ok {
			return errAsked
		}
		x.HostBuf, x.Host, x.RawHost = canonical, canonical, host
	}
	if method != nil {
		if !message.IsMethod(method) {
			return errAsked
		}
		x.Method = method
	}
	if target == nil {
		return nil
	}
	x.Target = target
	return x.canonical()
}

// canonical is the path of the target that is asked about.
func (x *exchange) canonical() error {
	if _, _, ok := http1.Authority(x.Target); !ok || len(x.Target) == 0 {
		return errAsked
	}
	if x.Path, x.Readings = message.AppendPath(nil, x.Target); x.Readings&message.TooMany != 0 || len(message.RawPath(x.Target)) > message.MaxPath {
		return errAsked
	}
	return nil
}

// asked is the one value of some headers; nil if none is there. A proxy sets one of them and passes the others on as its
// client wrote them, so two that differ may be an attempt to be judged as somebody else's request.
func (x *exchange) asked(names []string) (value []byte, err error) {
	for i := range x.Head.Lines {
		l := &x.Head.Lines[i]
		for _, name := range names {
			if !message.EqualFold(l.Name, name) {
				continue
			}
			if len(l.Value) == 0 || value != nil && !bytes.Equal(value, l.Value) {
				return nil, errAsked
			}
			value = l.Value
		}
	}
	return value, nil
}

// grant answers a check that no rule refused: with what the strictest of them has left. There is no answer of an origin, so
// rules that count by its status count nothing here.
func (x *exchange) grant() {
	x.begins(http.StatusOK, "", nil)
	x.limitHeaders()
	x.verdictHeader()
	x.reply.add("Cache-Control", noStore)
}
