package http2

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
	"sluice/edge/screen"
)

// A lateConn tells late that it has written.
type lateConn struct {
	net.Conn
	wrote func()
}

func (c lateConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote()
	return n, err
}

type runs func()

func (r runs) Run() { r() }

// A client that has all of its answer may go at once, even before the edge knows that it has written it. What goes wrong if the end of the
// connection decides: the answer counts as aborted, and who counts what clients got finds one too many.
func TestAnsweredBeforeTheClientHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		answering := false
		conn := lateConn{there, func() {
			if answering {
				here.Close()
				synctest.Wait() // the loop has seen the end, and waits for the request
			}
		}}
		answered := errGone
		site := &Site{MaxStreams: 4, Site: &screen.Site{
			Limits: screen.Limits{HeaderBytes: 4 << 10, HeaderLines: 20, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, BodyRate: 500, AnswerRate: 500},
			Leave:  func(*screen.Client) {}, Forget: func(*screen.Client) {}, Fault: func(p any) { t.Error(p) },
		}}
		site.Start = func(st *Stream) Rest {
			return runs(func() {
				answering = true
				answered = st.Respond(&message.Reply{Status: 200, Body: []byte("hello")})
				answering = false
			})
		}
		go io.Copy(io.Discard, here)
		go func() {
			_, _ = io.WriteString(here, frames.ClientPreface)
			f := frames.NewFramer(here, nil)
			_ = f.WriteSettings()
			_ = f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true,
				BlockFragment: block(":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/")})
		}()
		site.Serve(&screen.Client{Conn: conn, Raw: there, Site: site.Site, Peer: netip.MustParseAddr("192.0.2.1"), Accepted: time.Now().UnixNano()})
		if answered != nil {
			t.Errorf("the answer was written, and the edge says: %v", answered)
		}
	})
}
