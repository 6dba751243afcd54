package match

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Value is what a header, parameter or cookie has to be. One of its fields is set, or none: then
// it is empty. One of several is enough.
type Value struct {
	// Exact; a prefix that ends in *; * for any; or ~ and a regular expression
	Text     string
	OneOf    []string // exact, whatever they begin or end with
	Contains []string
	Prefix   []string
	Suffix   []string
}

// Bounds of what a request is compared with, which an operator writes: a value takes so long at
// most.
const (
	maxValues     = 64   // of a Value
	maxExpression = 1000 // bytes of a regular expression
	// MaxSearchedValue is how many bytes of a value a regular expression is given. It takes 100 ns
	// for a byte. A longer one is taken for one that is found, or, under not, that is not: no
	// client may dodge a rule by its length.
	MaxSearchedValue = 1 << 10
)

// Terms are the ways to write a Value beside its text, with where each is kept.
var Terms = map[string]func(*Value) *[]string{
	"one_of":   func(v *Value) *[]string { return &v.OneOf },
	"contains": func(v *Value) *[]string { return &v.Contains },
	"prefix":   func(v *Value) *[]string { return &v.Prefix },
	"suffix":   func(v *Value) *[]string { return &v.Suffix },
}

var termNames = []string{"one_of", "contains", "prefix", "suffix"}

// term is the one in which a Value is written, if it is no text.
func (v Value) term() (name string, texts []string) {
	for _, name := range termNames {
		if texts := *Terms[name](&v); texts != nil {
			return name, texts
		}
	}
	return "", nil
}

// MarshalJSON shows a value as a file has it.
func (v Value) MarshalJSON() ([]byte, error) {
	switch name, texts := v.term(); {
	case name == "":
		return json.Marshal(v.Text)
	case len(texts) == 1 && name != "one_of":
		return json.Marshal(map[string]string{name: texts[0]})
	default:
		return json.Marshal(map[string][]string{name: texts})
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(text []byte) error {
	*v = Value{}
	if json.Unmarshal(text, &v.Text) == nil {
		return nil
	}
	var terms map[string]json.RawMessage
	if err := json.Unmarshal(text, &terms); err != nil {
		return err
	}
	for name, text := range terms {
		if Terms[name] == nil {
			return fmt.Errorf("%q is no way to write a value", name)
		}
		to, one := Terms[name](v), ""
		if json.Unmarshal(text, &one) == nil {
			*to = []string{one}
		} else if err := json.Unmarshal(text, to); err != nil {
			return err
		}
	}
	return nil
}

// String is the value for people.
func (v Value) String() string {
	name, texts := v.term()
	if name == "" {
		return v.Text
	}
	return name + ":" + strings.Join(texts, "|")
}

// A test is how a value is compared.
type test byte

const (
	exact test = iota
	prefix
	suffix
	contains
	search // by a regular expression
)

// compiled is what a Value asks: how, and of what; re is of search.
func (v Value) compiled() (how test, texts []string, re *regexp.Regexp, err error) {
	name, texts := v.term()
	switch expression, is := strings.CutPrefix(v.Text, "~"); {
	case name == "" && is && expression == "":
		return search, nil, nil, errors.New(
			`~ is the regular expression of any text: want "*" for any, or {one_of: ["~"]}`)
	case name == "" && is:
		if len(expression) > maxExpression {
			return search, nil, nil, fmt.Errorf("a regular expression of %d bytes: want at most %d",
				len(expression), maxExpression)
		}
		re, err = regexp.Compile(expression)
		if err != nil {
			err = fmt.Errorf("%q is not a regular expression: %v; a value that begins with ~ is {one_of: [%q]}", expression, err, v.Text)
		}
		return search, nil, re, err
	case name == "":
		text, is := strings.CutSuffix(v.Text, "*")
		if strings.Contains(text, "*") {
			return exact, nil, nil, fmt.Errorf("%q has a * before its end: want an exact value, a prefix that ends in *, or * for any", v.Text)
		}
		if is {
			return prefix, []string{text}, nil, nil
		}
		return exact, []string{text}, nil, nil
	}
	how = map[string]test{"one_of": exact, "contains": contains, "prefix": prefix,
		"suffix": suffix}[name]
	switch {
	case len(texts) == 0 || len(texts) > maxValues:
		err = fmt.Errorf("%s: want 1 to %d values", name, maxValues)
	case how != exact && slices.Contains(texts, ""):
		err = fmt.Errorf("%s: an empty text is in every value: want \"*\" for any", name)
	}
	return how, texts, nil, err
}
