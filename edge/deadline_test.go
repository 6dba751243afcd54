package edge

import (
	"io"
	"strings"
	"testing"
)

// The origin's time begins when it has the request: a client that takes longer than that for its body takes nothing from it.
func TestSlowUploadIsNoSlowOrigin(t *testing.T) {
	o := startRecorder(t, func(_ int, request string) string {
		if strings.HasPrefix(request, "GET /silent") {
			return ""
		}
		return hello(0, "")
	})
	for name, request := range map[string][2]string{
		"short":   {"Content-Length: 6\r\n\r\nabc", "def"},
		"long":    {"Content-Length: 100003\r\n\r\n" + strings.Repeat("x", 100000), "def"},
		"chunked": {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e := startConfig(t, withoutRules(t, o.url()))
			c := e.talk()
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+request[0])
			if resp, _ := e.get("/silent"); resp.StatusCode != 504 { // takes the whole of the time that an origin has
				t.Fatal(resp.StatusCode)
			}
			if resp, body := c.say(request[1]); resp.StatusCode != 200 || body != "hello" {
				t.Errorf("%d %q", resp.StatusCode, body)
			}
			e.rest()
		})
	}
}
