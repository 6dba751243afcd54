//go:build !linux

package socket

import (
	"errors"
	"net/netip"
	"time"
)

// The event loop is made of Linux's epoll and of its habit of letting any address of 127.0.0.0/8 be
// bound.
var errPlatform = errors.New("loadgen: replay runs on Linux only; run it there or in a container")

type Poller struct{}

type Event struct {
	Slot, Generation int32
	Hangup           bool
}

func NewPoller() (*Poller, error)                                     { return nil, errPlatform }
func (*Poller) Close()                                                {}
func (*Poller) Add(int, Event) error                                  { return errPlatform }
func (*Poller) Wait(_ time.Duration, events []Event) ([]Event, error) { return events, errPlatform }
func FineTimers()                                                     {}
func Dial(netip.Addr, netip.AddrPort) (int, error)                    { return -1, errPlatform }
func Write(int, []byte) (int, error)                                  { return 0, errPlatform }
func Read(int, []byte) (int, error)                                   { return 0, errPlatform }
func Close(int)                                                       {}
func Abort(int)                                                       {}
