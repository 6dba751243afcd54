// Package limit is what the limits of other programs' files become: rules of Sluice, and notes.
//
// A format fills a Rule for each limit of its file, and says of each other why it has none. The
// Result writes them as a configuration, and accounts for every limit, so that none is lost.
package limit

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

	Trust    []string `json:"-"` // of proxies
	Header   string   `json:"-"` // in which they name clients
	Services bool     `json:"-"` // the rules are about descriptors
	Open     Open     `json:"-"` // nil: no file is that others include
	mentions []Mention
}

// A File is one that another includes.
type File struct {
	Name string
	Text []byte
}

// Open returns the files that a pattern stands for, which is relative to the file that is imported.
type Open func(pattern string) ([]File, error)

// Note adds a note, unless it is there.
func (r *Result) Note(at Position, format string, args ...any) {
	n := Note{at, fmt.Sprintf(format, args...)}
	if !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// New is the Result of a file of which nothing is read yet.
func New(file string, open Open) *Result {
	return &Result{File: file, Rules: []Rule{}, Notes: []Note{}, Open: open}
}

// Write accounts for the limits, and makes a configuration of the rules.
func (r *Result) Write() error {
	if r.account(); len(r.Rules) == 0 {
		r.Note(Position{Line: 1}, "there is no limit in it that could be a rule")
	}
	slices.SortStableFunc(r.Notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	var b strings.Builder
	fmt.Fprintf(&b,
		"# Made of %s. Read the notes, and try the rules as shadows first (sluice --shadow).\n",
		r.File)
	fmt.Fprintf(&b, "# %v\n", r.Account)
	if !r.Services && slices.ContainsFunc(r.Rules, Rule.countsAddresses) {
		b.WriteString("# A client of IPv6 is its /64 here (source.ipv6_prefix), and one address there.\n")
	}
	comment := func(begin, format string, args ...any) {
		words := strings.Fields(fmt.Sprintf(format, args...))
		b.WriteString(begin + strings.Join(words, " ") + "\n")
	}
	for _, n := range r.Notes {
		comment("# ", "%v: %s", n.Position, n.Text)
	}
	if len(r.Trust) > 0 {
		source := yaml.MapSlice{{Key: "trust", Value: r.Trust}, {Key: "header", Value: r.Header}}
		text, err := yaml.Marshal(yaml.MapSlice{{Key: "source", Value: source}})
		if err != nil {
			return err
		}
		b.Write(text)
	}
	if r.Services && len(r.Rules) > 0 {
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
