package edge

import (
	"bytes"
	"errors"
	"net/http"

	"sluice/edge/config"
	"sluice/edge/http1"
	"sluice/edge/message"
)

var errCheck = errors.New("edge: the request that a proxy wants checked is malformed, or given in two ways")

// Headers in which proxies describe the request to be checked.
var (
	checkTargets = [...]string{"x-original-uri", "x-forwarded-uri"}
	checkMethods = [...]string{"x-original-method", "x-forwarded-method"}
	checkHosts   = [...]string{"x-forwarded-host"}
)

// readCheck replaces the check of a trusted proxy by the request to be checked, for rules and the
// log. What the proxy leaves out is taken from its own request. Below a prefix the target follows,
// and nothing else is read: such a proxy sends method and host as they were.
func (x *Exchange) readCheck(c config.CheckPath) error {
	if c.Below != "" {
		x.Target = x.Target[len(c.Below)-1:]
		return x.canonical()
	}
	target, err := x.checked(checkTargets[:])
	if err != nil {
		return err
	}
	method, err := x.checked(checkMethods[:])
	if err != nil {
		return err
	}
	host, err := x.checked(checkHosts[:])
	if err != nil {
		return err
	}
	if host != nil && !x.SetHost(host) {
		return errCheck
	}
	if method != nil {
		if !message.IsMethod(method) {
			return errCheck
		}
		x.Method = method
	}
	if target == nil {
		return nil
	}
	x.Target = target
	return x.canonical()
}

// canonical is the path of the target to be checked, within the bounds of one that is forwarded:
// without a fragment, of which some origins take nothing for the path or the query and others all,
// and without what ends a target.
func (x *Exchange) canonical() error {
	if _, _, ok := http1.Authority(x.Target); !ok || len(x.Target) == 0 ||
		bytes.ContainsAny(x.Target, "# \t") {
		return errCheck
	}
	if x.SetPath() != nil {
		return errCheck
	}
	return nil
}

// checked is the one value of some headers; nil if none is there. A proxy sets one of them and
// passes the others on as its client wrote them, so two that differ may be an attempt to be judged
// as somebody else's request.
func (x *Exchange) checked(names []string) (value []byte, err error) {
	for i := range x.Head.Lines {
		l := &x.Head.Lines[i]
		for _, name := range names {
			if !message.EqualFold(l.Name, name) {
				continue
			}
			if len(l.Value) == 0 || value != nil && !bytes.Equal(value, l.Value) {
				return nil, errCheck
			}
			value = l.Value
		}
	}
	return value, nil
}

// grant answers a check that no rule refused: with what the strictest of them has left. There is no
// answer of an origin, so rules that count by its status count nothing here, and one that learns
// the cost of a request from it counts 1. What the origin should receive about a request over a
// limit, the proxy receives.
func (x *Exchange) grant() {
	x.begins(http.StatusOK, "", nil)
	for _, f := range x.tagged() {
		x.reply.add(f.Name, f.Value)
	}
	x.limitHeaders()
	x.verdictHeader()
	x.reply.add("Cache-Control", noStore)
}
