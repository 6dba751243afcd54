//go:build !linux

package listen

import "net"

// A siege ends connections that are shed at less cost, which is possible on Linux only.
type siege struct{ shed int }

func (l *Listener) next() (net.Conn, error) { return l.Listener.Accept() }

func (s *siege) lift() {}
