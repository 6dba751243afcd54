package proxy

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/socket"
	"sluice/edge/upstream"
)

// halfOpen is how long a tunnel stays open in one direction after the other has ended.
const halfOpen = 10 * time.Second

// wantsUpgrade returns the protocol that a request wants to switch to, if the origin's servers take
// it.
//
// What is said in a tunnel is not judged, so nothing may be tunnelled that could carry further
// requests: HTTP/2 is none of the protocols that a configuration accepts.
//
// Such a request is sent like others, on a kept connection if there is one: most that carry this
// header are never answered with a 101, and then the connection goes back. Only a connection that
// has switched is not used again.
func (p *Forward) wantsUpgrade(g *upstream.Group) []byte {
	if len(g.Upgrades) == 0 {
		return nil
	}
	protocol := p.in.Upgrade
	if slices.ContainsFunc(g.Upgrades, func(may string) bool {
		return message.EqualFold(protocol,
			may)
	}) {
		return protocol
	}
	return nil
}

// switched reports whether the head of a 101 switches to the protocol that was requested.
func (p *Forward) switched() bool {
	found := false
	for i := range p.answer.Head.Lines {
		if l := &p.answer.Head.Lines[i]; l.Kind == message.HopByHop &&
			message.EqualFold(l.Name, "upgrade") {
			if found || !message.EqualFold(l.Value, strings.ToLower(string(p.upgrade))) {
				return false
			}
			found = true
		}
	}
	return found && p.upgrade != nil && (!p.in.Tunnel || p.accepted())
}

// accepted reports whether the server has understood the key of a WebSocket (RFC 6455, 4.2.2). A
// client that has sent one looks for itself.
func (p *Forward) accepted() bool {
	const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum(append(bytes.Clone(p.in.Head.First("sec-websocket-key")), guid...))
	return string(p.answer.Head.First("sec-websocket-accept")) == base64.StdEncoding.EncodeToString(sum[:])
}

var (
	noTunnel = message.Refuse(http.StatusNotImplemented, "no_tunnel",
		"There are no tunnels to the server behind this one.")
	notSwitched = message.Refuse(http.StatusBadGateway, "not_switched",
		"The server behind this one does not speak that protocol there.")
)

// Tunnel joins the client's connection and the origin's, after the answer that switches, and blocks
// until the tunnel is over. Neither is ever used for a request again.
func (p *Forward) Tunnel(client net.Conn) {
	p.unwatch()
	_ = client.SetDeadline(time.Time{})
	defer p.over()
	defer func() {
		if fault := recover(); fault != nil {
			p.Fault(fault)
		}
	}()
	join(client, p.open.link, p.Bounds.TunnelTime)
}

// A pipe copies between two connections until both directions have ended or nothing has moved in
// either for a while.
type pipe struct {
	idle time.Duration
	last atomic.Int64 // when something moved last, Unix nanoseconds
	half atomic.Bool  // one direction has ended
}

// join blocks until the tunnel is over. The origin's end may have been read ahead of.
func join(client net.Conn, origin *upstream.Link, idle time.Duration) {
	t := &pipe{idle: idle}
	t.last.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if recover() != nil {
				origin.Close()
			}
		}()
		t.copy(origin, client, client)
	}()
	_ = origin.SetDeadline(time.Time{})
	t.copy(client, origin, origin.Reader)
	<-done
}

// copy moves what from holds, which is src and perhaps something read from it before.
func (t *pipe) copy(dst, src net.Conn, from io.Reader) {
	buf := make([]byte, 16<<10)
	var err error
	for {
		var n int
		last := time.Unix(0, t.last.Load())
		if !t.half.Load() && src.SetReadDeadline(last.Add(t.idle)) != nil {
			break
		}
		n, err = from.Read(buf)
		if n > 0 {
			now := time.Now()
			t.last.Store(now.UnixNano())
			if dst.SetWriteDeadline(now.Add(t.idle)) != nil {
				break
			}
			if _, err = dst.Write(buf[:n]); err != nil {
				break
			}
		}
		// Else the other direction was busy
		if err != nil && (!http1.TimedOut(err) || t.half.Load() ||
			time.Since(time.Unix(0, t.last.Load())) >= t.idle) {
			break
		}
	}
	// The end of one direction is passed on; the other may have something left to say, but not for
	// ever. It has not if nothing has moved in either direction, or if the client has gone.
	over := http1.TimedOut(err) && !t.half.Load() || errors.Is(err, syscall.ECONNRESET)
	t.half.Store(true)
	_ = dst.SetReadDeadline(time.Now().Add(halfOpen))
	if half, ok := socket.Innermost(dst).(interface{ CloseWrite() error }); !ok ||
		half.CloseWrite() != nil || over {
		_ = dst.SetReadDeadline(socket.LongAgo)
	}
}
