package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/edge/front"
)

// registryWith is a registry without a server.
func registryWith(t *testing.T, limits front.Limits, shed func(netip.Addr) bool) *Registry {
	t.Helper()
	source := func(peer netip.Addr) (counter.Source, bool) { return counter.SourceOf(peer, 32, 64), true }
	l, err := NewRegistry(&front.Server{Limits: limits}, Admission{Source: source, Shed: shed})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Without descriptors an accept fails; the loop goes on when there are some again.
func TestAcceptSurvivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := &faultyListener{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOMEM, errors.New("odd")}}
		l := &Listener{Listener: faulty, Ended: make(chan struct{}), Registry: registryWith(t, front.Limits{PerSource: 1}, nil)}
		start := time.Now()
		c, err := l.acceptClient()
		if err != nil || c == nil {
			t.Fatalf("%v, %v", c, err)
		}
		if took := time.Since(start); took < acceptPause || took > time.Second {
			t.Errorf("it took %v", took)
		}
		faulty.errs = []error{net.ErrClosed}
		if _, err := l.acceptClient(); err != io.EOF {
			t.Errorf("closed: %v, want io.EOF", err)
		}
	})
}

type faultyListener struct {
	net.Listener
	errs []error
}

func (l *faultyListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	a, _ := net.Pipe()
	return a, nil
}
