package trace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The client stands before ident, user and stamp, whatever carried the line and wrote before it.
func TestPrefixes(t *testing.T) {
	for _, prefix := range []string{
		"", "Mar 15 12:00:00 mill nginx: ", "Mar  5 12:00:00 198.51.100.1 nginx[81]: ", "<190>Mar 15 12:00:00 mill nginx: ",
		"2021-03-15T12:00:00.25+01:00 mill nginx[812]: ", "Mon 2021-03-15 12:00:00 UTC mill nginx.service[812]: ",
		"<190>1 2021-03-15T12:00:00.003Z mill nginx 812 - - ", "<190>1 2021-03-15T12:00:00Z 198.51.100.1 - - - - \xef\xbb\xbf",
		`<190>1 2021-03-15T12:00:00Z mill nginx - ID7 [a@32473 x="]\"[15/Mar/2021:12:00:00]" y="2"][b@1 z="1"] `,
		"1 2021-03-15T12:00:00Z 198.51.100.1 - - - - ", "2021-03-15T12:00:00.123456789Z stdout F ", "2021-03-15T12:00:00.123456789Z ",
		"web-1  | ", "\x1b[36mweb-1  |\x1b[0m ", "\x1b[36mweb-1  | \x1b[0m", "web-1  | 2021-03-15T12:00:00.1Z ", "[pod/web-7d4b9/nginx] ", "[2021-03-15T12:00:00Z] ",
		"[pod/web-7d4b9/nginx] 2021-03-15T12:00:00.1Z ", "12:00:00 mill nginx ", "mill.example.net nginx: ", "198.51.100.1 nginx: ",
		"access.log:", "/var/log/nginx/access.log.1:12:", "./a-b.log-20210315:",
	} {
		for _, client := range []string{"192.0.2.7", "192.0.2.7:51234", "2001:db8::7"} {
			for _, user := range []string{"-", "ada", "Ada Lovelace", "x 192.0.2.9 - -", "192.0.2.9"} {
				line := prefix + client + " - " + user + ` [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "x"`
				var r record
				skipped := new(clfParser).parse([]byte(line), &r)
				got, _ := parseClient(string(r.client))
				want, _ := parseClient(client)
				if skipped != "" || got != want || len(r.host) > 0 || string(r.path) != "/a" || r.status != 200 || !r.coarse {
					t.Errorf("%s\nskipped %q, client %q, host %q, path %q, status %d", line, skipped, r.client, r.host, r.path, r.status)
				}
			}
		}
	}
	f := func(line, client, host string) {
		t.Helper()
		var r record
		if skipped := new(clfParser).parse([]byte(line+` [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`), &r); skipped != "" || string(r.client) != client || string(r.host) != host {
			t.Errorf("%s: skipped %q, client %q, host %q", line, skipped, r.client, r.host)
		}
	}
	f("Mar 15 12:00:00 mill nginx: www.example.org:443 192.0.2.7 - -", "192.0.2.7", "www.example.org")
	f("Mar 15 12:00:00 mill nginx: 192.0.2.7 ada ada", "192.0.2.7", "") // identd
	f("198.51.100.1 192.0.2.7 - -", "192.0.2.7", "198.51.100.1")
	f("12:192.0.2.7 - -", "192.0.2.7", "") // of IPv6 it might be part of the address
	f("- 192.0.2.7 - -", "192.0.2.7", "")
	f("0.003 192.0.2.7 - -", "192.0.2.7", "")
}

// Of several addresses the client is the last that is no proxy.
func TestListedClients(t *testing.T) {
	f := func(names, trust, want string) {
		t.Helper()
		p := new(clfParser)
		if trust != "" {
			p.trust = []netip.Prefix{netip.MustParsePrefix(trust)}
		}
		for _, prefix := range []string{"", "Mar 15 12:00:00 mill nginx: "} {
			var r record
			skipped := p.parse([]byte(prefix+names+` - - [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`), &r)
			if skipped != "" || string(r.client) != want || !r.listed {
				t.Errorf("%s%s with %s: skipped %q, client %q, listed %t", prefix, names, trust, skipped, r.client, r.listed)
			}
		}
	}
	for _, list := range []string{"203.0.113.9, 192.0.2.7, 10.1.2.3", "203.0.113.9,192.0.2.7,10.1.2.3", `"203.0.113.9, 192.0.2.7, 10.1.2.3"`, "203.0.113.9, 192.0.2.7,10.1.2.3"} {
		f(list, "", "203.0.113.9")
		f(list, "10.0.0.0/8", "192.0.2.7")
		f(list, "0.0.0.0/0", "203.0.113.9")
	}
	f("unknown, 2001:db8::7, 10.1.2.3", "10.0.0.0/8", "2001:db8::7")

	const line = `203.0.113.9, 192.0.2.7, 10.1.2.3 - - [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	trace, err := Read(ReadOptions{Trust: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, logFile(t, "a.log", line))
	if err != nil || trace.Listed != 1 || trace.Sources[0].Name != "192.0.2.7" {
		t.Errorf("%+v, %v", trace, err)
	}
}

// Stamps with fractions are taken as they are.
func TestFractions(t *testing.T) {
	noon := time.Date(2021, 3, 15, 12, 0, 0, 0, time.UTC)
	for stamp, want := range map[string]time.Duration{
		"15/Mar/2021:12:00:00.250 +0000": 250 * time.Millisecond, "15/Mar/2021:13:00:00.000001 +0100": time.Microsecond,
		"2021-03-15T12:00:00.5+00:00": 500 * time.Millisecond, "15/Mar/2021:12:00:00.000 +0000": 0,
	} {
		trace, err := Read(ReadOptions{}, logFile(t, "a.log", "192.0.2.7 - - ["+stamp+"] \"GET / HTTP/1.1\" 200 1\n"))
		if err != nil || !trace.Start.Equal(noon) || trace.Requests[0].At != want || trace.Coarse {
			t.Errorf("%s: %+v, %v", stamp, trace, err)
		}
	}
}

func TestHAProxy(t *testing.T) {
	text := ""
	for i, client := range []string{"192.0.2.7:33317", "192.0.2.7:33318", "2001:db8::7:4433", "::ffff:192.0.2.8:51"} {
		text += fmt.Sprintf("Mar 15 12:00:00 lb haproxy[12]: %s [15/Mar/2021:12:00:00.%d00] web~ app/s%d 10/0/30/69/109 404 2750 - - ---- 1/1/1/1/0 0/0 {a|b} \"GET /p?q=%d HTTP/1.1\"\n", client, i, i, i)
	}
	text += "Mar 15 12:00:01 lb haproxy[12]: 192.0.2.7:1 [15/Mar/2021:12:00:01.000] ssh app/s1 0/0/5007 212 -- 0/0/0/0/3 0/0\n" +
		"Mar 15 12:00:01 lb haproxy[12]: 192.0.2.7:1 [15/Mar/2021:12:00:01.000] web/1: SSL handshake failure\n"
	trace, err := Read(ReadOptions{}, logFile(t, "haproxy.log", text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, r := range trace.Requests {
		got = append(got, fmt.Sprint(r.At, " ", trace.Addr(i), " ", r.Method, " ", r.Path, " ", r.Status))
	}
	want := []string{
		"0s 192.0.2.7 GET /p?q=0 404", "100ms 192.0.2.7 GET /p?q=1 404",
		"200ms 2001:db8::7 GET /p?q=2 404", "300ms 192.0.2.8 GET /p?q=3 404",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"HAProxy HTTP, 4 of 6 lines"}, trace.ReadAs); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkCLF(b *testing.B) {
	for _, line := range []string{
		`192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a/b?c=d HTTP/1.1" 200 1234 "https://www.example.org/" "Mozilla/5.0 (X11; Linux x86_64)"`,
		`www.example.org:443 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a/b?c=d HTTP/1.1" 200 1234 "https://www.example.org/" "Mozilla/5.0 (X11; Linux x86_64)"`,
		`Mar 15 12:00:00 mill nginx: 192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET /a/b?c=d HTTP/1.1" 200 1234 "https://www.example.org/" "Mozilla/5.0 (X11; Linux x86_64)"`,
	} {
		b.Run(line[:8], func(b *testing.B) {
			p := new(clfParser)
			b.ReportAllocs()
			for b.Loop() {
				var r record
				p.parse([]byte(line), &r)
			}
		})
	}
}
