//go:build !linux

package edge

import "net"

func boundUnsent(net.Listener) {}
