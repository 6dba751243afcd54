// Package geo has what MaxMind's files say of addresses: the country that one is in, and the
// autonomous system that its network belongs to.
//
// A Store has the databases of a configuration. Each is read into memory whole and looked through
// before it is in force, so that a file which is overwritten in place, or damaged, is no matter of
// requests: a memory map would end the process when its file gets shorter. A file that has changed
// is read again (Refresh), and replaces the old content at once; one that is wrong changes nothing.
// A look takes no lock and allocates nothing.
//
// What is looked for is where MaxMind and DB-IP have it, country.iso_code and
// autonomous_system_number, or where IPinfo has it, country_code and asn. Not what a file is called
// decides, but what it has: a City file has countries.
package geo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"

	"sluice/edge/metric"
	"sluice/edge/regular"
)

// Config names the files; "": none.
type Config struct{ Country, ASN string }

// Names of what a database is used for, as the configuration has them.
const (
	Country = "country"
	ASN     = "asn"
)

// maxBytes bounds a file: the largest that are sold have some 500 MB.
const maxBytes = 2 << 30

// A Store keeps databases. The zero Store has none. It is safe for concurrent use.
type Store struct {
	mu           sync.Mutex
	country, asn *database // in force; nil: none
}

// A database is one file in use.
type database struct {
	of, file string
	content  atomic.Pointer[content]

	failures atomic.Uint64
	failing  atomic.Pointer[Failure] // nil: the latest look was good

	mu   sync.Mutex  // held while the file is read: seconds, of a large one
	seen os.FileInfo // of the file that was read last, good or not
	err  error       // of that
}

// Failure is a database of which the file is wrong or away, so that its last good content stays in
// force.
type Failure struct {
	Of, File string
	Since    time.Time // the first of the looks that have failed, without a good one between them
	Error    string    // of the latest
}

// content is what a file said. It does not change.
type content struct {
	reader *maxminddb.Reader
	// By the offset of the record: the number of a system, or the letters of a country; 0: it has
	// none
	values map[uintptr]uint32
	built  time.Time
	read   time.Time
}

// prepare reads the files that are not in use already. What was in force stays so until use is
// called.
func (b *Store) prepare(c Config) (country, asn *database, use func(), err error) {
	b.mu.Lock()
	country, asn = b.country, b.asn
	b.mu.Unlock()
	country, errCountry := country.or(Country, c.Country)
	asn, errASN := asn.or(ASN, c.ASN)
	if err = errors.Join(errCountry, errASN); err != nil {
		return nil, nil, nil, err
	}
	return country, asn, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.country, b.asn = country, asn
	}, nil
}

// or is d if that is of the file, else the file's.
func (d *database) or(of, file string) (*database, error) {
	switch {
	case file == "":
		return nil, nil
	case d != nil && d.file == file:
		return d, nil
	}
	d = &database{of: of, file: file}
	if _, err := d.refresh(); err != nil {
		return nil, fmt.Errorf("geo.%s: %w", of, err)
	}
	return d, nil
}

// Checks are those of files before they are in use. The zero Checks is ready, and safe for
// concurrent use.
type Checks struct{ good sync.Map }

// Check reports what is wrong with a file for countries, or for systems. One that was good once is
// good: what it said then stays in force if it is wrong now, and nothing else that is read again is
// refused for that.
func (c *Checks) Check(of, file string) error {
	type use struct{ of, file string }
	if _, good := c.good.Load(use{of, file}); good {
		return nil
	}
	_, err := (&database{of: of, file: file}).refresh()
	if err == nil {
		c.good.Store(use{of, file}, true)
	}
	return err
}

// look is what the database says of an address, as a plain one; 0: nothing.
func (d *database) look(a netip.Addr) uint32 {
	c := d.content.Load()
	r := c.reader.Lookup(a)
	if !r.Found() {
		return 0
	}
	return c.values[r.Offset()]
}

// Refresh reads the files again that have changed, and says which. Of one that is wrong the last
// good content stays in force.
func (b *Store) Refresh() (changed []string, err error) {
	b.mu.Lock()
	country, asn := b.country, b.asn
	b.mu.Unlock()
	var errs []error
	for _, d := range []*database{country, asn} {
		if d == nil {
			continue
		}
		is, err := d.refresh()
		if err != nil {
			errs = append(errs, fmt.Errorf("geo.%s: %w", d.of, err))
		}
		if is {
			changed = append(changed, fmt.Sprintf("geo.%s, built %s", d.of,
				d.content.Load().built.UTC().Format(time.DateOnly)))
		}
	}
	return changed, errors.Join(errs...)
}

// refresh reads the file if it is not the one that was read last.
func (d *database) refresh() (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.looked(err) }()
	now, err := os.Stat(d.file)
	if err != nil {
		if d.seen = nil; d.err == nil {
			d.failures.Add(1)
		}
		return false, err
	}
	if d.seen != nil && os.SameFile(now, d.seen) && now.ModTime().Equal(d.seen.ModTime()) &&
		now.Size() == d.seen.Size() {
		return false, d.err
	}
	text, about, err := read(d.file)
	if err == nil {
		var c *content
		if c, err = open(d.of, d.file, text); err == nil {
			c.read = time.Now()
			d.content.Store(c)
		}
	}
	if d.seen = about; err != nil {
		d.failures.Add(1)
	}
	return err == nil, err
}

// looked keeps what came of a look.
func (d *database) looked(err error) {
	if d.err = err; err == nil {
		d.failing.Store(nil)
		return
	}
	since := time.Now()
	if before := d.failing.Load(); before != nil {
		since = before.Since
	}
	d.failing.Store(&Failure{Of: d.of, File: d.file, Since: since, Error: err.Error()})
}

// Failing are the databases of which the file is wrong or away. It waits for no file that is read
// meanwhile.
func (b *Store) Failing() (all []Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range []*database{b.country, b.asn} {
		if d == nil {
			continue
		}
		if f := d.failing.Load(); f != nil {
			all = append(all, *f)
		}
	}
	return all
}

// read reads a file, and what it was when it was begun: one that is written meanwhile is read again
// at the next look.
func read(file string) (text []byte, about os.FileInfo, err error) {
	f, about, err := regular.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if about.Size() > maxBytes {
		return nil, about,
			fmt.Errorf("%s: it has more than %d bytes: give a Country or ASN database", file,
				maxBytes)
	}
	room := bytes.NewBuffer(make([]byte, 0, about.Size()+bytes.MinRead))
	_, err = room.ReadFrom(io.LimitReader(f, maxBytes))
	return room.Bytes(), about, err
}

// maxShared bounds how often parts of a tree are looked through to which more than one way leads,
// as some do to that of IPv4. Without them a tree has a network more than nodes; one in which each
// node leads twice to the next has 2^128.
const maxShared = 16

// Where a record may have it, the usual place first.
var places = map[string][][]any{
	Country: {{"country", "iso_code"}, {"country_code"}, {"country"}},
	ASN:     {{"autonomous_system_number"}, {"asn"}},
}

// open reads what is in a file.
func open(of, file string, text []byte) (*content, error) {
	reader, err := maxminddb.OpenBytes(text, maxminddb.DisableStringCache())
	if err != nil {
		return nil, fmt.Errorf("%s: it is no MaxMind database: %w", file, err)
	}
	c := &content{reader: reader, values: make(map[uintptr]uint32),
		built: reader.Metadata.BuildTime()}
	var place []any // known from the first record that has it
	networks, most := uint(0), maxShared*(reader.Metadata.NodeCount+1)
	// All, to be counted
	for r := range reader.Networks(maxminddb.IncludeNetworksWithoutData(),
		maxminddb.IncludeAliasedNetworks()) {
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("%s: it is damaged: %w", file, err)
		}
		if networks++; networks > most {
			return nil,
				fmt.Errorf("%s: it is damaged: it has more than %d networks, in a tree of %d nodes",
					file, most, reader.Metadata.NodeCount)
		}
		if !r.Found() {
			continue
		}
		if _, known := c.values[r.Offset()]; known {
			continue
		}
		var value uint32
		for _, at := range places[of] {
			if place != nil {
				at = place
			}
			if value, err = valueAt(of, r, at); err != nil && place != nil {
				return nil, fmt.Errorf("%s: %s: it is damaged: %w", file, r.Prefix(), err)
			}
			if value != 0 && place == nil {
				place = at
			}
			if place != nil {
				break
			}
		}
		c.values[r.Offset()] = value
	}
	if place == nil {
		want := map[string]string{Country: "countries (country.iso_code): give a Country or City database", ASN: "autonomous systems (autonomous_system_number): give an ASN or ISP database"}
		return nil, fmt.Errorf("%s: it is a database of the kind %q, which has no %s", file,
			reader.Metadata.DatabaseType, want[of])
	}
	return c, nil
}

// valueAt is what a record has at a place; 0: nothing of the kind.
func valueAt(of string, r maxminddb.Result, at []any) (uint32, error) {
	var said any
	if err := r.DecodePath(&said, at...); err != nil {
		return 0, err
	}
	switch v := said.(type) {
	case string:
		return numberOf(of, v), nil
	case uint64:
		if of == ASN && v == uint64(uint32(v)) {
			return uint32(v), nil
		}
	}
	return 0, nil
}

// Collect gives the metrics of the databases.
func (b *Store) Collect(to metric.Sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range []*database{b.country, b.asn} {
		if d == nil {
			continue
		}
		c := d.content.Load()
		to.Gauge(float64(c.built.Unix()), "sluice_geo_build_timestamp_seconds",
			"When the database in use was built by who publishes it.", "database", d.of)
		to.Gauge(float64(c.read.Unix()), "sluice_geo_read_timestamp_seconds",
			"When the database in use was read.", "database", d.of)
		to.Count(d.failures.Load(), "sluice_geo_failures_total",
			"Files of a database that could not be read, or were wrong: the last good content stays in force.", "database", d.of)
		failing := 0.0
		if d.failing.Load() != nil {
			failing = 1
		}
		to.Gauge(failing, "sluice_geo_failing", "1: the file of a database is wrong or away.",
			"database", d.of)
	}
}
