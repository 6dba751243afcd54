package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// Who opens connections and lets them hang is cut off, not those who ask: a hundred of them, of which eight may be open, and a keep-alive
// connection that is in use all the while.
func TestConnections(t *testing.T) {
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	served.Config.ConnState = (&Connections{Most: 8}).State
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
