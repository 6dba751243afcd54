package bench

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
)

// The reason of most failures is named, whatever connection or stream each was on, and not that of the first.
func TestCommonestReason(t *testing.T) {
	var f calmFigures
	f.fail(errors.New("answered 503 over HTTP/2.0"))
	for i := range 3 {
		f.fail(&url.Error{Op: "Get", URL: "https://a", Err: &net.OpError{Op: "read", Source: &net.TCPAddr{Port: i}, Err: syscall.ECONNRESET}})
	}
	if f.Failed != 4 || f.commonest() != "3 of them: connection reset by peer" {
		t.Errorf("%d failed, %s", f.Failed, f.commonest())
	}
	for i := range 5 {
		f.fail(fmt.Errorf("ask: %w", fmt.Errorf("stream error: stream ID %d; REFUSED_STREAM", 2*i+1)))
	}
	if f.commonest() != "5 of them: stream error: stream ID N; REFUSED_STREAM" {
		t.Error(f.commonest())
	}
}
