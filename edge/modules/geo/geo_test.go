package geo

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter/mmdbtype"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/metric"
	"sluice/edge/modules/geo/geotest"
)

func city(code string) mmdbtype.DataType {
	return mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}}
}

func system(n uint32) mmdbtype.DataType {
	return mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(n)}
}

func TestLook(t *testing.T) {
	cities, systems, flat := filepath.Join(t.TempDir(), "city"), filepath.Join(t.TempDir(), "asn"), filepath.Join(t.TempDir(), "flat")
	geotest.Write(t, cities, "GeoLite2-City", map[string]mmdbtype.DataType{
		"192.0.2.0/24": city("DE"), "2001:db8::/32": city("FR"),
		"198.51.100.0/24": mmdbtype.Map{"continent": mmdbtype.Map{"code": mmdbtype.String("EU")}},
	})
	geotest.Write(t, systems, "GeoLite2-ASN", map[string]mmdbtype.DataType{"192.0.2.0/25": system(64500), "2001:db8::/32": system(4_200_000_000)})
	geotest.Write(t, flat, "ipinfo bundle_location_lite.mmdb", map[string]mmdbtype.DataType{
		"192.0.2.0/24": mmdbtype.Map{"asn": mmdbtype.String("AS64501"), "country": mmdbtype.String("Germany"), "country_code": mmdbtype.String("DE")}})
	f := func(c Config, addr, country string, asn uint32) {
		t.Helper()
		in, of, use, err := new(Store).prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		use()
		a := netip.MustParseAddr(addr)
		for i, fact := range facts(in, of) {
			got, want := fact.OfAddress(a), []string{country, strconv.Itoa(int(asn))}[i]
			if want == "0" {
				want = ""
			}
			if got != want {
				t.Errorf("%s of %s is %q, want %q", fact.Name, addr, got, want)
			}
			if is := fact.In([]string{"NO", "1", got}).Has(a); is != (want != "") {
				t.Errorf("%s is in %q: %t", addr, got, is)
			}
		}
	}
	both := Config{Country: cities, ASN: systems}
	f(both, "192.0.2.1", "DE", 64500)
	f(both, "192.0.2.200", "DE", 0)
	f(both, "::ffff:192.0.2.1", "DE", 64500)
	f(both, "2001:db8::1", "FR", 4_200_000_000)
	f(both, "198.51.100.1", "", 0) // a record without a country
	f(both, "203.0.113.1", "", 0)  // no record
	f(both, "2001:db9::1", "", 0)
	f(Config{Country: flat, ASN: flat}, "192.0.2.1", "DE", 64501)

	in, of, _, err := new(Store).prepare(Config{ASN: systems})
	if err != nil || in != nil || of == nil {
		t.Errorf("%v %v %v", in, of, err)
	}
}

func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	systems, cities := filepath.Join(dir, "asn"), filepath.Join(dir, "city")
	geotest.Write(t, systems, "GeoLite2-ASN", map[string]mmdbtype.DataType{"192.0.2.0/25": system(64500)})
	geotest.Write(t, cities, "GeoLite2-City", map[string]mmdbtype.DataType{"192.0.2.0/24": city("DE"), "198.51.100.0/24": city("FR"), "2001:db8::/32": city("FR")})
	f := func(of, file, want string) {
		t.Helper()
		if err := new(Checks).Check(of, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	f(Country, systems, systems+`: it is a database of the kind "GeoLite2-ASN", which has no countries (country.iso_code): give a Country or City database`)
	f(ASN, cities, `it is a database of the kind "GeoLite2-City", which has no autonomous systems (autonomous_system_number): give an ASN or ISP database`)
	f(ASN, filepath.Join(dir, "none"), "no such file")
	f(ASN, dir, "that is a folder")
	f(ASN, "/dev/zero", "that is no regular file")
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	f(ASN, pipe, pipe+": that is no regular file") // nobody ever writes to it
	text, err := os.ReadFile(cities)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	for n := range len(text) {
		put(t, bad, text[:n])
		f(Country, bad, bad)
	}
}

// A tree of which each node leads twice to the next has more networks than anybody can look through.
func TestSharedTree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "city")
	geotest.Write(t, file, "GeoLite2-City", map[string]mmdbtype.DataType{"2001:db8::/32": city("DE")})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const nodes, record = 100, 3               // bytes of a record, of which a node has two
	end := bytes.Index(text, make([]byte, 16)) // of the tree
	at := bytes.LastIndex(text, []byte("node_count")) + len("node_count")
	tree := make([]byte, 0, 2*record*nodes)
	for i := range nodes {
		next := byte(i + 1)
		if i == nodes-1 {
			next = nodes + 16 // the first record
		}
		tree = append(tree, 0, 0, next, 0, 0, next)
	}
	if text[at]>>5 != 6 { // an unsigned number of 32 bits, of so many bytes as the others say
		t.Fatalf("%x", text[at:at+4])
	}
	number := int(text[at] & 0x1f)
	changed := slices.Concat(tree, text[end:at], []byte{6<<5 | 1, nodes}, text[at+1+number:])
	if _, err := open(Country, file, changed); err == nil || !strings.Contains(err.Error(), "in a tree of 100 nodes") {
		t.Error(err)
	}
}

// Whoever asks for metrics does not wait for a file that is being read.
func TestCollectWhileReading(t *testing.T) {
	file := filepath.Join(t.TempDir(), "country")
	geotest.Write(t, file, "GeoLite2-Country", map[string]mmdbtype.DataType{"192.0.2.0/24": city("DE")})
	b := new(Store)
	_, _, use, err := b.prepare(Config{Country: file})
	if err != nil {
		t.Fatal(err)
	}
	use()
	b.country.mu.Lock() // as while it is read
	defer b.country.mu.Unlock()
	all := prometheus.NewRegistry()
	all.MustRegister(metric.Collector(b.Collect))
	done := make(chan error)
	go func() {
		_, err := all.Gather()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("they wait")
	}
}

func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A damaged file may say what it wants, or be refused, but is no matter of whoever looks.
func FuzzOpen(f *testing.F) {
	file := filepath.Join(f.TempDir(), "city")
	geotest.Write(f, file, "GeoLite2-City", map[string]mmdbtype.DataType{"192.0.2.0/24": city("DE"), "2001:db8::/32": city("FR")})
	text, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	for i := range len(text) {
		damaged := append([]byte{}, text...)
		damaged[i] ^= 0xff
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := open(Country, "f", text)
		if err != nil {
			return
		}
		d := new(database)
		d.content.Store(c)
		for _, a := range []string{"192.0.2.1", "2001:db8::1", "203.0.113.1", "::"} {
			d.look(netip.MustParseAddr(a))
		}
	})
}

// A file that changes is in force whole or not at all; a bad one leaves the last good content.
func TestRefresh(t *testing.T) {
	file := filepath.Join(t.TempDir(), "country")
	geotest.Write(t, file, "GeoLite2-Country", map[string]mmdbtype.DataType{"192.0.2.0/24": city("DE")})
	b := new(Store)
	in, _, use, err := b.prepare(Config{Country: file})
	if err != nil {
		t.Fatal(err)
	}
	use()
	again := func(want string, wantChanged int, wantErr string) {
		t.Helper()
		changed, err := b.Refresh()
		if len(changed) != wantChanged || (err != nil) != (wantErr != "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q, %v; want %d, %s", changed, err, wantChanged, wantErr)
		}
		if got := facts(in, nil)[0].OfAddress(netip.MustParseAddr("192.0.2.1")); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	again("DE", 0, "")
	put(t, file, []byte("not found"))
	again("DE", 0, "geo.country: "+file+": it is no MaxMind database")
	again("DE", 0, "it is no MaxMind database")
	if n := b.country.failures.Load(); n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
	first := b.Failing()
	if len(first) != 1 || first[0].Of != Country || first[0].File != file || first[0].Since.IsZero() {
		t.Fatalf("%+v", first)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	again("DE", 0, "no such file")
	if f := b.Failing(); len(f) != 1 || f[0].Since != first[0].Since || !strings.Contains(f[0].Error, "no such file") {
		t.Errorf("%+v, first %+v", f, first)
	}
	geotest.Write(t, file, "GeoLite2-Country", map[string]mmdbtype.DataType{"192.0.2.0/24": city("FR")})
	again("FR", 1, "")
	if f := b.Failing(); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	again("FR", 1, "") // another file, for all that is known
	if same, _, _, err := b.prepare(Config{Country: file}); err != nil || same != in {
		t.Error("a database that stays is read again", err)
	}
}

func BenchmarkLook(b *testing.B) {
	file := filepath.Join(b.TempDir(), "asn")
	records := make(map[string]mmdbtype.DataType)
	for i := range 200_000 {
		records[netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(1 + i>>16), byte(i >> 8), byte(i)}), 24).String()] = system(uint32(1 + i%80_000))
	}
	geotest.Write(b, file, "GeoLite2-ASN", records)
	started := time.Now()
	_, asn, _, err := new(Store).prepare(Config{ASN: file})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(started).Milliseconds()), "load-ms")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		asn.look(netip.AddrFrom4([4]byte{byte(1 + i%3), byte(i >> 8), byte(i), 1}))
	}
}
