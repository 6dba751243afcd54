package front_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
)

const (
	lastGet  = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	postHead = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
)

// An answer that breaks off between two chunks must not get an end.
func TestTrapTruncatedChunkedAnswer(t *testing.T) {
	trap{
		Answer: func(int, string) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\x00"
		},
		falls: func(p *trapped) string {
			if got := p.Raw(lastGet); strings.HasSuffix(got, "\r\n0\r\n\r\n") {
				return "a part was passed on as the whole: " + got
			}
			return ""
		},
	}.try(t)
}

// Nor must the body of a request that its client did not finish.
func TestTrapTruncatedChunkedRequest(t *testing.T) {
	trap{
		falls: func(p *trapped) string {
			c := p.Dial()
			_, _ = io.WriteString(c, postHead+"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.ReadAll(c)
			for _, got := range p.origin.Requests() {
				if !strings.HasPrefix(got, "BROKEN ") {
					return "the origin took a part for the whole: " + got
				}
			}
			return ""
		},
	}.try(t)
}

// A form is passed on as it came, what stands around its parts and all.
func TestTrapRewrittenForms(t *testing.T) {
	const form = "before\r\n--x\r\nContent-Disposition: form-data; name=a\r\nX-Part: 1\r\n\r\nb\r\n--x--\r\nbehind"
	trap{
		falls: func(p *trapped) string {
			p.Raw(fmt.Sprintf(postHead+"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n%s", len(form), form))
			if got := p.origin.Requests(); len(got) != 1 || !strings.HasSuffix(got[0], "\r\n\r\n"+form) {
				return fmt.Sprintf("the origin got %q", got)
			}
			return ""
		},
	}.try(t)
}

// A limit on bodies holds for those that are streamed.
func TestTrapStreamedBodiesHaveNoLimit(t *testing.T) {
	trap{
		yaml:   "limits: {body_bytes: 100}",
		server: func(s *fasthttp.Server) { s.MaxRequestBodySize = 100 },
		falls: func(p *trapped) string {
			for _, request := range []string{
				postHead + "Content-Length: 10000\r\n\r\n" + strings.Repeat("x", 10000),
				postHead + "Transfer-Encoding: chunked\r\n\r\n2710\r\n" + strings.Repeat("x", 10000) + "\r\n0\r\n\r\n",
			} {
				if got := p.Raw(request); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
					return got
				}
			}
			return ""
		},
	}.try(t)
}

// What stands around the bytes of chunks has a bound.
func TestTrapEndlessChunkExtensions(t *testing.T) {
	trap{
		falls: func(p *trapped) string {
			c := p.Talk()
			go func() { // a proxy may stop reading before the end
				_, _ = io.WriteString(c, postHead+"Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\na\r\n", 200)+"0\r\n\r\n")
			}()
			if resp, _ := c.Hear("POST"); resp.StatusCode == 200 {
				return "200 bytes cost 800,000 on the way and were passed on"
			}
			return ""
		},
	}.try(t)
}

// A client whose request is refused is not invited to send its body.
func TestTrapContinueBeforeDecision(t *testing.T) {
	trap{
		falls: func(p *trapped) string {
			p.Get("/refused")
			got := p.Raw("POST /refused HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
			if !strings.HasPrefix(got, "HTTP/1.1 429 ") {
				return got
			}
			return ""
		},
	}.try(t)
}

// An answer that comes before the request's body is read arrives: closing a connection with unread bytes resets it.
func TestTrapEarlyAnswerIsReset(t *testing.T) {
	trap{
		falls: func(p *trapped) string {
			p.Get("/refused")
			c := p.Dial()
			_, _ = io.WriteString(c, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 100_000))
			_ = c.(*net.TCPConn).CloseWrite()
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 429 ") {
				return fmt.Sprintf("%q, then %v", got, err)
			}
			return ""
		},
	}.try(t)
}

// The body of a request that is refused unread is not the next request.
func TestTrapUnreadBodyIsTheNextRequest(t *testing.T) {
	body := strings.Repeat(edgetest.Smuggled, 1000)
	trap{
		falls: func(p *trapped) string {
			p.Get("/refused")
			c := p.Dial()
			_, _ = io.WriteString(c, fmt.Sprintf("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			_ = c.(*net.TCPConn).CloseWrite()
			got, _ := io.ReadAll(c)
			if n := strings.Count(string(got), "HTTP/1.1 "); n != 1 {
				return fmt.Sprintf("%d answers to one request", n)
			}
			return ""
		},
	}.try(t)
}
