package config

import (
	"bytes"
	"fmt"
	"strings"

	"sluice/edge/message"
)

// A CheckPath is where other proxies request verdicts (nginx's auth_request, Traefik's ForwardAuth,
// Caddy's forward_auth, Envoy's ext_authz over HTTP): a request there is judged and counted as the
// one that it is about would be, and answered instead of forwarded.
//
// The source is found as that of any request: a trusted proxy names its client in source.header.
// What the request was is read as well from trusted peers only. Any other client gets a verdict on
// this very request, about itself: it can neither count for others nor learn their state.
type CheckPath struct {
	exact string // the canonical path; "": none
	// What the target begins with, with its last slash, where the original's target follows; "":
	// none
	Below string
}

// ParseCheckPath reads none, a path, or a path that ends in /*.
func ParseCheckPath(text string) (CheckPath, error) {
	if text == "" || text == "none" {
		return CheckPath{}, nil
	}
	prefix, below := strings.CutSuffix(text, "*")
	path, _ := message.AppendPath(nil, []byte(prefix))
	switch canonical := string(path); {
	case !strings.HasPrefix(text, "/") || strings.ContainsAny(prefix, "*?# \t") || below &&
		!strings.HasSuffix(prefix, "/") || prefix == "/":
		return CheckPath{},
			fmt.Errorf("%q is not a path to ask at: want one such as /check, or /check/* where the original path follows, or none", text)
	case canonical != prefix:
		return CheckPath{},
			fmt.Errorf("%q is never the path of a request as rules see it: write %s", text,
				canonical+text[len(prefix):])
	case below:
		return CheckPath{Below: prefix}, nil
	}
	return CheckPath{exact: text}, nil
}

// Is reports whether a request wants a verdict. A prefix is compared with the target as it came:
// what follows it is another target, whose dots must not lead out of it.
func (c CheckPath) Is(path, target []byte) bool {
	return c.exact != "" && string(path) == c.exact || c.Below != "" &&
		bytes.HasPrefix(target, []byte(c.Below))
}
