package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/message"
)

// A request that Start answers is the loop's until Start has returned, however long that takes and whatever becomes of the answer meanwhile: nobody else
// has its stream, and no other request can be given it.
func TestStreamIsLoopsUntilStartReturns(t *testing.T) {
	for _, window := range []uint32{0, 1000, 1 << 20} { // the answer waits for ever, goes in part, goes at once
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			inTalk(t, func(k *talk) {
				var had *Stream
				answered, goOn := make(chan error), make(chan struct{})
				k.site.Start = func(st *Stream) Continuation {
					had = st
					err := st.Respond(&message.Reply{Status: 429, Body: make([]byte, 3*frameSize)})
					answered <- err
					<-goOn
					return nil
				}
				_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: window})
				k.get(1, "/", true, true)
				err := <-answered
				wrote := had.Wrote()
				synctest.Wait() // whoever else could go on with the stream has done so
				if err != nil || had.conn == nil || had.id != 1 || !had.Wrote().Equal(wrote) || string(had.Request().Path) != "/" {
					t.Errorf("%v; stream %d, of no connection: %t", err, had.id, had.conn == nil)
				}
				close(goOn)
				synctest.Wait()
				_ = k.WriteWindowUpdate(1, 1<<20)
				k.expect("1: 429")
				k.site.Start = func(st *Stream) Continuation { return answering{st, nil} }
				k.get(3, "/", true, true)
				k.expect("3: 200")
			})
		})
	}
}

// owned answers with pages that name their request, and are longer than the loop sends at once: half of them in Start, and half in a goroutine.
type owned struct{ st *Stream }

func (o owned) Run() { o.respond(http.StatusOK) }

func (o owned) respond(status int) {
	body := bytes.Repeat(append(bytes.Clone(o.st.Request().Path), '\n'), 5*frameSize/len(o.st.Request().Path))
	_ = o.st.Respond(&message.Reply{Status: status, Body: body})
	clear(body) // it is lent
}

// Requests of many connections at once get their own answers, whole, though streams and buffers pass from one connection to another all the time.
func TestStreamsOfManyConnections(t *testing.T) {
	const connections, streams, each = 6, 4, 40
	site := &Server{MaxStreams: streams, Server: &front.Server{
		Limits: front.Limits{HeaderBytes: 4 << 10, HeaderLines: 20, HeaderTimeout: time.Minute, IdleTimeout: time.Minute},
		Leave:  func(*front.Client) {}, Forget: func(*front.Client) {}, Fault: func(p any) { t.Errorf("fault: %v", p) },
	}}
	site.Start = func(st *Stream) Continuation {
		path := string(st.Request().Path)
		if strings.HasSuffix(path, "/later") {
			return owned{st}
		}
		owned{st}.respond(http.StatusTooManyRequests)
		if got := string(st.Request().Path); got != path {
			t.Errorf("the stream of %s became that of %s", path, got)
		}
		return nil
	}
	var serving, asking sync.WaitGroup
	for i := range connections {
		here, there := connected(t)
		client := &front.Client{Conn: there, Raw: there, Server: site.Server, Peer: netip.MustParseAddr("192.0.2.1"), Accepted: time.Now().UnixNano()}
		serving.Go(func() { site.Serve(client); client.Close() })
		conn, err := new(frames.Transport).NewClientConn(here)
		if err != nil {
			t.Fatal(err)
		}
		var busy sync.WaitGroup
		for j := range streams {
			busy.Go(func() {
				for n := range each {
					path, want := fmt.Sprintf("/%d/%d/%d/now", i, j, n), http.StatusTooManyRequests
					if (i+j+n)%2 == 0 {
						path, want = fmt.Sprintf("/%d/%d/%d/later", i, j, n), http.StatusOK
					}
					if err := ask(conn, path, want); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
			})
		}
		asking.Go(func() { busy.Wait(); conn.Close() })
	}
	asking.Wait()
	serving.Wait()
}

// ask requests a page that names its request.
func ask(conn *frames.ClientConn, path string, want int) error {
	r, err := http.NewRequest(http.MethodGet, "https://a"+path, nil)
	if err != nil {
		return err
	}
	answer, err := conn.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if n := 5 * frameSize / len(path); answer.StatusCode != want || len(page) != n*(len(path)+1) || strings.Count(string(page), path+"\n") != n {
		return fmt.Errorf("%d with %d bytes, %d of them its own", answer.StatusCode, len(page), strings.Count(string(page), path+"\n")*(len(path)+1))
	}
	return nil
}

// connected is a connection over TCP, at both its ends.
func connected(t *testing.T) (here, there net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if here, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	if there, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return here, there
}
