package h2origin

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/http1"
)

// What a server says is written as HTTP/1.1, and what breaks off has no end.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name string
		say  func(r *raw, id uint32)
		want string // of the answer
	}{
		{"a head alone", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "grpc-status", "5") },
			"HTTP/1.1 200 OK\r\nGrpc-Status: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		{"an announced length", func(r *raw, id uint32) {
			r.head(id, false, ":status", "404", "content-length", "3", "a", "1", "a", "2")
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 404 Not Found\r\nA: 1\r\nA: 2\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"},
		{"trailers", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			r.head(id, true, "x-b", "2", "x-a", "1")
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n"},
		{"interim heads", func(r *raw, id uint32) {
			r.head(id, false, ":status", "103", "link", "</a>")
			r.head(id, true, ":status", "200")
		}, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		{"a body that breaks off", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			_ = r.WriteRSTStream(id, frames.ErrCodeInternal)
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"one that is shorter than announced", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "5")
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabc"},
		{"one that is longer", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "1")
			_ = r.WriteData(id, true, []byte("abc"))
		}, malformed},
		{"one that is longer, in parts", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "1")
			_ = r.WriteData(id, false, []byte("a"))
			synctest.Wait()
			_ = r.WriteData(id, true, []byte("bc"))
		}, malformed},
		{"one that is longer, whose head has gone", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "3")
			_ = r.WriteData(id, false, []byte("ab"))
			synctest.Wait()
			_ = r.WriteData(id, true, []byte("cd"))
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nab"},
		{"one that is longer, and comes late", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "1")
			time.Sleep(holdTime) // in virtual time
			_ = r.WriteData(id, true, []byte("abc"))
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"},
		{"one of no byte that has some", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "0")
			time.Sleep(holdTime / 2)
			_ = r.WriteData(id, true, []byte("abc"))
		}, malformed},
		{"one that ends with its head", func(r *raw, id uint32) {
			r.head(id, true, ":status", "200", "content-length", "5")
		}, malformed},
		{"one that comes late", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "3")
			time.Sleep(10 * holdTime)
			_ = r.WriteData(id, false, []byte("abc"))
			time.Sleep(10 * holdTime)
			_ = r.WriteData(id, true, nil)
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"},
		{"two lengths", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "2", "content-length", "3")
			_ = r.WriteData(id, true, []byte("abc"))
		}, malformed},
		{"two lengths in one field", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "4, 4")
			_ = r.WriteData(id, true, []byte("abcd"))
		}, malformed},
		{"a length with a sign", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200", "content-length", "+4")
			_ = r.WriteData(id, true, []byte("abcd"))
		}, malformed},
		{"a length that is none", func(r *raw, id uint32) { r.head(id, true, ":status", "304", "content-length", "abc") }, malformed},
		{"a length of what is not sent", func(r *raw, id uint32) { r.head(id, true, ":status", "304", "content-length", "5") },
			"HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"},
		{"a length of nothing", func(r *raw, id uint32) { r.head(id, true, ":status", "204", "content-length", "0") },
			"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
		{"a length for HEAD", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "content-length", "5") },
			"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"},
		{"two lengths for HEAD", func(r *raw, id uint32) {
			r.head(id, true, ":status", "200", "content-length", "2", "content-length", "3")
		}, malformed},
		{"a reset", func(r *raw, id uint32) { _ = r.WriteRSTStream(id, frames.ErrCodeRefusedStream) }, ""},
		{"a call that the server cancels", func(r *raw, id uint32) { _ = r.WriteRSTStream(id, frames.ErrCodeCancel) },
			"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nConnection: close\r\nContent-Length: 0\r\nGrpc-Status: 4\r\n\r\n"},
		{"a call that it cancels when it has answered", func(r *raw, id uint32) {
			r.head(id, false, ":status", "200")
			_ = r.WriteData(id, false, []byte("abc"))
			_ = r.WriteRSTStream(id, frames.ErrCodeCancel)
		}, "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 4\r\n\r\n"},
		{"a line break in a value", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "a", "b\r\nc: d") }, ""},
		{"a head that frames otherwise", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "transfer-encoding", "chunked") }, malformed},
		{"a head that keeps the connection", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "keep-alive", "timeout=1") }, malformed},
		{"a head that closes it", func(r *raw, id uint32) { r.head(id, true, ":status", "204", "connection", "close") }, malformed},
		{"a head that upgrades it", func(r *raw, id uint32) { r.head(id, true, ":status", "200", "upgrade", "h2c") }, malformed},
		{"an interim head about it", func(r *raw, id uint32) { r.head(id, false, ":status", "103", "proxy-connection", "close") }, ""},
		{"no status", func(r *raw, id uint32) { r.head(id, true, "a", "b") }, ""},
		{"a head that is too long", func(r *raw, id uint32) {
			fields := []string{":status", "200"}
			for i := range 40 {
				fields = append(fields, fmt.Sprint("a", i), strings.Repeat("x", 1000))
			}
			r.block.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			b := r.block.Bytes()
			_ = r.WriteHeaders(frames.HeadersFrameParam{StreamID: id, BlockFragment: b[:10_000], EndStream: true})
			_ = r.WriteContinuation(id, false, b[10_000:20_000])
			_ = r.WriteContinuation(id, true, b[20_000:])
		}, ""},
		{"interim heads without end", func(r *raw, id uint32) {
			for range 10 {
				r.head(id, false, ":status", "103")
			}
		}, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 8)},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				text := get
				if strings.Contains(test.name, "for HEAD") {
					text = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
				}
				if strings.Contains(test.name, "call") {
					text = "GET / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nGrpc-Timeout: 1S\r\n\r\n"
				}
				c, answer := w.ask(text)
				r := <-w.made
				id := r.request()
				go func() {
					for r.next() != nil {
					}
				}()
				test.say(r, id)
				if got := all(answer); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
				c.Close()
			})
		})
	}
}

// An answer whose announced bytes have all come is there within holdTime of the last, whenever its
// stream ends, if ever, and holds nothing from then on.
func TestWholeWithoutItsEnd(t *testing.T) {
	eighth := strings.Repeat("x", 8<<10)
	never := func(*raw, uint32) {}
	for _, test := range []struct {
		name, length string
		parts        []string // a second apart
		after        func(r *raw, id uint32)
	}{
		{"one that ends late", "2", []string{"ok"}, func(r *raw, id uint32) {
			_ = r.WriteData(id, true, nil)
		}},
		{"one that never ends", "2", []string{"ok"}, never},
		{"one that is longer after all", "2", []string{"ok"}, func(r *raw, id uint32) {
			_ = r.WriteData(id, true, []byte("more"))
		}},
		{"one that is reset", "2", []string{"ok"}, func(r *raw, id uint32) {
			_ = r.WriteRSTStream(id, frames.ErrCodeInternal)
		}},
		{"an empty one", "0", nil, never},
		{"one in parts", "6", []string{"pa", "r", "ts", "."}, never},
		{"one that begins late", "2", []string{"", "ok"}, never},
		{"a long one", "40960", []string{eighth, eighth, eighth, eighth, eighth}, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, answer := w.ask(get)
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				r := <-w.made
				id := r.request()
				go func() {
					for r.next() != nil {
					}
				}()
				last, over := make(chan time.Time, 1), make(chan struct{})
				go func() {
					defer close(over)
					r.head(id, false, ":status", "200", "content-length", test.length)
					for i, part := range test.parts {
						if i > 0 {
							time.Sleep(time.Second) // in virtual time
						}
						_ = r.WriteData(id, false, []byte(part))
					}
					last <- time.Now()
					time.Sleep(20 * time.Second)
					test.after(r, id)
				}()
				resp, err := http.ReadResponse(answer, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if want := strings.Join(test.parts, ""); err != nil || string(body) != want {
					t.Errorf("%d bytes, %v, want %d", len(body), err, len(want))
				}
				if took := time.Since(<-last); took > 2*holdTime {
					t.Errorf("it was whole %v after its last byte", took)
				}
				synctest.Wait()
				w.mu.Lock()
				if n := w.conns[0].streams; n != 0 {
					t.Errorf("%d streams are under way once it is whole", n)
				}
				w.mu.Unlock()
				if rest := all(answer); rest != "" {
					t.Errorf("%q follows", rest)
				}
				c.Close()
				<-over
			})
		})
	}
}

// What is held waits for its reader, whoever writes it: an end or an error that comes meanwhile adds
// nothing, and a reader that leaves ends all of it.
func TestHeldForASlowReader(t *testing.T) {
	for _, test := range []struct {
		name string
		say  func(r *raw, id uint32)
		want string // after the head
	}{
		{"a head", func(r *raw, id uint32) { time.Sleep(holdTime * 2) }, ""},
		{"a head, and then the body", func(r *raw, id uint32) {
			time.Sleep(holdTime * 2)
			_ = r.WriteData(id, true, []byte("ok"))
		}, "ok"},
		{"a head, and then too much", func(r *raw, id uint32) {
			time.Sleep(holdTime * 2)
			_ = r.WriteData(id, true, []byte("okay"))
		}, ""},
		{"a whole answer", func(r *raw, id uint32) {
			_ = r.WriteData(id, false, []byte("ok"))
		}, "ok"},
		{"a whole answer, and then its end", func(r *raw, id uint32) {
			_ = r.WriteData(id, false, []byte("ok"))
			time.Sleep(holdTime * 2)
			_ = r.WriteData(id, true, nil)
		}, "ok"},
		{"a whole answer, and then too much", func(r *raw, id uint32) {
			_ = r.WriteData(id, false, []byte("ok"))
			time.Sleep(holdTime * 2)
			_ = r.WriteData(id, true, []byte("ay"))
		}, "ok"},
	} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, leaves %v", test.name, leaves), func(t *testing.T) {
				inWorld(t, func(w *world) {
					c, answer := w.ask(get)
					r := <-w.made
					id := r.request()
					go func() {
						for r.next() != nil {
						}
					}()
					r.head(id, false, ":status", "200", "content-length", "2")
					test.say(r, id)
					time.Sleep(10 * holdTime) // nobody reads meanwhile
					if leaves {
						c.Close()
						synctest.Wait()
						w.mu.Lock()
						if n := w.conns[0].streams; n != 0 {
							t.Errorf("%d streams are under way after their reader left", n)
						}
						w.mu.Unlock()
						return
					}
					if test.want == "" {
						time.AfterFunc(holdTime, func() {
							_ = r.WriteRSTStream(id, frames.ErrCodeInternal)
						})
					}
					want := "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
					want += test.want
					if got := all(answer); got != want {
						t.Errorf("%q, want %q", got, want)
					}
					c.Close()
				})
			})
		}
	}
}

// What is written as HTTP/1.1 comes as HTTP/2, while the answer is already on its way.
func TestBothWays(t *testing.T) {
	inWorld(t, func(w *world) {
		c, answer := w.ask("POST //a?b HTTP/1.1\r\nHost: A.b:80\r\nConnection: TE\r\nTE: trailers\r\nX-Own: v\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
		r := <-w.made
		f := r.next().(*frames.MetaHeadersFrame)
		id := f.StreamID
		got := map[string]string{}
		for _, h := range f.Fields {
			got[h.Name] = h.Value
		}
		for name, want := range map[string]string{":method": "POST", ":path": "//a?b", ":scheme": "http", ":authority": "A.b:80", "te": "trailers", "x-own": "v", "trailer": "X-Sum"} {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		}
		if len(got) != 7 {
			t.Errorf("%v", got)
		}
		r.head(id, false, ":status", "200")
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"abc", "de"} {
			if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(part), part); err != nil {
				t.Fatal(err)
			}
			if d := r.next().(*frames.DataFrame); string(d.Data()) != part {
				t.Errorf("%q, want %q", d.Data(), part)
			}
			_ = r.WriteData(id, false, []byte(part))
			back := make([]byte, len(part))
			if _, err := io.ReadFull(resp.Body, back); err != nil || string(back) != part {
				t.Errorf("%q, %v", back, err)
			}
		}
		_, _ = io.WriteString(c, "0\r\nX-Sum: 5\r\nX-Other: 6\r\n\r\n")
		tail := r.next().(*frames.MetaHeadersFrame)
		if len(tail.Fields) != 1 || tail.Fields[0].Name != "x-sum" || tail.Fields[0].Value != "5" || !tail.StreamEnded() {
			t.Errorf("trailers %v", tail.Fields)
		}
		r.head(id, true, "x-after", "7")
		if rest := all(resp.Body); rest != "" || resp.Trailer.Get("X-After") != "7" {
			t.Errorf("%q, %v", rest, resp.Trailer)
		}
		c.Close()
	})
}

// A request that is given up is reset, and a part of a body is never the whole.
func TestGivenUp(t *testing.T) {
	for _, text := range []string{get, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		inWorld(t, func(w *world) {
			c, _ := w.ask(text)
			r := <-w.made
			r.request()
			go func() {
				synctest.Wait()
				c.Close()
			}()
			for {
				f := r.next()
				if d, ok := f.(*frames.DataFrame); ok && !d.StreamEnded() {
					continue
				}
				if reset, ok := f.(*frames.RSTStreamFrame); !ok || reset.ErrCode != frames.ErrCodeCancel {
					t.Errorf("%.20q: %v", text, f)
				}
				break
			}
		})
	}
}

// A panic in any of the goroutines ends the request that it was about, and is told; nothing else ends.
func TestFaultsOfOneRequest(t *testing.T) {
	received := make(chan any, 3)
	p := &Pool{Fault: func(fault any) { received <- fault }}
	c := &conn{pool: p, streams: 1} // without a connection of net/http's, which is a fault
	near := start(c)
	if _, err := io.WriteString(near, get); err != nil {
		t.Fatal(err)
	}
	if answer := all(near); answer != "" {
		t.Errorf("%q", answer)
	}
	<-received
	p.mu.Lock()
	if c.streams != 0 {
		t.Errorf("%d streams are left", c.streams)
	}
	p.mu.Unlock()
	over := &exchange{conn: c, interims: make(chan []byte)}
	close(over.interims)
	if err := over.interim(103, nil); err != errFault {
		t.Errorf("interim: %v", err)
	}
	<-received
	if _, err := (&body{pool: p, Body: http1.NewBody(nil, nil, 5)}).Read(make([]byte, 1)); err != errFault {
		t.Errorf("body: %v", err)
	}
	<-received
}

// What stands for a malformed answer is refused by whoever reads it, and not as the end of a kept connection.
func TestMalformedIsRefused(t *testing.T) {
	var a http1.Answer
	_, old, err := a.Read(bufio.NewReader(strings.NewReader(malformed)))
	if err == nil {
		_, _, err = a.Frame(old, 0)
	}
	if err != http1.ErrFraming {
		t.Error(err)
	}
}
