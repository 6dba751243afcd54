package listen_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"sluice/edge/edgetest"
)

const proxyYAML = "source: {trust: [127.0.0.1], proxy_protocol: true}\nlimits: {header_timeout: 300ms, connections_per_source: 2}"

func proxyV2(t testing.TB, source string) string {
	h := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source)),
		net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.200:80")))
	if strings.HasPrefix(source, "[") {
		h = proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source)),
			net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::200]:80")))
	}
	edgetest.Must(t, h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_ALPN, Value: []byte("http/1.1")}}))
	b, err := h.Format()
	edgetest.Must(t, err)
	return string(b)
}

func TestProxyProtocol(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), proxyYAML)
	local := "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	for _, test := range []struct{ name, header, source string }{
		{"version 1", "PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\n", "192.0.2.1"},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::200 4000 80\r\n", "2001:db8::1"},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", "127.0.0.1"},
		{"version 2", proxyV2(t, "192.0.2.2:4000"), "192.0.2.2"},
		{"version 2, IPv6", proxyV2(t, "[2001:db8::2]:4000"), "2001:db8::2"},
		{"version 2, local", local, "127.0.0.1"},
		{"version 2, as long as may be", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x10\x00\xc0\x00\x02\x03" + strings.Repeat("a", 4092), "192.0.2.3"},
		{"version 2, longer", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x10\x01\xc0\x00\x02\x03" + strings.Repeat("a", 4093), ""},
		{"none", "", ""},
		{"cut", "PROXY TCP4 192.", ""},
		{"silent", "\x00", ""},
		{"not CRLF", "PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\n", ""},
		{"no address", "PROXY TCP4 a b 1 2\r\n", ""},
		{"too long", "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n", ""},
		{"unix", "\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + strings.Repeat("a", 216), ""},
		{"version 3", "\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c" + strings.Repeat("a", 12), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(o.Requests())
			request := test.header + edgetest.PlainGet
			if test.name == "cut" || test.name == "silent" {
				request = test.header[:max(0, len(test.header)-1)]
			}
			got := e.Raw(request)
			if test.source == "" {
				if got != "" || len(o.Requests()) != before {
					t.Errorf("the client got %q, the origin %q", got, o.Requests()[before:])
				}
				return
			}
			if all := o.Requests(); !strings.HasPrefix(got, "HTTP/1.1 200 ") || len(all) != before+1 ||
				!strings.Contains(all[before], "X-Forwarded-For: "+test.source+"\r\n") {
				t.Errorf("the client got %q, the origin %q", got, all[before:])
			}
		})
	}
	if m := e.Rest(); m["sluice_proxy_headers_refused_total"] != 9 {
		t.Errorf("metrics: %v", m["sluice_proxy_headers_refused_total"])
	}
}

// A header from a peer that is not trusted is no HTTP, whether or not others may send one.
func TestProxyProtocolOfStrangers(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for _, yaml := range []string{"", "source: {trust: [203.0.113.1], proxy_protocol: true}", "source: {trust: [127.0.0.1]}"} {
		e := edgetest.Start(t, o.URL(), yaml)
		for _, header := range []string{"PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\n", proxyV2(t, "192.0.2.2:4000")} {
			if got := e.Raw(header + edgetest.PlainGet); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("%q: %q", yaml, got)
			}
		}
	}
	if got := o.Requests(); len(got) > 0 {
		t.Errorf("the origin got %q", got)
	}
}

// A connection that sends no header does not hold up others, and connections are counted for the clients named.
func TestProxyProtocolCountsClients(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), strings.Replace(proxyYAML, "300ms", "5s", 1))
	for range 5 {
		e.Dial() // silent
	}
	header := proxyV2(t, "192.0.2.9:4000")
	open := func(header string) (net.Conn, bool) {
		c := e.Dial()
		_, _ = io.WriteString(c, header+"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		return c, err == nil && resp.StatusCode == 200
	}
	first, ok1 := open(header)
	_, ok2 := open(header)
	_, ok3 := open(header)
	if !ok1 || !ok2 || ok3 {
		t.Errorf("of three connections of one client with a cap of two: %t %t %t", ok1, ok2, ok3)
	}
	if _, ok := open(proxyV2(t, "192.0.2.10:4000")); !ok {
		t.Error("another client through the same proxy was turned away")
	}
	first.Close()
	for ok := false; !ok; { // the edge sees the end of the connection when it sees it
		_, ok = open(header)
	}
}
