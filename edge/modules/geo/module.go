package geo

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/edge"
	"sluice/edge/address"
	"sluice/edge/beat"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/rules/key"
)

// Settings name the files of databases.
type Settings struct {
	Country File `json:"country" want:"file"`
	ASN     File `json:"asn" want:"file"`
}

// A File is one of them.
type File struct {
	of, path string // "": there is none
	checks   *Checks
}

func (f *File) UnmarshalText(text []byte) error {
	if f.path = string(text); f.path == "" {
		return errors.New("it is empty: give the path of a MaxMind database")
	}
	if f.checks == nil {
		return nil
	}
	return f.checks.Check(f.of, f.path)
}

// Equal reports whether both are one, whoever looks it through.
func (f File) Equal(other File) bool { return f.of == other.of && f.path == other.path }

func (f File) MarshalJSON() ([]byte, error) {
	if f.path == "" {
		return []byte(`"none"`), nil
	}
	return json.Marshal(f.path)
}

const name = "geo"

// Checked are the files that this process has found good, for Module: modules are made anew for
// each configuration that is read.
var Checked = new(Checks)

// A module keeps the databases.
type module struct {
	store Store

	mu       sync.Mutex
	happened *events.Log
	logged   string // of what is wrong
}

// Module makes the country and the autonomous system of a client facts. Files of a configuration
// are looked through as it is read, unless checks is nil.
func Module(checks *Checks) edge.Module {
	m := new(module)
	return edge.Module{Name: name, Prepare: m.prepare, Run: m.run, Reload: m.reload,
		Collect: m.store.Collect, State: m.state, Config: config.Module{
			Settings: func() any {
				return &Settings{File{of: Country, checks: checks}, File{of: ASN, checks: checks}}
			},
			Facts: facts(nil, nil),
			Lacks: func(c *config.Config, fact, _ string) error { return lacks(c, fact) },
		}}
}

// paths are those of a configuration; "": there is none.
func paths(c *config.Config) Config {
	s := config.SettingsOf[Settings](c, name)
	if s == nil {
		return Config{}
	}
	return Config{s.Country.path, s.ASN.path}
}

func lacks(c *config.Config, fact string) error {
	switch files := paths(c); {
	case fact == Country && files.Country == "":
		return errors.New("no database says in which country an address is: give geo: {country: FILE}")
	case fact == ASN && files.ASN == "":
		return errors.New("no database says of which autonomous system an address is: give geo: {asn: FILE}")
	}
	return nil
}

// facts are what databases say; nil: there is none.
func facts(country, asn *database) []*key.Fact {
	return []*key.Fact{
		country.fact(&key.Fact{Name: Country, Match: "countries", Parse: parseCountry, Kind: 9},
			func(buf []byte, n uint32) []byte { return append(buf, byte(n>>8), byte(n)) }),
		asn.fact(&key.Fact{Name: ASN, Match: "asns", Parse: parseASN, Numbers: true, Before: "AS ",
			Kind: 10, Form: formOfASN},
			func(buf []byte, n uint32) []byte { return strconv.AppendUint(buf, uint64(n), 10) }),
	}
}

// formOfASN appends what keys hash of a system.
func formOfASN(buf, value []byte) []byte {
	n := uint32(0)
	for _, digit := range value {
		n = n*10 + uint32(digit-'0')
	}
	return binary.LittleEndian.AppendUint32(buf, n)
}

// fact has a fact found out, whose values are written so.
func (d *database) fact(f *key.Fact, write func(buf []byte, n uint32) []byte) *key.Fact {
	if f.Mark = f.Name + ":"; d == nil {
		return f
	}
	f.Find = func(buf []byte, v *key.View) []byte {
		if n := d.look(v.Client); n != 0 {
			return write(buf, n)
		}
		return buf
	}
	f.In = func(values []string) *address.Group {
		var numbers []uint32
		for _, text := range values {
			numbers = append(numbers, numberOf(f.Name, text))
		}
		return address.Known(func(a netip.Addr) bool {
			n := d.look(a)
			return n != 0 && slices.Contains(numbers, n)
		})
	}
	return f
}

func (m *module) prepare(s *edge.Setup) (edge.Points, error) {
	country, asn, use, err := m.store.prepare(paths(s.Config))
	if err != nil {
		return edge.Points{}, err
	}
	all := facts(country, asn)
	for _, f := range all {
		f.Lacks = func(string) error { return lacks(s.Config, f.Name) }
	}
	return edge.Points{Facts: all, InForce: func() {
		use()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.happened = s.Events
	}}, nil
}

// every is how often files are looked at.
const every = time.Second

func (m *module) run(ctx context.Context) { beat.Every(ctx, every, m.look) }

func (m *module) reload(context.Context, *config.Config) (done func()) {
	m.look(time.Now())
	return func() {}
}

// look reads files that have changed. An error is an event once, until it is mended.
func (m *module) look(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, err := m.store.Refresh()
	e := events.Event{Time: now, Kind: events.Geo, Text: "read again: " + strings.Join(changed, "; ")}
	if err != nil {
		e.Level, e.Text = slog.LevelError,
			"a database is wrong: the last good one stays in use: "+err.Error()
	}
	if (len(changed) > 0 || err != nil) && e.Text != m.logged {
		m.happened.Add(e)
	}
	if m.logged = ""; err != nil {
		m.logged = e.Text
	}
}

// state adds the files that are wrong or away.
func (m *module) state(to *control.State) {
	for _, f := range m.store.Failing() {
		to.Unread = append(to.Unread, control.Unread{Field: name + "." + f.Of, From: f.File,
			Since: f.Since, Error: f.Error})
	}
}
