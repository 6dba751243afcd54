package listen

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"

	"sluice/edge/front"
)

const (
	// proxyTimeout is how long a proxy may take for its PROXY header, which it sends before
	// anything else and at once. The connection waits in a separate goroutine: a silent one delays
	// no other.
	proxyTimeout = 3 * time.Second
	// proxyBuffer is what is read at once in search of a header. Longer ones are read in pieces.
	proxyBuffer = 512
)

// A proxiedConn is the connection of a trusted proxy that names its client in a PROXY header,
// version 1 or 2 (haproxy.org, proxy-protocol.txt). The first Read reads the header; without a
// valid one the connection ends unanswered.
type proxiedConn struct {
	net.Conn
	registry *Registry
	client   *front.Client // is called with the client
	then     time.Duration
	read     bool
	err      error
	br       *bufio.Reader // what came with the header; nil once it has been read
}

// UnsafeConn is the connection behind the header.
func (p *proxiedConn) UnsafeConn() net.Conn { return p.Conn }

func (p *proxiedConn) Read(b []byte) (int, error) {
	if !p.read {
		p.read = true
		p.err = p.header()
	}
	if p.err != nil {
		return 0, p.err
	}
	if p.br != nil {
		if p.br.Buffered() > 0 {
			return p.br.Read(b)
		}
		p.br = nil
	}
	return p.Conn.Read(b)
}

// header reads the header and counts the connection for the source that it names.
func (p *proxiedConn) header() error {
	if err := p.Conn.SetReadDeadline(time.Now().Add(min(proxyTimeout, p.then))); err != nil {
		return err
	}
	p.br = bufio.NewReaderSize(p.Conn, proxyBuffer)
	client, local, err := readProxyHeader(p.br)
	l := p.registry
	if err != nil {
		l.Stats.BadProxy.Add(1)
		return io.EOF // there is no one to answer
	}
	if p.client.Unnamed = local; !local {
		p.client.Peer = client
		if l.ShedNamed != nil && l.ShedNamed(client) || !l.recount(p.client) {
			return io.EOF
		}
	}
	return p.Conn.SetReadDeadline(time.Now().Add(p.then))
}

// readProxyHeader returns the client that a header names; local means that it names none, as in a
// proxy's own health check, or because the proxy does not know: then the connection counts for the
// proxy, and nothing on it about clients is believed, because it may come from a client.
func readProxyHeader(br *bufio.Reader) (client netip.Addr, local bool, err error) {
	h, err := proxyproto.Read(br)
	if err != nil {
		return client, false, err
	}
	if h.Command.IsLocal() {
		return client, true, nil
	}
	a, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok {
		return client, false, proxyproto.ErrUnsupportedAddressFamilyAndProtocol
	}
	return a.AddrPort().Addr().Unmap().WithZone(""), false, nil
}
