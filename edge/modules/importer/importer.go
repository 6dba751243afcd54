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
	"net/netip"
	"regexp"
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

func lineOf(n int) Position { return Position{Line: n} }

func (p Position) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s line %d", p.File, p.Line))
}

// A Rule is one in YAML, where it is from, and what is not quite as it was.
type Rule struct {
	Name string `json:"name"`
	Position
	From   string   `json:"from"` // as it was written there
	Notes  []string `json:"notes,omitempty"`
	fields yaml.MapSlice
	shadow bool
	zone   *zone // of nginx
}

// set adds a field.
func (x *Rule) set(name string, v any) {
	x.fields = append(x.fields, yaml.MapItem{Key: name, Value: v})
}

// begin gives a rule its name, and what it is about.
func (r *Result) begin(x *Rule, name string, match yaml.MapSlice) {
	x.Name = r.name(name)
	x.set("name", x.Name)
	if len(match) > 0 {
		x.set("match", match)
	}
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
	names    map[string]bool
	mentions []mention
	// Rules count by address, of which the original counts each
	addresses bool
	open      Open
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
	r := &Result{File: file, Rules: []Rule{}, Notes: []Note{}, names: make(map[string]bool),
		open: open}
	if err := read(r, string(text)); err != nil {
		return nil, err
	}
	if r.account(); len(r.Rules) == 0 {
		r.note(lineOf(1), "there is no limit in it that could be a rule")
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

// clientHeaders are those in which proxies name a client.
var clientHeaders = strings.Fields(`x-forwarded-for forwarded x-real-ip x-client-ip
	x-original-forwarded-for x-cluster-client-ip cf-connecting-ip cf-connecting-ipv6
	cf-pseudo-ipv4 true-client-ip fastly-client-ip fly-client-ip do-connecting-ip
	x-azure-clientip x-azure-socketip x-appengine-user-ip cloudfront-viewer-address
	x-envoy-external-address client-ip wl-proxy-client-ip proxy-client-ip`)

func isClientHeader(name string) bool {
	return slices.Contains(clientHeaders, strings.ToLower(name))
}

// namesClient is the note about a key that names the client.
func namesClient(key string) string {
	return key +
		" names the client, and anyone can write it: name the addresses of your proxies in source.trust and the header in " +
		"source.header; then the source is the client, and mode: shadow can go"
}

var notPlain = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// name is one for a rule, which no other has.
func (r *Result) name(text string) string {
	text = strings.Trim(notPlain.ReplaceAllString(text, "-"), "-.")
	text = cmp.Or(text[:min(len(text), 56)], "rule")
	name := text
	for n := 2; r.names[name]; n++ {
		name = fmt.Sprintf("%s-%d", text, n)
	}
	r.names[name] = true
	return name
}

// add adds a rule, unless it cannot be one: then a note says why. What is not understood of its
// condition makes it a shadow.
func (r *Result) add(x Rule, unknown []string) bool {
	if len(unknown) > 0 {
		x.Notes = append(x.Notes, "a shadow, because this has no equal, or is not understood: "+
			strings.Join(unknown, ", "))
		x.shadow = true
	}
	if x.shadow {
		x.set("mode", "shadow")
	}
	text, err := yaml.Marshal(x.fields)
	if err == nil {
		_, err = (config.Parser{}).ParseRules("rule", text)
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		if _, after, found := strings.Cut(first, ": "); found {
			first = after
		}
		delete(r.names, x.Name)
		r.leftOut(mention{x.Position, x.From}, "%s", first)
		return false
	}
	r.Rules = append(r.Rules, x)
	r.addresses = r.addresses || x.countsAddresses()
	return true
}

// countsAddresses reports whether the rule counts requests by the client's address.
func (x *Rule) countsAddresses() bool {
	for _, f := range x.fields {
		switch parts, several := f.Value.([]string); {
		case f.Key == "match" && strings.Contains(fmt.Sprint(f.Value), "{descriptors "):
			return false
		case f.Key == "key":
			return several && slices.Contains(parts, "source")
		}
	}
	return true
}

// write makes a configuration of the rules.
func (r *Result) write() error {
	var b strings.Builder
	fmt.Fprintf(&b,
		"# Made of %s. Read the notes, and try the rules as shadows first (sluice --shadow).\n",
		r.File)
	fmt.Fprintf(&b, "# %v\n", r.Account)
	if r.addresses && len(r.Rules) > 0 {
		b.WriteString("# A client of IPv6 is its /64 here (source.ipv6_prefix), and one address there.\n")
	}
	comment := func(indent, text string) {
		fmt.Fprintf(&b, "%s# %s\n", indent, strings.Join(strings.Fields(text), " "))
	}
	for _, n := range r.Notes {
		comment("", fmt.Sprintf("%v: %s", n.Position, n.Text))
	}
	if len(r.trust) > 0 {
		source := yaml.MapSlice{{Key: "trust", Value: r.trust}, {Key: "header", Value: r.header}}
		text, err := yaml.Marshal(yaml.MapSlice{{Key: "source", Value: source}})
		if err != nil {
			return err
		}
		b.Write(text)
	}
	if r.services {
		b.WriteString("rate_limit_service: {listen: \"127.0.0.1:8082\"} # where Envoy asks\n")
	}
	if len(r.Rules) > 0 {
		b.WriteString("rules:\n")
	}
	for _, x := range r.Rules {
		comment("  ", fmt.Sprintf("%v: %s", x.Position, x.From))
		for _, n := range x.Notes {
			comment("  ", "note: "+n)
		}
		text, err := yaml.Marshal(x.fields)
		if err != nil {
			return err
		}
		indent := "  - "
		for line := range strings.Lines(string(text)) {
			b.WriteString(indent + line)
			indent = "    "
		}
	}
	r.YAML = strings.ReplaceAll(b.String(), "${", "$${")
	if _, err := (config.Parser{Others: true}).Parse(r.File, []byte(r.YAML)); err != nil {
		return fmt.Errorf("what was made of %s is no configuration: %w", r.File, err)
	}
	return nil
}

// prefixes are those of a list that are addresses or CIDR.
func prefixes(list []string) (good, bad []string) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if addr, alone := netip.ParseAddr(text); alone == nil {
			p, err = addr.Prefix(addr.BitLen())
		}
		switch p = p.Masked(); {
		case err != nil:
			bad = append(bad, text)
		case p.IsSingleIP():
			good = append(good, p.Addr().String())
		default:
			good = append(good, p.String())
		}
	}
	return good, bad
}

func unique[T comparable](list []T) (all []T) {
	for _, x := range list {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}
