package proxy_test

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"sluice/edge/edgetest"
)

// Chunks that come together go on together, both ways: 5,000 of one byte in a few segments.
func TestChunksGoOnTogether(t *testing.T) {
	const n, most = 5000, 30
	chunks := strings.Repeat("1\r\nx\r\n", n) + "0\r\n\r\n"
	ln := edgetest.ListenHere(t)
	segments := make(chan uint32, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var got []byte
		for buf := make([]byte, 64<<10); !strings.HasSuffix(string(got), "\r\n0\r\n\r\n"); {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			got = append(got, buf[:n]...)
		}
		segments <- dataSegments(t, c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks)
	}()
	e := edgetest.Start(t, "http://"+ln.Addr().String(), "")
	c := e.Talk()
	resp, body := c.Say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
	if resp.StatusCode != 200 || len(body) != n {
		t.Fatalf("%d, %d bytes", resp.StatusCode, len(body))
	}
	if got := <-segments; got > most {
		t.Errorf("the origin got %d segments", got)
	}
	if got := dataSegments(t, c.Conn); got > most {
		t.Errorf("the client got %d segments", got)
	}
	e.Rest()
}

// dataSegments is how many segments with data a connection has received (tcpi_data_segs_in of TCP_INFO).
func dataSegments(t *testing.T, c net.Conn) uint32 {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return 0
	}
	var info [256]byte
	size := uint32(len(info))
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil || failed != 0 || size < 156 {
		t.Errorf("TCP_INFO: %v, %v, %d bytes", err, failed, size)
		return 0
	}
	return binary.NativeEndian.Uint32(info[152:])
}
