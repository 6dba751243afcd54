package ja4

import (
	"crypto/tls"
	"net"
	"slices"
	"testing"
)

// The example of the specification, whose order it says too: a Chrome.
func example() *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		CipherSuites: []uint16{0xdada, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030,
			0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035},
		Extensions: []uint16{0x3a3a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d,
			0x000d, 0x0005, 0x0023, 0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015},
		SupportedVersions: []uint16{0x2a2a, tls.VersionTLS13, tls.VersionTLS12},
		SupportedProtos:   []string{"h2", "http/1.1"},
		ServerName:        "example.com",
		SignatureSchemes: []tls.SignatureScheme{0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501,
			0x0806, 0x0601},
	}
}

func TestExampleOfTheSpecification(t *testing.T) {
	const want = "t13d1516h2_8daaf6152771_e5627efa2ab1"
	hello := example()
	name := Of(hello)
	if got := string(name[:]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Browsers shuffle extensions, and GREASE differs in each hello
	slices.Reverse(hello.Extensions)
	hello.CipherSuites[0] = 0x1a1a
	if Of(hello) != name {
		t.Errorf("another order of extensions has another name: %s", Of(hello))
	}
	slices.Reverse(hello.SignatureSchemes)
	if Of(hello) == name {
		t.Error("another order of signatures has the same name")
	}
}

func TestParts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*tls.ClientHelloInfo)
		want   string
	}{
		{"nothing", func(h *tls.ClientHelloInfo) { *h = tls.ClientHelloInfo{} },
			"t00i000000_000000000000_000000000000"},
		{"TLS 1.2", func(h *tls.ClientHelloInfo) { h.SupportedVersions = []uint16{tls.VersionTLS12} },
			"t12d1516h2"},
		{"SSL 3", func(h *tls.ClientHelloInfo) { h.SupportedVersions = []uint16{0x0300} },
			"ts3d1516h2"},
		{"no name", func(h *tls.ClientHelloInfo) {
			h.Extensions = slices.DeleteFunc(h.Extensions,
				func(e uint16) bool { return e == serverName })
		}, "t13i1515h2"},
		{"no protocol", func(h *tls.ClientHelloInfo) { h.SupportedProtos = nil }, "t13d151600"},
		{"HTTP/1.1", func(h *tls.ClientHelloInfo) { h.SupportedProtos = []string{"http/1.1"} },
			"t13d1516h1"},
		{"one letter", func(h *tls.ClientHelloInfo) { h.SupportedProtos = []string{"x"} },
			"t13d1516xx"},
		{"no letters", func(h *tls.ClientHelloInfo) { h.SupportedProtos = []string{"\xab0\xcd"} },
			"t13d1516ad"},
		{"many", func(h *tls.ClientHelloInfo) {
			for i := range uint16(200) {
				h.CipherSuites = append(h.CipherSuites, i)
			}
		}, "t13d9916h2"},
	} {
		h := example()
		c.change(h)
		name := Of(h)
		if got := string(name[:len(c.want)]); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What a handshake of Go's own client shows is all that a name needs.
func TestHandshake(t *testing.T) {
	named := func(config *tls.Config) (name Name) {
		client, server := net.Pipe()
		got := make(chan Name, 1)
		go func() {
			hello := func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				got <- Of(h)
				return nil, net.ErrClosed // it is enough
			}
			tls.Server(server, &tls.Config{GetConfigForClient: hello}).Handshake()
			server.Close()
		}()
		tls.Client(client, config).Handshake()
		client.Close()
		return <-got
	}
	a := named(&tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}})
	if again := named(&tls.Config{ServerName: "b.example", NextProtos: []string{"h2"}}); again != a {
		t.Errorf("one client has two names: %s, %s", a, again)
	}
	if string(a[:4]) != "t13d" || string(a[8:10]) != "h2" || string(a[23:]) == "_000000000000" {
		t.Errorf("name %s", a)
	}
	if b := named(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); b == a ||
		string(b[:4]) != "t12i" {
		t.Errorf("another client's name %s", b)
	}
}

func TestNamesAllocateNothing(t *testing.T) {
	hello := example()
	if n := testing.AllocsPerRun(100, func() { Of(hello) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOf(b *testing.B) {
	hello := example()
	b.ReportAllocs()
	for b.Loop() {
		Of(hello)
	}
}
