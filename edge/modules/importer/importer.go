// Package importer makes rules of the limits of other programs: nginx's limit_req and limit_conn,
// HAProxy's stick tables, and the descriptors of Envoy's ratelimit.
//
// It reads what says who may send how much, and passes over all else. What has no equal, or is not
// quite equal, becomes a note with its line. A rule whose condition is not understood is a shadow,
// so that nothing is refused that was not.
package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/config"
)

// A Note is about something that has no equal.
type Note struct {
	Position
	Text string `json:"text"`
}

// A Position is a line of a file.
type Position struct {
	File string `json:"file,omitempty"` // one that is included; "": the one that is imported
	Line int    `json:"line"`
}

func (p Position) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s line %d", p.File, p.Line))
}

// A Result is what became of a file.
type Result struct {
	File  string `json:"file"`
	Rules []Rule `json:"rules"`
	Notes []Note `json:"notes"`
	// Account says that no limit is lost
	Account Account `json:"account"`
	YAML    string  `json:"yaml"` // a configuration, with the notes

	trust    []string // of proxies
	header   string   // in which they name clients
	services bool     // the rules are about descriptors
	mentions []mention
	open     Open
}

// A File is one that another includes.
type File struct {
	Name string
	Text []byte
}

// Open returns the files that a pattern stands for, which is relative to the file that is imported.
type Open func(pattern string) ([]File, error)

// Kinds are the programs whose files can be read.
var Kinds = map[string]func(r *Result, text string) error{"nginx": nginx, "haproxy": haproxy,
	"envoy-ratelimit": envoy}

// Import reads a file of a program, and those that it includes; open may be nil: then none is read.
func Import(kind, file string, text []byte, open Open) (*Result, error) {
	read, known := Kinds[kind]
	if !known {
		return nil, fmt.Errorf("%q cannot be imported: want nginx, haproxy or envoy-ratelimit",
			kind)
	}
	r := &Result{File: file, Rules: []Rule{}, Notes: []Note{}, open: open}
	if err := read(r, string(text)); err != nil {
		return nil, err
	}
	if r.account(); len(r.Rules) == 0 {
		r.note(Position{Line: 1}, "there is no limit in it that could be a rule")
	}
	slices.SortStableFunc(r.Notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return r, r.write()
}

func (r *Result) note(at Position, format string, args ...any) {
	n := Note{at, fmt.Sprintf(format, args...)}
	if !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// write makes a configuration of the rules.
func (r *Result) write() error {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# Made of %s. Read the notes, and try the rules as shadows first (sluice --shadow).\n",
		r.File)
	fmt.Fprintf(&b, "# %v\n", r.Account)
	if !r.services && slices.ContainsFunc(r.Rules, Rule.countsAddresses) {
		b.WriteString("# A client of IPv6 is its /64 here (source.ipv6_prefix), and one address there.\n")
	}
	comment := func(begin, format string, args ...any) {
		words := strings.Fields(fmt.Sprintf(format, args...))
		b.WriteString(begin + strings.Join(words, " ") + "\n")
	}
	for _, n := range r.Notes {
		comment("# ", "%v: %s", n.Position, n.Text)
	}
	if len(r.trust) > 0 {
		source := yaml.MapSlice{{Key: "trust", Value: r.trust}, {Key: "header", Value: r.header}}
		text, err := yaml.Marshal(yaml.MapSlice{{Key: "source", Value: source}})
		if err != nil {
			return err
		}
		b.Write(text)
	}
	if r.services && len(r.Rules) > 0 {
		b.WriteString("rate_limit_service: {listen: \"127.0.0.1:8082\"} # where Envoy asks\n")
	}
	if len(r.Rules) > 0 {
		b.WriteString("rules:\n")
	}
	for _, x := range r.Rules {
		comment("  # ", "%v: %s", x.Position, x.From)
		for _, n := range x.Notes {
			comment("  # ", "note: %s", n)
		}
		for line := range strings.Lines(string(x.yaml)) {
			b.WriteString("  " + line)
		}
	}
	r.YAML = strings.ReplaceAll(b.String(), "${", "$${")
	if _, err := (config.Parser{Others: true}).Parse(r.File, []byte(r.YAML)); err != nil {
		return fmt.Errorf("what was made of %s is no configuration: %w", r.File, err)
	}
	return nil
}
