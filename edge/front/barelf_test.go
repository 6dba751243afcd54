package front_test

import (
	"io"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// A head with a line that ends in LF alone is refused as soon as that line is there: its client has said all that it has
// to say, and would wait until its time is up.
func TestBareLFIsRefusedAtOnce(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 30s}")
	for _, parts := range [][]string{
		{"GET / HTTP/1.1\nHost: a\n\n"},
		{"GET / HTTP/1.1\r\nHost: a\n\n"},
		{"GET / HTTP/1.1\r\nHost: a\r\n\n"},
		{"GET / HTTP/1.1\r\nHost: a\n"},
		{"GET / HTTP/1.1\r\nHost: a\r", "\nX: y", "\n"},
		{"\r\n\nGET / HTTP/1.1\n"},
	} {
		c := e.Dial() // has ten seconds
		for _, part := range parts {
			_, _ = io.WriteString(c, part)
		}
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), `"code":"bad_request"`) {
			t.Errorf("%q: %q, %v", parts, got, err)
		}
	}
	c := e.Talk()
	for _, part := range []string{"\n", "GET / HTTP/1.1\r", "\nHost: a\r", "\n\r", "\n"} { // an LF whose CR came before is none of those
		_, _ = io.WriteString(c, part)
	}
	if resp, _ := c.Hear("GET"); resp.StatusCode != 200 {
		t.Errorf("in parts: %d", resp.StatusCode)
	}
}
