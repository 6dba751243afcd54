package config

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/address"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/upstream"
)

// Sections of a configuration, of the edge itself and of modules, are read into structs. Each of
// their fields is a setting by the name that its tag json gives, and its tag want says what it may
// be:
//
//	bool                 nothing
//	int, uint32          "1 to 30"; "1KiB to 1MiB" is a size
//	time.Duration        "1s to 24h". rules.Duration likewise
//	string               words, "none or page"; one of forms, "address", or "address or none", which
//	                     is ""; without: any text
//	netip.Prefix, *url.URL, a TextUnmarshaler    what it takes; "text or none": none as well
//	Content              a file, of at most so many bytes as want says
//	a slice              as one, each; with a tag each:"once" none may be there twice, and with
//	                     most:"8" no more than so many
//	a pointer            what it points to; "none, or 1s to 24h": none is nil
//	a struct             its settings, within; embedded: as if they were the struct's own
//
// With "0, or " before a range 0 may be as well.
//
// What has a method Check() error is checked once it is read, and a slice that has CheckLast() error
// after each of its entries. CheckGiven of a section finds what settings say about each other, where
// some are wrong as well: an error stands at the first of the settings at that is given. The tag need says what a setting is without which the section's others
// are nothing, unique:"list" that it is the name of a list, which no other has, and reload:"yes" that
// it takes effect when the file is read again, not at the next start only. With omitempty operators are not shown a zero.

// settings are the fields of a struct, with what their names begin with in errors.
func (r *reader) settings(begin string, to any) fields {
	of, all := reflect.ValueOf(to).Elem(), make(fields)
	for name, f := range settingsIn(of) {
		all[name] = r.setting(begin+name, f.Tag, of.FieldByIndex(f.Index).Addr().Interface())
		if noun := f.Tag.Get("unique"); noun != "" {
			all[name] = r.unique(begin+name, noun, all[name])
		}
	}
	return all
}

// into reads a mapping into a struct, and returns where each setting stands.
func (r *reader) into(n ast.Node, what string, to any) map[string]ast.Node {
	before := len(r.errs)
	seen := r.mapping(n, what, r.settings(what+".", to))
	for name, f := range settingsIn(reflect.ValueOf(to).Elem()) {
		if need := f.Tag.Get("need"); need != "" && len(seen) > 0 && seen[name] == nil &&
			len(r.errs) == before {
			r.fail(n, "%s has no %s: give %s", what, name, need)
		}
	}
	r.check(n, what, before, to)
	if c, can := to.(interface {
		CheckGiven(given func(setting string) bool, wrong func(err error, at ...string))
	}); can {
		c.CheckGiven(func(name string) bool { return seen[name] != nil },
			func(err error, at ...string) {
				where := n
				for _, name := range slices.Backward(at) {
					where = cmp.Or(seen[name], where)
				}
				r.fail(where, "%s: %v", what, err)
			})
	}
	return seen
}

// settingsIn are the settings of a struct by their names, those of embedded structs among them.
func settingsIn(of reflect.Value) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(of.Type()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" && !yield(name, f) {
				return
			}
		}
	}
}

// check has a value checked, if nothing was wrong with it.
func (r *reader) check(n ast.Node, what string, before int, value any) {
	if c, can := value.(interface{ Check() error }); can && len(r.errs) == before {
		if err := c.Check(); err != nil {
			r.fail(n, "%s: %v", what, err)
		}
	}
}

// unique reads a name that no other entry of a list has.
func (r *reader) unique(what, noun string, read func(ast.Node)) func(ast.Node) {
	return func(n ast.Node) {
		before, name := len(r.errs), what+" "+scalar(n)
		read(n)
		switch other := r.named[name]; {
		case len(r.errs) > before:
		case other != nil:
			r.fail(n, "%s: %s is the name of the %s at %s already: choose another", what, scalar(n),
				noun, r.lineOf(n, other))
		case r.named == nil:
			r.named = map[string]ast.Node{name: n}
		default:
			r.named[name] = n
		}
	}
}

// setting reads a value as its type and its tags say.
func (r *reader) setting(what string, tag reflect.StructTag, to any) func(ast.Node) {
	want := tag.Get("want")
	switch to := to.(type) {
	case *bool:
		return r.boolean(what, to)
	case *int:
		low, high, zero := rangeOf(want, sizeOf)
		if strings.HasSuffix(want, "iB") {
			return r.size(what, low, high, zero, to)
		}
		return integer(r, what, int64(low), int64(high), to)
	case *uint32:
		low, high, _ := rangeOf(want, sizeOf)
		return integer(r, what, int64(low), int64(high), to)
	case *time.Duration:
		low, high, zero := rangeOf(want, time.ParseDuration)
		return r.duration(what, low, high, zero, to)
	case *rules.Duration:
		return r.setting(what, tag, (*time.Duration)(to))
	case *netip.Prefix:
		return parsed(r, what, address.ParsePrefix, to)
	case **url.URL:
		return parsed(r, what, upstream.ParseOrigin, to)
	case *Content:
		return r.text(what, func(n ast.Node, text string) {
			var err error
			if to.Text, err = r.tree.Content(n, text, int64(number(want))); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
			to.File = text
		})
	case encoding.TextUnmarshaler:
		return r.text(what, func(n ast.Node, text string) {
			if text == "none" && takesNone(want) {
				return
			}
			if err := to.UnmarshalText([]byte(text)); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
		})
	}
	switch of := reflect.ValueOf(to).Elem(); of.Kind() {
	case reflect.String:
		return r.text(what, func(n ast.Node, text string) {
			if text == "none" && takesNone(want) {
				return
			}
			text, err := formed(want, text)
			if err != nil {
				r.fail(n, "%s: %v", what, err)
				return
			}
			of.SetString(text)
		})
	case reflect.Pointer:
		return func(n ast.Node) {
			if scalar(n) == "none" && takesNone(want) {
				return
			}
			one := reflect.New(of.Type().Elem())
			r.setting(what, tag, one.Interface())(n)
			of.Set(one)
		}
	case reflect.Slice:
		return func(n ast.Node) { r.slice(n, what, tag, of) }
	case reflect.Struct:
		return func(n ast.Node) { r.into(n, what, to) }
	}
	return func(ast.Node) { // but where the section has code for it
		panic(fmt.Sprintf("config: %s: no setting can be of the type %T", what, to))
	}
}

// slice reads a list in place of the default one.
func (r *reader) slice(n ast.Node, what string, tag reflect.StructTag, to reflect.Value) {
	all := len(r.errs)
	to.Set(reflect.MakeSlice(to.Type(), 0, 0))
	r.list(n, what, func(n ast.Node) {
		one, before := reflect.New(to.Type().Elem()), len(r.errs)
		if r.setting(what, tag, one.Interface())(n); len(r.errs) > before {
			if one.Elem().Kind() == reflect.Struct { // others may speak of it
				to.Set(reflect.Append(to, one.Elem()))
			}
			return
		}
		if tag.Get("each") == "once" {
			for _, other := range to.Seq2() {
				if other.Equal(one.Elem()) {
					r.fail(n, "%s: %v is there twice: remove one", what, other)
					return
				}
			}
		}
		if most := tag.Get("most"); most != "" && to.Len() == number(most) {
			r.fail(n, "%s: more than %s: leave out some", what, most)
			return
		}
		to.Set(reflect.Append(to, one.Elem()))
		if c, can := to.Addr().Interface().(interface{ CheckLast() error }); can {
			if err := c.CheckLast(); err != nil {
				r.fail(n, "%s: %v", what, err)
			}
		}
	})
	r.check(n, what, all, to.Addr().Interface())
}

// forms are what texts can be, by what a tag wants of them. Each returns a text as it is kept.
var forms = map[string]func(string) (string, error){
	"file":             func(text string) (string, error) { return text, nil },
	"any case":         func(text string) (string, error) { return strings.ToLower(text), nil },
	"address":          asWritten(CheckAddress),
	"name":             asWritten(checkName),
	"own name":         asWritten(checkOwnName),
	"PoP":              asWritten(CheckPoPName),
	"host":             message.ParseHostPattern,
	"health path":      asWritten(checkHealthPath),
	"upgrade":          upgrade,
	"method":           asWritten(checkMethod),
	"plan":             asWritten(checkPlan),
	"tag header":       asWritten(rules.CheckTag),
	"tag value":        asWritten(checkTagValue),
	"cost header":      asWritten(checkCostHeader),
	"text of a header": asWritten(checkHeaderValue),
	"check path":       asWritten(func(text string) error { _, err := ParseCheckPath(text); return err }),
	"source header": asWritten(func(text string) error {
		if !address.IsSourceHeader(text) {
			return fmt.Errorf("%q cannot tell the address of a client: want X-Forwarded-For, Forwarded, or a header that holds one address, such as X-Real-IP or CF-Connecting-IP", text)
		}
		return nil
	}),
}

// asWritten keeps a text as it is written, if a check lets it pass.
func asWritten(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

// formed is a text in the form that is wanted of it.
func formed(want, text string) (string, error) {
	want = strings.TrimSuffix(want, " or none")
	if form := forms[want]; form != nil {
		return form(text)
	}
	if want != "" && !slices.Contains(strings.Split(want, " or "), text) {
		return "", fmt.Errorf("%q is not possible: want %s", text, want)
	}
	return text, nil
}

// takesNone reports whether none stands for nothing.
func takesNone(want string) bool {
	return want == "file" || strings.HasSuffix(want, " or none") ||
		strings.HasPrefix(want, "none, or ")
}

// rangeOf is a range of a tag, and whether 0 may be as well.
func rangeOf[T any](want string, parse func(string) (T, error)) (low, high T, zero bool) {
	text, zero := strings.CutPrefix(strings.TrimPrefix(want, "none, or "), "0, or ")
	first, last, _ := strings.Cut(text, " to ")
	low, err := parse(first)
	high, wrong := parse(last)
	if err != nil || wrong != nil {
		panic(fmt.Sprintf("config: a setting has the range %q", want))
	}
	return low, high, zero
}

// number is that of a tag.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("config: a setting wants %q", text))
	}
	return n
}

// shownStruct is a struct of settings with the values as files have them.
func shownStruct(of reflect.Value) map[string]any {
	all := make(map[string]any)
	for name, f := range settingsIn(of) {
		value := of.FieldByIndex(f.Index)
		if !value.IsZero() || !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
			all[name] = shownValue(value, f.Tag.Get("want"))
		}
	}
	return all
}

func shownValue(of reflect.Value, want string) any {
	switch v := of.Interface().(type) {
	case time.Duration:
		return v.String()
	case *url.URL:
		return v.Redacted()
	case json.Marshaler, encoding.TextMarshaler:
		return v
	}
	switch of.Kind() {
	case reflect.String:
		if of.Len() == 0 && takesNone(want) {
			return "none"
		}
		return of.String()
	case reflect.Pointer:
		if of.IsNil() {
			return "none"
		}
		return shownValue(of.Elem(), want)
	case reflect.Slice:
		list := []any{}
		for _, one := range of.Seq2() {
			list = append(list, shownValue(one, want))
		}
		return list
	case reflect.Struct:
		return shownStruct(of)
	}
	return of.Interface()
}
