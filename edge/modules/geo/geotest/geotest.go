// Package geotest makes MaxMind databases for tests.
package geotest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// Built is when the databases say that they were built, in seconds of Unix time.
const Built = 1_700_000_000

// Write makes a database of a kind, such as GeoLite2-City, which has these records by prefix. It
// replaces a file at once, as geoipupdate does.
func Write(t testing.TB, file, kind string, records map[string]mmdbtype.DataType) {
	t.Helper()
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, RecordSize: 24,
		BuildEpoch: Built, IncludeReservedNetworks: true})
	must(err)
	for prefix, record := range records {
		_, network, err := net.ParseCIDR(prefix)
		must(err)
		must(tree.Insert(network, record))
	}
	f, err := os.CreateTemp(filepath.Dir(file), "")
	must(err)
	_, err = tree.WriteTo(f)
	must(err)
	must(f.Close())
	must(os.Rename(f.Name(), file))
}

// Countries makes a City database: countries by prefix.
func Countries(t testing.TB, file string, of map[string]string) {
	t.Helper()
	records := make(map[string]mmdbtype.DataType, len(of))
	for prefix, code := range of {
		records[prefix] = mmdbtype.Map{"city": mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String("somewhere")}},
			"country": mmdbtype.Map{"iso_code": mmdbtype.String(code),
				"geoname_id": mmdbtype.Uint32(1)}}
	}
	Write(t, file, "GeoLite2-City", records)
}

// Systems makes an ASN database: numbers of autonomous systems by prefix.
func Systems(t testing.TB, file string, of map[string]uint32) {
	t.Helper()
	records := make(map[string]mmdbtype.DataType, len(of))
	for prefix, n := range of {
		records[prefix] = mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(n),
			"autonomous_system_organization": mmdbtype.String("Example")}
	}
	Write(t, file, "GeoLite2-ASN", records)
}
