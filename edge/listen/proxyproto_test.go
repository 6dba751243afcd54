package listen

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
)

// What is taken for a header is one by the letter of the specification, names the address that stands there, and ends where
// it says: the next byte is the first of the request.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\nGET"))
	f.Add([]byte("PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 4000 80\r\nGET"))
	f.Add([]byte("PROXY UNKNOWN whatever\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x17" + "\xc0\x00\x02\x02\xc0\x00\x02\xc8\x0f\xa0\x00\x50" + "\x01\x00\x08http/1.1"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x02" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\xc8" + "\x0f\xa0\x00\x50" + "GET / HTTP/1.1\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x02abGET"))
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), proxyBuffer)
		client, local, err := readProxyHeader(br)
		if err != nil {
			return
		}
		want, size := proxyHeaderByHand(b)
		if size == 0 || local == want.IsValid() || client != want {
			t.Fatalf("%q: client %v, local %t; by hand %v in %d bytes", b, client, local, want, size)
		}
		if rest, _ := io.ReadAll(br); !bytes.Equal(rest, b[size:]) {
			t.Fatalf("%q: %d bytes are left, want %d", b, len(rest), len(b)-size)
		}
	})
}

// proxyHeaderByHand is a slow reading of proxy-protocol.txt, 2.1 and 2.2: the client, none for a local connection, and the size
// of the header, 0 if it is none.
func proxyHeaderByHand(b []byte) (client netip.Addr, size int) {
	if line, _, ok := bytes.Cut(b, []byte("\r\n")); ok && bytes.HasPrefix(line, []byte("PROXY ")) && len(line) <= 105 {
		parts := strings.Split(string(line), " ")
		if parts[1] == "UNKNOWN" {
			return client, len(line) + 2
		}
		addr, err := netip.ParseAddr(parts[2])
		if len(parts) != 6 || err != nil || parts[1] != "TCP4" && parts[1] != "TCP6" || (parts[1] == "TCP4") != addr.Is4() {
			return client, 0
		}
		return addr.Unmap().WithZone(""), len(line) + 2
	}
	if len(b) < 16 || string(b[:12]) != "\r\n\r\n\x00\r\nQUIT\n" {
		return client, 0
	}
	size = 16 + int(b[14])<<8 + int(b[15])
	switch {
	case len(b) < size:
		return client, 0
	case b[12] == 0x20: // LOCAL: addresses are skipped
		return client, size
	case b[12] == 0x21 && b[13] == 0x11 && size >= 16+12:
		return netip.AddrFrom4([4]byte(b[16:20])), size
	case b[12] == 0x21 && b[13] == 0x21 && size >= 16+36:
		return netip.AddrFrom16([16]byte(b[16:32])).Unmap(), size
	}
	return client, 0
}
