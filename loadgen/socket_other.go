//go:build !linux

package loadgen

import (
	"errors"
	"net/netip"
	"time"
)

// The replay's event loop is made of Linux's epoll and of its habit of letting any address of 127.0.0.0/8 be bound.
var errPlatform = errors.New("loadgen: replay runs on Linux only; run it there or in a container")

type poller struct{}

type event struct {
	slot, generation int32
	hangup           bool
}

func newPoller() (*poller, error)                                     { return nil, errPlatform }
func (*poller) close()                                                {}
func (*poller) add(int, event) error                                  { return errPlatform }
func (*poller) wait(_ time.Duration, events []event) ([]event, error) { return events, errPlatform }
func fineTimers()                                                     {}
func dial(netip.Addr, netip.AddrPort) (int, error)                    { return -1, errPlatform }
func write(int, []byte) (int, error)                                  { return 0, errPlatform }
func read(int, []byte) (int, error)                                   { return 0, errPlatform }
func socketError(int) error                                           { return errPlatform }
func smallWindow(int)                                                 {}
func closeSocket(int)                                                 {}
func abort(int)                                                       {}
