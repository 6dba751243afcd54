package front_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/edgetest"
)

// Headers about a connection end there, with those that Connection names, in both directions.
func TestTrapHopByHopHeadersArePassedOn(t *testing.T) {
	const hop = "Connection: x-secret\r\nConnection: keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: a\r\nTE: gzip\r\nUpgrade: x\r\n"
	passedOn := func(head string) string {
		for _, name := range []string{"\r\nX-Secret:", "\r\nKeep-Alive:", "\r\nProxy-Connection:", "\r\nTE:", "\r\nTe:", "\r\nUpgrade:"} {
			if strings.Contains(head, name) {
				return fmt.Sprintf("%q was passed on", head)
			}
		}
		return ""
	}
	t.Run("request", func(t *testing.T) {
		trap{falls: func(p *trapped) string {
			p.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n" + hop + "\r\n")
			return passedOn(strings.Join(p.origin.Requests(), "|"))
		}}.try(t)
	})
	t.Run("answer", func(t *testing.T) {
		trap{
			Answer: func(int, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + hop + "\r\n" },
			falls:  func(p *trapped) string { return passedOn(p.Raw(lastGet)) },
		}.try(t)
	})
	// A client's wish to close is about its own connection.
	t.Run("connections to the origin", func(t *testing.T) {
		trap{falls: func(p *trapped) string {
			p.Raw(lastGet)
			p.Raw(lastGet)
			if n := p.origin.Connections(); n != 1 {
				return fmt.Sprintf("%d connections to the origin for two requests, one after the other", n)
			}
			return ""
		}}.try(t)
	})
}

// The target reaches the origin as it came.
func TestTrapNormalizedPath(t *testing.T) {
	const target = "/a/../b//c%2fd%20?e=%2f"
	trap{falls: func(p *trapped) string {
		p.Raw("GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := strings.Join(p.origin.Requests(), "|"); !strings.HasPrefix(got, "GET "+target+" HTTP/1.1\r\n") {
			return "the origin got " + got
		}
		return ""
	}}.try(t)
}

// What is not plain HTTP/1.1 is refused, with the status that says why, and does not reach the origin.
func TestTrapForwardedOddities(t *testing.T) {
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"CONNECT":                       {"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405},
		"TRACE":                         {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405},
		"another version":               {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
		"another scheme":                {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		"host and target differ":        {"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400},
		"odd host":                      {"GET / HTTP/1.1\r\nHost: a<b>\r\n\r\n", 400},
		"space in a name":               {"GET / HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n", 400},
		"folded line":                   {"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400},
		"bare line feed":                {"GET / HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n", 400},
		"length and chunks":             {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"identity":                      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", 501},
		"method in small letters":       {"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		"two hundred headers":           {"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", 431},
		"more after the last, by case":  {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n" + edgetest.Smuggled + "G", 200},
		"more after the last, in lists": {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n" + edgetest.Smuggled + "G", 200},
	} {
		t.Run(name, func(t *testing.T) {
			trap{falls: func(p *trapped) string {
				c := p.Dial()
				_, _ = io.WriteString(c, test.request)
				_ = c.(*net.TCPConn).CloseWrite()
				all, _ := io.ReadAll(c)
				status := fmt.Sprintf("HTTP/1.1 %d ", test.status)
				if got := p.origin.Requests(); !strings.HasPrefix(string(all), status) || len(got) > 0 && test.status != 200 || len(got) > 1 {
					return fmt.Sprintf("the client got %q, the origin %q", all, got)
				}
				return ""
			}}.try(t)
		})
	}
}

// A status says whether to try again, with less, or not at all.
func TestTrapStatusOfRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"long target":    {"GET /" + strings.Repeat("x", 50_000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
		"other version":  {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		"another coding": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		"slow head":      {"GET / HTTP/1.1\r\nHost:", 408},
	} {
		t.Run(name, func(t *testing.T) {
			trap{
				yaml:   "limits: {header_timeout: 200ms}",
				server: func(s *fasthttp.Server) { s.ReadTimeout = 200 * time.Millisecond },
				falls: func(p *trapped) string {
					if got := p.Raw(test.request); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.status)) {
						return fmt.Sprintf("%.100q, want %d", got, test.status)
					}
					return ""
				},
			}.try(t)
		})
	}
}

// Heads of more than 4 KiB are common: cookies, policies.
func TestTrapSmallHeads(t *testing.T) {
	long := "X-Long: " + strings.Repeat("x", 6000) + "\r\n"
	t.Run("request", func(t *testing.T) {
		trap{falls: func(p *trapped) string {
			if got := p.Raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + long + "\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				return fmt.Sprintf("%.100q", got)
			}
			return ""
		}}.try(t)
	})
	t.Run("answer", func(t *testing.T) {
		trap{
			Answer: func(int, string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + long + "\r\n" },
			falls: func(p *trapped) string {
				if got := p.Raw(lastGet); !strings.Contains(got, long) {
					return fmt.Sprintf("%.100q", got)
				}
				return ""
			},
		}.try(t)
	})
}

// Nothing is said in the name of the client or of the origin, but when its answer came if it does not say.
func TestTrapAddedHeaders(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
	trap{
		Answer: func(int, string) string { return answer + "\r\n" },
		falls: func(p *trapped) string {
			got, want := p.Raw(lastGet), answer+"Connection: close\r\n\r\n"
			if asked := strings.Join(p.origin.Requests(), "|"); got != want || strings.Contains(asked, "User-Agent") {
				return fmt.Sprintf("the origin got %q, the client %q", asked, got)
			}
			return ""
		},
	}.try(t)
}

// A client of HTTP/1.0 need not name a host.
func TestTrapOldClientsWithoutHost(t *testing.T) {
	trap{falls: func(p *trapped) string {
		if got := p.Raw("GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			return got
		}
		return ""
	}}.try(t)
}

// What a client writes into its headers is not for logs.
func TestTrapHeadersInLogs(t *testing.T) {
	trap{falls: func(p *trapped) string {
		p.Raw("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\nX Y\r\n\r\n")
		p.Raw("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\nX: \x00\r\n\r\n")
		if log := p.logged(); strings.Contains(log, "secret") {
			return log
		}
		return ""
	}}.try(t)
}
