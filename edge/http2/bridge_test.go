package http2_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/edgetest"
	"sluice/edge/listen"
)

// A crossed request is what an origin has read from one connection.
type crossed struct {
	r     *http.Request
	body  []byte
	whole bool
	wrong string // what is no request, or came after it
}

// of reports whether it is about a run.
func (x crossed) of(run string) bool {
	return strings.Contains(x.wrong, run) || x.r != nil && x.r.Header.Get("X-Run") == run
}

// startStrict is an origin that takes one request from each connection, and tells of all that comes.
func startStrict(tb testing.TB) (url string, got chan crossed) {
	got = make(chan crossed, 16)
	return "http://" + edgetest.ListenEach(tb, "tcp4", func(c net.Conn) {
		defer c.Close()
		var all bytes.Buffer
		in := bufio.NewReader(io.TeeReader(c, &all))
		r, err := http.ReadRequest(in)
		if err != nil {
			if all.Len() > 0 {
				got <- crossed{wrong: all.String()}
			}
			return
		}
		x := crossed{r: r}
		x.body, err = io.ReadAll(r.Body)
		if x.whole = err == nil; x.whole {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			_ = c.(*net.TCPConn).CloseWrite()
			rest, _ := io.ReadAll(in)
			x.wrong = string(rest)
		}
		got <- x
	}), got
}

// Whatever fields and whatever body a stream has, what reaches an origin is exactly one request, the one that was asked for, if it is answered, and
// else none, or none that is whole, or that one. Fields are those between "\xff" in a text, by turns names and values.
func FuzzBridge(f *testing.F) {
	url, got := startStrict(f)
	s := edgetest.NewServer(f, edgetest.Parse(f, "http2: {cleartext: true}\nsource: {trust: ['::/128']}\norigins: [{servers: ['"+url+"']}]"))
	add := func(body string, more ...string) {
		f.Add(strings.Join(append([]string{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/p"}, more...), "\xff"), []byte(body), "", body == "")
	}
	add("")
	add("hello", "content-length", "5", "cookie", "a=1", "cookie", "b=2")
	add("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", "content-length", "0", "transfer_encoding", "chunked", "te", "trailers")
	add("x", "expect", "100-continue", "trailer", "x-sum", "via", "1.1 a", "x-forwarded-for", "1.2.3.4", "x-request-id", "1")
	f.Add(":method\xffCONNECT\xff:protocol\xffwebsocket\xff:scheme\xffhttps\xff:authority\xffa\xff:path\xff/p", []byte("hello"), "x-sum\xff5", false)
	var run atomic.Uint64
	f.Fuzz(func(t *testing.T, text string, body []byte, trailer string, end bool) {
		here, there := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(there))
		}()
		fields := strings.Split(text, "\xff")
		name := fmt.Sprint("run-", run.Add(1), "-") // tells its requests from those that came late of others
		fields = append(fields[:len(fields)&^1], "x-run", name)
		var said bytes.Buffer
		said.WriteString(frames.ClientPreface)
		client := &framesClient{T: t, c: here, Answers: make(map[uint32]*answer2), Framer: frames.NewFramer(&said, here)}
		client.encoder = hpack.NewEncoder(&client.block)
		client.AllowIllegalWrites = true
		edgetest.Must(t, client.WriteSettings())
		if client.Ask(1, end, fields...); !end {
			_ = client.WriteData(1, trailer == "", body)
			if last := strings.Split(trailer, "\xff"); trailer != "" {
				client.Ask(1, true, last[:len(last)&^1]...)
			}
		}
		client.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		go func() { _, _ = here.Write(said.Bytes()) }() // and not first: the other end of a pipe has something to say
		a := client.Answer(1)
		here.Close()
		<-served
		sent := make(map[string]string)
		for i := 0; i+1 < len(fields); i += 2 {
			sent[fields[i]] = fields[i+1]
		}
		var list []crossed
		for answered := a.status == "200"; answered || len(got) > 0; answered = false {
			x := <-got
			for ; answered && !x.of(name); x = <-got {
			}
			if x.of(name) {
				list = append(list, x)
			}
		}
		for _, x := range list {
			switch {
			case x.wrong != "":
				t.Errorf("%q: the origin got %q", text, x.wrong)
			case x.r.RequestURI != sent[":path"], x.r.Method != sent[":method"] && sent[":method"] != "CONNECT":
				t.Errorf("%q: the origin got %s %s", text, x.r.Method, x.r.RequestURI)
			case x.whole && !end && sent[":method"] != "CONNECT" && !bytes.Equal(x.body, body):
				t.Errorf("%q: the origin got %q, and the body is %q", text, x.body, body)
			}
		}
		if len(list) > 1 {
			t.Errorf("%q: the origin got %d requests", text, len(list))
		}
	})
}
