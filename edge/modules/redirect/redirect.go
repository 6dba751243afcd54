// Package redirect sends clients of listeners that redirect to the same host and target over https.
package redirect

import (
	"bytes"
	"net/http"
	"strconv"

	"sluice/edge"
	"sluice/edge/message"
)

// Module redirects.
func Module() edge.Module {
	gates := []edge.Gate{{Phase: edge.Redirect, Answer: redirect}}
	return edge.Module{Name: "redirect", Prepare: func(*edge.Setup) (edge.Points, error) {
		return edge.Points{Gates: gates}, nil
	}}
}

// redirect answers a request at a listener that redirects: 308, so that the method and the body
// stay, to the same host and target over https. No rule counts it: it costs an edge as little as a
// refusal, reaches no origin, and would count twice. Deny goes before it.
func redirect(x *edge.Exchange) bool {
	port := x.Front().Redirect()
	if port == 0 {
		return false
	}
	if len(x.Host) == 0 {
		x.Respond(noHost)
		return true
	}
	room := x.Room()
	b := append(append(*room, "https://"...), x.Host...)
	if port != 443 {
		b = strconv.AppendUint(append(b, ':'), uint64(port), 10)
	}
	*room = append(b, originForm(x.Target)...)
	x.Begin(http.StatusPermanentRedirect, "", nil)
	x.Add("Location", *room)
	return true
}

var noHost = message.Refuse(http.StatusBadRequest, "no_host",
	"The request names no host, so it cannot be sent to https.")

// originForm is a request target without the scheme and the authority that one in absolute form has
// (RFC 9112, 3.2). It begins with a slash.
func originForm(target []byte) []byte {
	if len(target) > 0 && target[0] == '/' {
		return target
	}
	if _, rest, absolute := bytes.Cut(target, []byte("://")); absolute {
		switch i := bytes.IndexAny(rest, "/?"); {
		case i >= 0 && rest[i] == '/':
			return rest[i:]
		case i >= 0:
			return append([]byte("/"), rest[i:]...)
		}
	}
	return []byte("/") // that of OPTIONS * is of no resource
}
