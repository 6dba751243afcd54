//go:build !linux

package memcached

import "net"

// lowMark does nothing here: see lowmark_linux.go.
type lowMark struct{}

func newLowMark(net.Conn) lowMark { return lowMark{} }
func (lowMark) set(int)           {}
