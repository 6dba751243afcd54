package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

const folder = "docs/figures"

// documents are held against their commands, and searched for figures without a claim.
func documents(root string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	return append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "deploy/README.md")}, found...), err
}

// A book is claims.yaml, with the documents that it is about.
type book struct {
	Commands []command
	Claims   map[string][]*claim
	Exempt   map[string][]*exemption

	texts map[string]*document
}

// A claim is that a figure in a document, or a table of them, is what a command prints.
type claim struct {
	Words string // where it stands, as it stands there; figures in braces
	Table string // or the head of a table
	Block string // or the first line of a block without a language, whose lines the command prints, one after the other

	Command string
	Find    patterns // regular expressions with a group: one for each figure, or one with a group for each

	// Of a table: an expression for each column that is claimed. $1 in it is what the first cell of the row says, or the one above where it is
	// empty; Names has other words for that, and "" for rows that are not claimed.
	Columns map[int]patterns
	Names   map[string]string

	Times float64 // what is printed, times this, is what the document says; 0: 1
	Per   float64 // or this, divided by what is printed
	Over  string  // or what is printed, divided by what this expression finds: a ratio that the command does not print
	Take  string  // of several places: least, most, sum; else the first
	// By how much the two may differ: "5 %", "3", "factor 2", "at most", or "range" where the command prints the least and the most, and the document one
	// of those between. If it is not given, what is printed, rounded to the digits that the document has, is what stands there. Documents quote the
	// stored output; the tolerance is for whoever runs the command again. Processor time has a factor, as machines and hours differ by that much.
	Within string

	document string
	within   func(printed float64, stands number) bool
}

// An exemption has the reason why figures need no command.
type exemption struct {
	Words, Table, Section, Block string // one of them
	Why                          string
}

// patterns is one regular expression or a list of them.
type patterns []string

func (p *patterns) UnmarshalYAML(text []byte) error {
	var one string
	if yaml.Unmarshal(text, &one) == nil {
		*p = patterns{one}
		return nil
	}
	return yaml.Unmarshal(text, (*[]string)(p))
}

// load reads claims.yaml and the documents, and finds each claim in them.
func load(root string) (*book, error) {
	names, err := documents(root)
	if err != nil {
		return nil, err
	}
	b := &book{texts: make(map[string]*document)}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		short, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		b.texts[filepath.ToSlash(short)] = &document{name: filepath.ToSlash(short), text: string(text)}
	}
	text, err := os.ReadFile(filepath.Join(root, folder, "claims.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(b); err != nil {
		return nil, fmt.Errorf("claims.yaml: %w", err)
	}
	for i := range b.Commands {
		b.Commands[i].root = root
	}
	var wrong error
	for _, name := range sorted(b.Claims) {
		doc := b.texts[name]
		if doc == nil {
			return nil, fmt.Errorf("claims.yaml: there is no document %s", name)
		}
		for _, c := range b.Claims[name] {
			c.document = name
			if err := c.prepare(b); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("claims.yaml, %s: %q: %w", name, short(c.title()), err))
			} else if _, err := c.parts(doc); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("%s: %q: %w; if the document is right, change its claim in %s/claims.yaml", name, short(c.title()), err, folder))
			}
		}
	}
	for name := range b.Exempt {
		if b.texts[name] == nil {
			wrong = errors.Join(wrong, fmt.Errorf("claims.yaml: there is no document %s", name))
		}
	}
	for i, c := range b.Commands {
		if c.Name == "" || c.Run == "" || slices.ContainsFunc(b.Commands[:i], func(k command) bool { return k.Name == c.Name }) {
			wrong = errors.Join(wrong, fmt.Errorf("claims.yaml: command %q: want a name of its own, and what is run", c.Name))
		} else if len(b.claimsOf(c.Name)) == 0 {
			wrong = errors.Join(wrong, fmt.Errorf("claims.yaml: no claim has the command %q", c.Name))
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return b, nil
}

func (c *claim) title() string { return c.Words + c.Table + c.Block }

func (c *claim) prepare(b *book) error {
	if !slices.ContainsFunc(b.Commands, func(k command) bool { return k.Name == c.Command }) {
		return fmt.Errorf("no command is called %q", c.Command)
	}
	if c.Times == 0 {
		c.Times = 1
	}
	var err error
	c.within, err = tolerance(c.Within)
	return err
}

// tolerance is by how much what is printed may differ from what stands in a document.
func tolerance(s string) (func(float64, number) bool, error) {
	switch s {
	case "":
		return func(printed float64, stands number) bool {
			half := 0.5 * math.Pow10(-stands.decimals)
			return math.Abs(printed-stands.value) <= half*(1+1e-9)
		}, nil
	case "at most":
		return func(printed float64, stands number) bool { return printed <= stands.value }, nil
	case "range":
		return nil, nil
	}
	value, percent := strings.CutSuffix(s, " %")
	value, factor := strings.CutPrefix(value, "factor ")
	by, err := strconv.ParseFloat(value, 64)
	if err != nil || by <= 0 || factor && (percent || by <= 1) {
		return nil, fmt.Errorf("within %q: want a share such as \"5 %%\", a difference such as \"3\", \"factor 2\", \"at most\" or \"range\"", s)
	}
	if factor {
		return func(printed float64, stands number) bool {
			return printed <= by*stands.value && stands.value <= by*printed
		}, nil
	}
	return func(printed float64, stands number) bool {
		most := by
		if percent {
			most = by / 100 * stands.value
		}
		return math.Abs(printed-stands.value) <= most
	}, nil
}

func (b *book) claimsOf(command string) (found []*claim) {
	for _, name := range sorted(b.texts) {
		for _, c := range b.Claims[name] {
			if c.Command == command {
				found = append(found, c)
			}
		}
	}
	return found
}

// A number is a figure as it is written: 1,716 or 0.0025 or 1.02e+03.
type number struct {
	value    float64
	decimals int
}

var (
	numeral = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?`)
	share   = regexp.MustCompile(`\b1/(\d)`) // of 1/141 the 141 counts
)

func numbers(s string) (list []number) {
	for _, n := range numeral.FindAllString(share.ReplaceAllString(s, "$1"), -1) {
		value, err := strconv.ParseFloat(strings.ReplaceAll(n, ",", ""), 64)
		if err != nil {
			continue // so long that no float64 holds it
		}
		_, fraction, _ := strings.Cut(n, ".")
		list = append(list, number{value, len(fraction)})
	}
	return list
}

// A verdict is what came of a figure.
type verdict struct {
	claim         *claim
	document      string
	line          int
	what          string
	command, when string
	printed       string
	stands, state string
}

const (
	agrees  = "agrees"
	differs = "DIFFERS"
)

// judge holds each figure of the claim against the output.
func (c *claim) judge(doc *document, out *output) (verdicts []verdict) {
	parts, err := c.parts(doc)
	if err != nil {
		return []verdict{{claim: c, document: doc.name, what: c.title(), command: c.Command, when: out.when, printed: err.Error(), state: differs}}
	}
	for _, p := range parts {
		v := verdict{claim: c, document: doc.name, line: doc.line(p.at), what: p.what, command: c.Command, when: out.when, stands: p.text}
		switch {
		case c.Block != "":
			v.stands, v.printed, v.state = "a block", "the same", agrees
			if line := missing(p.text, out.text); line != "" {
				v.stands, v.printed, v.state = short(line), "no such line", differs
			}
		default:
			found, printed, err := c.find(p, out.text)
			if v.printed = printed; err != nil {
				v.printed = err.Error()
			}
			if v.state = differs; err == nil && c.same(found, p.text) {
				v.state = agrees
			}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// same compares one by one. Where the document has one figure for several, each of them must be that.
func (c *claim) same(found []float64, text string) bool {
	stand := numbers(text)
	if c.within == nil {
		return len(found) > 0 && len(stand) == 1 && slices.Min(found) <= stand[0].value && stand[0].value <= slices.Max(found)
	}
	if len(stand) == 1 {
		for len(stand) < len(found) {
			stand = append(stand, stand[0])
		}
	}
	if len(found) == 0 || len(found) != len(stand) {
		return false
	}
	for i, n := range stand {
		if !c.within(found[i], n) {
			return false
		}
	}
	return true
}

// find is what the output says in place of a part, and how it says it.
func (c *claim) find(p part, text string) (found []float64, printed string, err error) {
	var said []string
	divisor := 1.0
	if c.Over != "" {
		over, _, err := (&claim{Times: 1}).find(part{find: patterns{c.Over}}, text)
		if err != nil {
			return nil, "", err
		}
		divisor = over[0]
	}
	for _, pattern := range p.find {
		expression, err := regexp.Compile("(?m)" + pattern)
		if err != nil {
			return nil, "", err
		}
		if expression.NumSubexp() < max(p.group, 1) {
			return nil, "", fmt.Errorf("want a group for each figure in %s", pattern)
		}
		matches := expression.FindAllStringSubmatch(text, -1)
		if len(matches) == 0 {
			return nil, "", fmt.Errorf("nothing is printed like %s", pattern)
		}
		if c.Take == "" {
			matches = matches[:1]
		}
		var values []float64
		for i, m := range matches {
			groups := m[1:]
			if p.group > 0 {
				groups = groups[p.group-1 : p.group]
			}
			for _, group := range groups {
				for _, n := range numbers(group) {
					value := n.value * c.Times / divisor
					if c.Per > 0 {
						value = c.Per / n.value
					}
					values = append(values, value)
				}
				if i == 0 && c.Take == "" {
					said = append(said, group)
				}
			}
		}
		if len(values) == 0 {
			return nil, "", fmt.Errorf("no figure is printed like %s", pattern)
		}
		switch c.Take {
		case "":
			found = append(found, values...)
			continue
		case "least":
			values[0] = slices.Min(values)
		case "most":
			values[0] = slices.Max(values)
		case "sum":
			for _, v := range values[1:] {
				values[0] += v
			}
		default:
			return nil, "", fmt.Errorf("take %q: want least, most or sum", c.Take)
		}
		found = append(found, values[0])
	}
	if c.Take != "" || c.Times != 1 || c.Per > 0 || c.Over != "" {
		said = nil
		for _, v := range found {
			said = append(said, strconv.FormatFloat(v, 'g', 5, 64))
		}
	}
	return found, strings.Join(said, ", "), nil
}

// missing is the first line of a block that the output does not have behind those before it.
func missing(block, text string) string {
	lines := strings.Split(text, "\n")
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		at := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == line })
		if at < 0 {
			return line
		}
		lines = lines[at+1:]
	}
	return ""
}
