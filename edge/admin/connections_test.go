package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Who opens connections and lets them hang is cut off, not those who ask: a hundred of them, of which eight may be open, and a keep-alive
// connection that is in use all the while.
func TestConnections(t *testing.T) {
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	(&Connections{Most: 8}).Guard(served.Config)
	served.Start()
	t.Cleanup(served.Close)
	dial := func() net.Conn {
		t.Helper()
		nc, err := net.Dial("tcp", served.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	operator := dial()
	answers := bufio.NewReader(operator)
	ask := func() {
		t.Helper()
		fmt.Fprint(operator, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	var hanging []net.Conn
	var heard *bufio.Reader // of the last one
	for range 100 {
		ask()
		nc := dial()
		hanging = append(hanging, nc)
		fmt.Fprint(nc, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
		heard = bufio.NewReader(nc)
		if line, err := heard.ReadString('C'); err != nil { // 100 C…: the request has been taken
			t.Fatal(line, err)
		}
	}
	for i, nc := range hanging[:len(hanging)-7] {
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is open still", i)
		}
	}
	ask()
	fmt.Fprint(hanging[len(hanging)-1], "123456789")
	for range 2 { // the rest of the interim answer
		_, _ = heard.ReadString('\n')
	}
	if resp, err := http.ReadResponse(heard, nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the last one: %v, %v", resp, err)
	}
}

// Of two answers that are under way, neither is cut off by strangers who ask for nothing, whatever they have sent, and that of who has shown who he is
// not by any: a hundred of each kind, of which eight connections may be open.
func TestAnswersUnderWay(t *testing.T) {
	const most = 8
	for what, test := range map[string]struct {
		begins string
		whole  bool // they ask, and are being answered
	}{
		"nothing": {"", false}, "a part of a head": {"GET / HTTP/1.1\r\nHost: a", false},
		"a head":    {"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", false},
		"a request": {"GET /long HTTP/1.1\r\nHost: a\r\n\r\n", true},
	} {
		t.Run(what, func(t *testing.T) {
			conns, goOn := &Connections{Most: most}, make(chan struct{})
			end := sync.OnceFunc(func() { close(goOn) })
			served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, _, known := r.BasicAuth(); known {
					conns.Vouch(r)
				}
				if r.URL.Path == "/long" {
					_, _ = io.WriteString(w, "first ")
					_ = http.NewResponseController(w).Flush()
					<-goOn
				}
				_, _ = io.Copy(w, r.Body)
				_, _ = io.WriteString(w, "last")
			}))
			conns.Guard(served.Config)
			served.Start()
			t.Cleanup(served.Close)
			t.Cleanup(end)
			dial := func(begins string) *bufio.Reader {
				t.Helper()
				nc, err := net.Dial("tcp", served.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { nc.Close() })
				_ = nc.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.WriteString(nc, begins)
				return bufio.NewReader(nc)
			}
			begun := func(begins string) *http.Response {
				t.Helper()
				resp, err := http.ReadResponse(dial(begins), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(resp.Body, make([]byte, len("first "))); err != nil {
					t.Fatal(err)
				}
				return resp
			}
			unknown, known := begun("GET /long HTTP/1.1\r\nHost: a\r\n\r\n"), begun("GET /long HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\n\r\n")
			for range 100 {
				if r := dial(test.begins); strings.HasSuffix(test.begins, "\r\n\r\n") {
					if _, err := r.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !test.whole { // connections are taken in order, so when the last is answered all have come
				if resp, err := http.ReadResponse(dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("a new one: %v, %v", resp, err)
				}
			}
			end()
			if text, err := io.ReadAll(known.Body); string(text) != "last" || err != nil {
				t.Errorf("the answer to who is known ends with %q, %v", text, err)
			}
			if text, err := io.ReadAll(unknown.Body); (string(text) != "last" || err != nil) != test.whole {
				t.Errorf("the other one's ends with %q, %v", text, err)
			}
		})
	}
}

// Where everybody is known who is being answered, a new connection is the one that goes, until one of them has its answer.
func TestAllAreKnown(t *testing.T) {
	var conns Connections
	conns.Most = 2
	var ends [4]net.Conn
	for i := range ends {
		ends[i], _ = net.Pipe()
	}
	closed := func(c net.Conn) bool { return c.SetDeadline(time.Time{}) != nil }
	vouch := func(c net.Conn) {
		r, _ := http.NewRequest("GET", "/", nil)
		conns.Vouch(r.WithContext(context.WithValue(t.Context(), connectionKey{}, c)))
	}
	for _, c := range ends[:2] {
		conns.state(c, http.StateNew)
		conns.state(c, http.StateActive)
		vouch(c)
	}
	conns.state(ends[2], http.StateNew)
	conns.state(ends[2], http.StateClosed)
	if closed(ends[0]) || closed(ends[1]) || !closed(ends[2]) {
		t.Error("a new connection pushes out a known one")
	}
	conns.state(ends[1], http.StateIdle)
	conns.state(ends[3], http.StateNew)
	if closed(ends[0]) || !closed(ends[1]) || closed(ends[3]) {
		t.Error("one that has been answered stays in the way of a new one")
	}
}
