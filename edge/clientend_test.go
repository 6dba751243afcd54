package edge

import (
	"io"
	"strings"
	"testing"
)

// A client that speaks TLS to a plain port is told at once that nobody there does, and the connection ends.
func TestTLSOnAPlainPort(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "limits: {header_timeout: 30s}")
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and what else a client says"
	for _, sends := range []string{hello, "\r\n" + hello, hello[:1]} {
		c := e.dial() // has ten seconds
		_, _ = io.WriteString(c, sends)
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), `"code":"tls"`) {
			t.Errorf("%q: %q, %v", sends, got, err)
		}
	}
	if m := e.rest(); m["sluice_answers_total{code=400,from=edge}"] != 3 {
		t.Errorf("metrics: %v", m)
	}
}
