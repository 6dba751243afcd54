package match

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sluice/edge/rules/key"
)

func TestImpossibleConditions(t *testing.T) {
	for _, test := range []struct {
		kind          key.Kind
		name, pattern string
	}{
		{key.Header, "x key", "*"}, {key.Header, "", "*"}, {key.Header, "host", "a"}, {key.Header, "connection", "*"}, {key.Header, "transfer-encoding", "*"},
		{key.Header, "x_forwarded_for", "*"}, {key.Header, "x-forwarded-for", "*"}, {key.Header, "x", "a*b"}, {key.Header, "x", " a"}, {key.Header, "x", "a "}, {key.Header, "x", "a\x00"},
		{key.Header, "authorization", "Basic ?"},
		{key.Cookie, "a b", "*"}, {key.Cookie, "a", "a b"}, {key.Cookie, "a", "%61"}, {key.Cookie, "a", `"a"`}, {key.Cookie, "a", "é"},
		{key.Query, "a%", "*"}, {key.Query, "a", "a+b"}, {key.Query, "a", "**"},
	} {
		if checkValue(test.kind, test.name, Value{Text: test.pattern}) == nil {
			t.Errorf("%d %q: %q is possible", test.kind, test.name, Value{Text: test.pattern})
		}
	}
}

// An expression of nothing is in every path.
func TestImpossiblePath(t *testing.T) {
	if err := new(Config).SetPath("~"); err == nil {
		t.Error("~ is a path")
	}
	if err := new(Config).SetPath("~a"); err != nil {
		t.Error(err)
	}
}

// A value that no request can have, or that costs too much, is an error; a text that is read
// otherwise is written as one of several.
func TestImpossibleValues(t *testing.T) {
	long := strings.Repeat("a", maxExpression+1)
	for _, v := range []Value{{OneOf: []string{}}, {Contains: []string{""}}, {Contains: []string{"a", "\x00"}}, {Text: "~"}, {Text: "~("}, {Text: "~" + long},
		{OneOf: []string{" a"}}, {Suffix: []string{"a "}}, {Prefix: make([]string, maxValues+1)}} {
		if CheckHeader("x", v) == nil {
			t.Errorf("%v is possible", v)
		}
	}
	if CheckHeader("authorization", Value{Contains: []string{"a"}}) == nil || CheckQuery("q", Value{Contains: []string{"a b"}}) == nil || CheckCookie("c", Value{Suffix: []string{"%61"}}) == nil {
		t.Error("what clients write in several ways is possible")
	}
	for _, v := range []Value{{OneOf: []string{"~a", "b*", ""}}, {Contains: []string{" a ", "*"}}, {Text: "~^a *$"}} {
		if err := CheckHeader("x", v); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// A value is shown as a file may have it.
func TestValueAsJSON(t *testing.T) {
	for want, v := range map[string]Value{`"a*"`: {Text: "a*"}, `"~^a"`: {Text: "~^a"}, `""`: {}, `{"one_of":["~a"]}`: {OneOf: []string{"~a"}}, `{"contains":"a"}`: {Contains: []string{"a"}},
		`{"suffix":["a","b"]}`: {Suffix: []string{"a", "b"}}, `{"prefix":"a"}`: {Prefix: []string{"a"}}} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		var again Value
		if err := json.Unmarshal([]byte(want), &again); err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%s is read as %+v, %v", want, again, err)
		}
	}
	if err := new(Value).UnmarshalJSON([]byte(`{"regexp":"a"}`)); err == nil {
		t.Error("an unknown way to write a value is read")
	}
}

// A rule's counters are found by what JSON has of it, so facts stand where versions had them to which they were fields: behind sources.
func TestFactsInJSON(t *testing.T) {
	m := Config{Hosts: []string{"a"}, Headers: map[string]Value{"x": {Text: "y"}}, Paths: []string{"/b"}, Plans: []string{"p"},
		Facts: map[string]Values{"asns": {Texts: []string{"1"}, Numbers: true}, "countries": {Texts: []string{"DE"}}, "lists": {Texts: []string{"l"}}}}
	n := m
	n.Facts, n.Not = nil, &Config{Facts: m.Facts}
	for _, one := range []struct {
		of   Config
		want string
	}{
		{m, `{"path":["/b"],"hosts":["a"],"lists":["l"],"countries":["DE"],"asns":[1],"headers":{"x":"y"},"plans":["p"]}`},
		{n, `{"path":["/b"],"hosts":["a"],"headers":{"x":"y"},"not":{"lists":["l"],"countries":["DE"],"asns":[1]},"plans":["p"]}`},
		{Config{}, "{}"}, {Config{Path: "/"}, `{"path":"/"}`}, {Config{Plans: []string{"p"}}, `{"plans":["p"]}`},
	} {
		text, err := json.Marshal(one.of)
		var back Config
		if err != nil || string(text) != one.want || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back.Facts, one.of.Facts) {
			t.Errorf("%s %v, want %s; read: %+v", text, err, one.want, back)
		}
	}
}
