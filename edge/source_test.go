package edge

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/counter"
	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/rules"
)

func headOf(t testing.TB, lines ...string) *message.Head {
	h := &message.Head{}
	if _, err := http1.ScanHead(h, []byte(strings.Join(append(lines, "", ""), "\r\n")), message.MaxLines); err != nil {
		t.Fatal(err)
	}
	return h
}

func trusting(header string) *rules.Sources {
	return rules.NewSources(rules.SourceConfig{IPv4Prefix: 32, IPv6Prefix: 64, Header: header,
		Trust: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}})
}

func TestIdentify(t *testing.T) {
	const xff, real, fwd = "X-Forwarded-For", "X-Real-IP", "Forwarded"
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
		{"zone", xff, "10.0.0.1", []string{"X-Forwarded-For: fe80::1%eth0"}, "fe80::1", "fe80::1"},
		{"other headers are not read", xff, "10.0.0.1", []string{"X-Real-IP: 1.2.3.4", "Forwarded: for=1.2.3.4"}, "10.0.0.1", ""},
		{"real", real, "10.0.0.1", []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 1.2.3.4"}, "192.0.2.1", "192.0.2.1"},
		{"forwarded", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1;proto=http;by=10.0.0.1`}, "192.0.2.1", "192.0.2.1"},
		{"forwarded, quoted", fwd, "10.0.0.1", []string{`Forwarded: proto=http; For="[2001:db8::1]:4711", for="10.0.0.2:80"`}, "2001:db8::1", "10.0.0.2 2001:db8::1"},
		{"forwarded, obfuscated", fwd, "10.0.0.1", []string{`Forwarded: for=192.0.2.1, for=_hidden`}, "10.0.0.1", ""},
		{"forwarded, a quote that never ends", fwd, "10.0.0.1", []string{`Forwarded: for="1.2.3.4, for=192.0.2.1`}, "192.0.2.1", "192.0.2.1"},
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
	if len(chain) != rules.MaxHops || client != netip.MustParseAddr("10.0.0.9") {
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
		if client != netip.MustParseAddr("192.0.2.1") {
			t.Fatalf("%q: %s", written, client)
		}
	})
}

func TestParseIPv4(t *testing.T) {
	for _, s := range []string{"0.0.0.0", "255.255.255.255", "192.0.2.1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "1..2.3", "", ".", "1.2.3.4.", "1.2.3.a"} {
		want, err := netip.ParseAddr(s)
		got, ok := rules.ParseIPv4([]byte(s))
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %v %t, want %v", s, got, ok, want)
		}
	}
}

func TestDigest(t *testing.T) {
	parts := func(list ...string) []rules.KeyPart {
		var p []rules.KeyPart
		for _, s := range list {
			part, err := rules.ParseKeyPart(s)
			if err != nil {
				t.Fatal(err)
			}
			p = append(p, part)
		}
		return p
	}
	a, b := ip("192.0.2.1"), ip("192.0.2.2")
	of := func(secretByte byte, source counter.Source, p []rules.KeyPart, lines ...string) counter.Source {
		s, _, ok := rules.NewSecret([16]byte{secretByte}).Digest(p, headOf(t, lines...), source, nil)
		if !ok {
			t.Fatalf("%q: no digest", lines)
		}
		return s
	}
	key, both := parts("header:X-Key"), parts("header:A", "header:B")
	same := []struct {
		name string
		x, y counter.Source
	}{
		{"a header's name has no case, its value stands for itself", of(1, a, key, "X-Key: 1"), of(1, b, key, "x-kEY:  1 ")},
		{"a missing one is the source's", of(1, a, key), of(1, a, key, "Other: 1")},
		{"so is an empty one", of(1, a, key), of(1, a, key, "X-Key: ")},
		{"so is one that is named in Connection", of(1, a, key), of(1, a, key, "Connection: x-key", "X-Key: 1")},
		{"one that is there twice alike is there", of(1, a, key, "X-Key: 1"), of(1, b, key, "X-Key: 1", "X-Key: 1")},
		{"cookies", of(1, a, parts("cookie:sid"), "Cookie: a=b; sid=1"), of(1, b, parts("cookie:sid"), "Cookie: sid=1;c=d")},
		{"a cookie that is there twice alike", of(1, a, parts("cookie:sid"), "Cookie: sid=1"), of(1, a, parts("cookie:sid"), "Cookie: sid=1", "Cookie: sid=1")},
		{"cookie names have no case for some", of(1, a, parts("cookie:sid"), "Cookie: SID=1"), of(1, b, parts("cookie:sid"), "Cookie: sid=1")},
	}
	for _, s := range same {
		if s.x != s.y {
			t.Errorf("%s: %v and %v differ", s.name, s.x, s.y)
		}
	}
	different := []struct {
		name string
		x, y counter.Source
	}{
		{"values", of(1, a, key, "X-Key: 1"), of(1, a, key, "X-Key: 2")},
		{"secrets", of(1, a, key, "X-Key: 1"), of(2, a, key, "X-Key: 1")},
		{"missing, by source", of(1, a, key), of(1, b, key)},
		{"where one value ends", of(1, a, both, "A: x", "B: yz"), of(1, a, both, "A: xy", "B: z")},
		{"which one is missing", of(1, a, both, "A: x"), of(1, a, both, "B: x")},
		{"source and header", of(1, a, parts("source", "header:A"), "A: 1"), of(1, b, parts("source", "header:A"), "A: 1")},
		{"a key that is one word has case", of(1, a, parts("header:Authorization"), "Authorization: Abc"), of(1, a, parts("header:Authorization"), "Authorization: abc")},
	}
	for _, s := range different {
		if s.x == s.y {
			t.Errorf("%s: both are %v", s.name, s.x)
		}
	}
}

func TestConnectionCannotNameWhatMatters(t *testing.T) {
	h := headOf(t, "Connection: Host, content-length, X-Forwarded-For, via, X-Original-URL, cookie, x-own", "Host: a", "Content-Length: 1", "X-Forwarded-For: 1.1.1.1",
		"Via: 1.1 a", "X-Original-URL: /", "Cookie: a=b", "X-Own: 1")
	for i, dropped := range []bool{true, false, false, false, false, false, true, true} {
		if h.Lines[i].Drop != dropped {
			t.Errorf("%s: dropped %t, want %t", h.Lines[i].Name, h.Lines[i].Drop, dropped)
		}
	}
}
