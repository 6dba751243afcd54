package lists

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/operator"
	"sluice/edge/route"
	"sluice/edge/rules/key"
)

// Settings are the lists of a configuration.
type Settings []Config

// Config is one list. Exactly one of File and URL is set.
type Config struct {
	Name       string        `json:"name" want:"own name" unique:"list"`
	File       File          `json:"file"`
	URL        URL           `json:"url"`
	Column     Column        `json:"column"`
	Refresh    time.Duration `json:"refresh" want:"5s to 168h"`
	MaxEntries int           `json:"max_entries" want:"1 to 20000000"`
	MaxBytes   int           `json:"max_bytes" want:"1KiB to 1GiB"`
}

// A File has a list.
type File string

func (f *File) UnmarshalText(text []byte) error {
	if *f = File(text); *f == "" {
		return errors.New("it is empty: give the path of a file")
	}
	return nil
}

// A URL answers with a list, over http or https.
type URL string

func (u *URL) UnmarshalText(text []byte) error {
	*u = URL(text)
	of, err := url.Parse(string(text))
	if err != nil || of.Scheme != "https" && of.Scheme != "http" || of.Host == "" {
		return fmt.Errorf("%q is no URL of a list: want one such as https://lists.example/partners.txt", text)
	}
	return nil
}

// A Column of CSV has the addresses: its name, or its number from 1; "": it is no CSV.
type Column string

func (c *Column) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if len(text) == 0 || len(text) > 100 || err == nil && (n < 1 || n > 1000) {
		return fmt.Errorf("%q is no column: want its name in the first row, or its number, from 1",
			text)
	}
	*c = Column(text)
	return nil
}

// Check returns what is missing, and gives what is left out its default.
func (c *Config) Check() error {
	switch {
	case c.Name == "":
		return errors.New("no name: every list needs a name and a file or a url")
	case (c.File == "") == (c.URL == ""):
		return fmt.Errorf("%s: want a file or a url, and one of them", c.Name)
	}
	c.Refresh = cmp.Or(c.Refresh, 5*time.Minute)
	c.MaxEntries, c.MaxBytes = cmp.Or(c.MaxEntries, 1_000_000), cmp.Or(c.MaxBytes, 32<<20)
	return nil
}

// MarshalJSON shows operators a list without its password.
func (c Config) MarshalJSON() ([]byte, error) {
	one := map[string]any{"name": c.Name, "refresh": c.Refresh.String(),
		"max_entries": c.MaxEntries, "max_bytes": c.MaxBytes}
	if one["file"] = c.File; c.URL != "" {
		delete(one, "file")
		one["url"] = c.Where()
	}
	if c.Column != "" {
		one["column"] = c.Column
	}
	return json.Marshal(one)
}

const name = "lists"

// Module makes a client's being on named lists a fact. Offline has no URL asked: what state_dir has
// of it is in force, else nothing.
func Module(offline bool) edge.Module {
	b := &Store{Offline: offline}
	return edge.Module{Name: name, Prepare: b.prepare, Run: b.Run, Reload: b.reload,
		Collect: b.Collect, State: b.state, Notes: b.notes,
		Routes: []route.Route{{Pattern: "GET " + path,
			Serve: func(_ *route.API, w http.ResponseWriter, _ *http.Request) {
				route.Reply(w, b.Status())
			}}},
		Commands: []operator.Command{operator.Asks(operator.NewFlagSet(name), "",
			"the named lists of addresses: how many entries they have, when they were read, and why the last look failed", show)},
		Config: config.Module{Settings: func() any { return new(Settings) },
			Facts: []*key.Fact{fact()},
			Lacks: func(c *config.Config, _, value string) error { return of(c).lacks(value) }}}
}

func fact() *key.Fact { return &key.Fact{Name: "list", Noun: "list", Match: name, Mark: "list:"} }

// of are the lists of a configuration.
func of(c *config.Config) Settings {
	if all := config.SettingsOf[Settings](c, name); all != nil {
		return *all
	}
	return nil
}

// lacks is what is wrong with the name of a list that is none of those there are.
func (s Settings) lacks(name string) error {
	var are []string
	for i := range s {
		if s[i].Name != "" { // else it is wrong, which is said there
			are = append(are, s[i].Name)
		}
	}
	slices.Sort(are)
	switch are = slices.Compact(are); {
	case slices.Contains(are, name):
		return nil
	case len(are) == 0:
		return fmt.Errorf("lists: there is no list %q: name it under lists, with its file or url",
			name)
	}
	return fmt.Errorf("lists: there is no list %q: want %s", name, strings.Join(are, " or "))
}

func (b *Store) prepare(s *edge.Setup) (edge.Points, error) {
	b.first.Do(func() { // before Run; a process has one state_dir
		if b.Events = s.Events; s.Config.StateDir != "" {
			b.Dir = filepath.Join(s.Config.StateDir, "lists")
		}
	})
	all, use, err := b.Prepare(of(s.Config))
	if err != nil {
		return edge.Points{}, err
	}
	f := fact()
	f.Lacks = of(s.Config).lacks
	f.In = func(names []string) *address.Group {
		var named []*address.List
		for _, name := range names {
			named = append(named, all[name])
		}
		return address.OfLists(named)
	}
	return edge.Points{Facts: []*key.Fact{f}, InForce: use}, nil
}

// reload reads files again, and what Prepare of a new configuration would have to wait for.
func (b *Store) reload(ctx context.Context, c *config.Config) (done func()) {
	b.ReadFiles(ctx)
	if c == nil {
		return func() {}
	}
	return b.Fetch(ctx, of(c))
}

// state adds the lists that cannot be read.
func (b *Store) state(to *control.State) {
	for _, l := range b.Status() {
		if l.Error != "" {
			to.Unread = append(to.Unread, control.Unread{Field: name + "." + l.Name, From: l.From,
				Since: l.FailingSince, Error: l.Error})
		}
	}
}

// notes say what lists have.
func (b *Store) notes() (notes []string) {
	for _, l := range b.Status() {
		has := "list " + l.Name
		switch {
		case !l.URL:
			has += " has " + Entries(l.Entries)
		case l.Entries > 0:
			has += " had " + Entries(l.Entries) + " when its URL was last read; check asks no URL"
		default:
			has += " comes from a URL, which check does not ask: a start needs its answer"
		}
		notes = append(notes, has)
	}
	return notes
}

const path = "/v1/lists"

// show prints how the named lists of an edge stand.
func show(c *operator.Client, _ []string) error {
	return operator.Show(c, http.MethodGet, path, nil, func(list []Status) error {
		if len(list) == 0 {
			return c.Lines([]string{"there are no named lists: the configuration has none under lists"})
		}
		t := operator.Table{Columns: []operator.Column{{Title: "LIST"},
			{Title: "ENTRIES", Form: operator.Right}, {Title: "READ", Form: operator.Right},
			{Title: "CHANGED", Form: operator.Right}, {Title: "FROM", Form: operator.Text},
			{Title: "ERROR", Form: operator.Text}}}
		for _, l := range list {
			read := "not yet"
			if !l.Read.IsZero() {
				read = operator.Span(c.Now.Sub(l.Read)) + " ago"
			}
			changed := "never"
			if !l.Changed.IsZero() {
				changed = operator.Span(c.Now.Sub(l.Changed)) + " ago"
			}
			t.Add(l.Name, operator.Number(uint64(l.Entries)), read, changed, l.From, l.Error)
		}
		return t.Write(c.Out)
	})
}
