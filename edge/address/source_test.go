package address

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/edge/http1"
	"sluice/edge/message"
)

func headOf(t testing.TB, lines ...string) *message.Head {
	h := &message.Head{}
	if _, err := http1.ScanHead(h, []byte(strings.Join(append(lines, "", ""), "\r\n")), message.MaxLines); err != nil {
		t.Fatal(err)
	}
	return h
}

func trusting(header string) *Sources {
	return NewSources(Config{IPv4Prefix: 32, IPv6Prefix: 64, Header: header,
		Trust: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}})
}

func TestIdentify(t *testing.T) {
	const xff, real, fwd, cf = "X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP"
	for _, test := range []struct {
		name, header, peer string
		lines              []string
		client             string
		chain              string // believed, nearest first
	}{
		{"no header", xff, "10.0.0.1", nil, "10.0.0.1", ""},
		{"a stranger's header is not read", xff, "192.0.2.1", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.1", ""},
		{"one hop", xff, "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"what the client wrote before is not read", xff, "10.0.0.1", []string{"X-Forwarded-For: 1.2.3.4, 192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"through a second proxy", xff, "10.0.0.1", []string{"X-Forwarded-For: 1.2.3.4, 192.0.2.1, 10.0.0.2"}, "192.0.2.1", "10.0.0.2 192.0.2.1"},
		{"lines are one list", xff, "10.0.0.1", []string{"X-Forwarded-For: 1.2.3.4", "A: b", "x-forwarded-for: 192.0.2.1", "X-Forwarded-For: 10.0.0.2,"}, "192.0.2.1", "10.0.0.2 192.0.2.1"},
		{"all trusted: the farthest", xff, "10.0.0.1", []string{"X-Forwarded-For: 10.0.0.3, 10.0.0.2"}, "10.0.0.3", "10.0.0.2 10.0.0.3"},
		{"garbage: who passed it on", xff, "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1, unknown"}, "10.0.0.1", ""},
		{"garbage further left", xff, "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1, <script>, 10.0.0.2"}, "10.0.0.2", "10.0.0.2"},
		{"empty elements", xff, "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1, ,,"}, "192.0.2.1", "192.0.2.1"},
		{"ports", xff, "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1:4711"}, "192.0.2.1", "192.0.2.1"},
		{"brackets", xff, "10.0.0.1", []string{"X-Forwarded-For: [2001:db8::1]:4711"}, "2001:db8::1", "2001:db8::1"},
		{"plain IPv6", xff, "2001:db8:1::1", []string{"X-Forwarded-For: 2001:db8::1"}, "2001:db8::1", "2001:db8::1"},
		{"mapped", xff, "::ffff:10.0.0.1", []string{"X-Forwarded-For: ::ffff:192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"a mapped stranger", xff, "::ffff:192.0.2.7", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7", ""},
		{"translated by NAT64", xff, "10.0.0.1", []string{"X-Forwarded-For: 64:ff9b::192.0.2.1"}, "192.0.2.1", "64:ff9b::c000:201"},
		{"a translated proxy", xff, "64:ff9b::10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1"}, "192.0.2.1", "192.0.2.1"},
		{"a translated stranger", xff, "64:ff9b::192.0.2.7", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7", ""},
		{"another prefix is not translated", xff, "64:ff9b:1::192.0.2.7", nil, "64:ff9b:1::c000:207", ""},
		{"zone", xff, "10.0.0.1", []string{"X-Forwarded-For: fe80::1%eth0"}, "fe80::1", "fe80::1"},
		{"other headers are not read", xff, "10.0.0.1", []string{"X-Real-IP: 1.2.3.4", "Forwarded: for=1.2.3.4"}, "10.0.0.1", ""},
		{"real", real, "10.0.0.1", []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 1.2.3.4"}, "192.0.2.1", "192.0.2.1"},
		{"forwarded", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1;proto=http;by=10.0.0.1`}, "192.0.2.1", "192.0.2.1"},
		{"forwarded, quoted", fwd, "10.0.0.1", []string{`Forwarded: proto=http; For="[2001:db8::1]:4711", for="10.0.0.2:80"`}, "2001:db8::1", "10.0.0.2 2001:db8::1"},
		{"forwarded, obfuscated", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1, for=_hidden`}, "10.0.0.1", ""},
		{"forwarded, a quote that never ends", fwd, "10.0.0.1", []string{`Forwarded: for="1.2.3.4, for=192.0.2.1`}, "192.0.2.1", "192.0.2.1"},
		{"real, twice", real, "10.0.0.1", []string{"X-Real-IP: 1.2.3.4", "X-Real-IP: 192.0.2.1"}, "10.0.0.1", ""},
		{"real, a list", real, "10.0.0.1", []string{"X-Real-IP: 1.2.3.4, 192.0.2.1"}, "10.0.0.1", ""},
		{"real, empty", real, "10.0.0.1", []string{"X-Real-IP: "}, "10.0.0.1", ""},
		{"any header", cf, "10.0.0.1", []string{"cf-connecting-ip: 2001:db8::1", "X-Forwarded-For: 1.2.3.4", "CF_Connecting_IP: 1.2.3.4"}, "2001:db8::1", "2001:db8::1"},
		{"any header of a stranger", cf, "192.0.2.1", []string{"CF-Connecting-IP: 1.2.3.4"}, "192.0.2.1", ""},
		{"any header, twice", cf, "10.0.0.1", []string{"CF-Connecting-IP: 1.2.3.4", "CF-Connecting-IP: 1.2.3.4"}, "10.0.0.1", ""},
		{"forwarded, a comma in quotes", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1;host="a, b"`}, "192.0.2.1", "192.0.2.1"},
		{"forwarded, what a client has quoted", fwd, "10.0.0.1", []string{`Forwarded: host="x;for=1.2.3.4;y";for=192.0.2.1`}, "192.0.2.1", "192.0.2.1"},
		{"forwarded, what a client has quoted after a comma", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1;host="x, for=1.2.3.4;y=\"z"`}, "192.0.2.1", "192.0.2.1"},
		{"forwarded, two of them", fwd, "10.0.0.1", []string{`Forwarded: for=1.2.3.4;for=192.0.2.1`}, "10.0.0.1", ""},
		{"forwarded, no parameter", fwd, "10.0.0.1", []string{`Forwarded: for=1.2.3.4;y"`}, "10.0.0.1", ""},
		{"forwarded, after the quotes", fwd, "10.0.0.1", []string{`Forwarded: for="1.2.3.4"x`}, "10.0.0.1", ""},
		{"forwarded, no for", fwd, "10.0.0.1", []string{`Forwarded: by=1.2.3.4`}, "10.0.0.1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, chain, _ := trusting(test.header).Identify(netip.MustParseAddr(test.peer), headOf(t, test.lines...), nil)
			if got := strings.Trim(fmt.Sprint(chain), "[]"); client.String() != test.client || got != test.chain {
				t.Errorf("%s by way of %s, want %s by way of %s", client, got, test.client, test.chain)
			}
		})
	}
}

func TestHops(t *testing.T) {
	h := headOf(t, "X-Forwarded-For: "+strings.Repeat("10.0.0.9, ", 1000)+"10.0.0.2")
	client, chain, _ := trusting("X-Forwarded-For").Identify(netip.MustParseAddr("10.0.0.1"), h, nil)
	if len(chain) != maxHops || client != netip.MustParseAddr("10.0.0.9") {
		t.Errorf("%d hops, client %s", len(chain), client)
	}
}

// One source stays one source, however it writes itself: whatever a client puts before what a trusted proxy adds, the
// proxy's word stands.
func FuzzForwardedHeaders(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4", `for="`, "1.2.3.4,", "[::1", "unknown", `for=1.2.3.4;"`, "10.0.0.1"} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, written string, which uint8) {
		if strings.ContainsAny(written, "\r\n") {
			return // it would make lines of its own, and what the proxy adds would stand in another header
		}
		name := []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"}[which%3]
		entry := "192.0.2.1"
		if name == "Forwarded" {
			entry = "for=192.0.2.1"
		}
		h := &message.Head{}
		if _, err := http1.ScanHead(h, []byte(name+": "+written+"\r\n"+name+": "+written+", "+entry+"\r\n\r\n"), message.MaxLines); err != nil {
			return
		}
		client, _, _ := trusting(name).Identify(netip.MustParseAddr("10.0.0.1"), h, nil)
		want := netip.MustParseAddr("192.0.2.1")
		if name == "X-Real-IP" {
			want = netip.MustParseAddr("10.0.0.1") // no list: two lines name nobody
		}
		if client != want {
			t.Fatalf("%q: %s", written, client)
		}
	})
}

func TestParseIPv4(t *testing.T) {
	for _, s := range []string{"0.0.0.0", "255.255.255.255", "192.0.2.1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "1..2.3", "", ".", "1.2.3.4.", "1.2.3.a"} {
		want, err := netip.ParseAddr(s)
		got, ok := parseIPv4([]byte(s))
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %v %t, want %v", s, got, ok, want)
		}
	}
}
