package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

type settingsOfTest struct {
	On     bool          `json:"on"`
	Bits   int           `json:"bits" want:"1 to 30"`
	For    time.Duration `json:"for" want:"0, or 1s to 24h"`
	Mode   string        `json:"mode" want:"soft or hard"`
	File   string        `json:"file" want:"file"`
	Names  []string      `json:"names"`
	Within struct {
		Text string `json:"text"`
	} `json:"within"`
}

type fieldOfTest struct {
	Wait rules.Duration `json:"wait" want:"1s to 1m"`
}

func moduleOfTest() []Module {
	return []Module{{Name: "extra",
		Settings: func() any { return &settingsOfTest{Bits: 13, Mode: "soft"} },
		Rule:     func() any { return new(fieldOfTest) },
		Actions:  []rules.OwnAction{{Name: "ask"}},
		Facts:    []*key.Fact{{Name: "shape", Match: "shapes"}}}}
}

// A module's settings are read, with what is wrong and where, and shown as they are written.
func TestModuleSettings(t *testing.T) {
	p := Parser{Modules: moduleOfTest()}
	const file = `extra: {on: true, bits: 20, for: 1h, mode: hard, file: /f, names: [a, b], within: {text: c}}
rules: [{name: r, limit: 1, key: [shape, host], action: ask, extra: {wait: 5s}, match: {shapes: [round], not: {shapes: [flat]}}}]
`
	c, err := p.Parse("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	want := &settingsOfTest{On: true, Bits: 20, For: time.Hour, Mode: "hard", File: "/f",
		Names: []string{"a", "b"}}
	want.Within.Text = "c"
	if got := c.Settings["extra"]; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	shown := text(Shown(c)["extra"])
	const all = `{"bits":20,"file":"/f","for":"1h0m0s","mode":"hard","names":["a","b"],"on":true,"within":{"text":"c"}}`
	if shown != all {
		t.Errorf("it is shown as %s", shown)
	}
	// A rule goes into JSON and back
	said := RuleJSON(c.Rules[0])
	const rule = `{"action":"ask","extra":{"wait":"5s"},"key":["shape","host"],"limit":1,"match":{"not":{"shapes":["flat"]},"shapes":["round"]},"name":"r"}`
	if said != rule {
		t.Errorf("the rule is %s", said)
	}
	if back, err := c.ParseRule("r", []byte(said)); err != nil || RuleJSON(back) != said {
		t.Errorf("back: %s, %v", RuleJSON(back), err)
	}
	for text, want := range map[string]string{
		"extra: {bits: 31}": "f:1:15: extra.bits: 31 is out of range: want 1 to 30",
		"extra: {bit: 1}":   "f:1:9: extra: unknown field bit (did you mean bits?): want bits, file, for, mode, names, on or within",
		"extra: {for: 1ms}": "f:1:14: extra.for: 1ms is out of range: want 0, or 1s to 24h",
		"extra: {mode: x}":  `f:1:15: extra.mode: "x" is not possible: want soft or hard`,
		"rules: [{name: r, limit: 1, extra: {wait: 1h}}]": "f:1:43: extra.wait: 1h is out of range: want 1s to 1m",
	} {
		if _, err := p.Parse("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("f", []byte(file)); err == nil {
		t.Error("without the module its settings are read")
	}
	c, err = Parser{Others: true}.Parse("f", []byte("verdict_header: true\nextra: {on: true}"))
	if err != nil || !c.VerdictHeader {
		t.Errorf("where others may be: %v", err)
	}
	if _, err := (Parser{Others: true}).Parse("f", []byte("verdict_haeder: true")); err == nil {
		t.Error("where others may be, a slip is one")
	}
}

// A list takes the place of the default one, each of its texts as its type takes it, and what is
// wrong in it is named where it is.
func TestListsOfModules(t *testing.T) {
	p := Parser{Modules: []Module{{Name: "m", Settings: func() any {
		return &listsOfTest{Names: []upper{"X"}, Sizes: []int{7}}
	}}}}
	for text, want := range map[string]string{
		"m: {names: [a, b], sizes: [1], parts: [{bits: 1}, {bits: 2}]}": `{"names":["A","B"],"parts":[{"bits":1},{"bits":2}],"sizes":[1]}`,
		"m: {}":                           `{"names":["X"],"parts":[],"sizes":[7]}`,
		"m: {names: []}":                  `f:1:12: m.names: none is there`,
		"m: {names: [a, A]}":              "f:1:16: m.names: A is there twice: remove one",
		"m: {names: [a, B, '']}":          "f:1:19: m.names: it is empty",
		"m: {sizes: [1, 9]}":              "f:1:16: m.sizes: 9 is out of range: want 1 to 8",
		"m: {sizes: 1}":                   "f:1:12: m.sizes: want a list, not a single value",
		"m: {parts: [{bits: 1}, {b: 1}]}": "f:1:25: m.parts: unknown field b: want bits",
		"m: {parts: [{}]}":                "f:1:13: m.parts: no bits",
	} {
		c, err := p.Parse("f", []byte(text))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = shownOf(c)
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// shownOf is a module's section as operators see it.
func shownOf(c *Config) string { return text(Shown(c)["m"]) }

type listsOfTest struct {
	Names uppers   `json:"names" each:"once"`
	Sizes []int    `json:"sizes" want:"1 to 8"`
	Parts []partOf `json:"parts"`
}

type uppers []upper

func (u uppers) Check() error {
	if len(u) == 0 {
		return errors.New("none is there")
	}
	return nil
}

type upper string

func (u *upper) UnmarshalText(text []byte) error {
	if *u = upper(strings.ToUpper(string(text))); *u == "" {
		return errors.New("it is empty")
	}
	return nil
}

type partOf struct {
	Bits int `json:"bits" want:"1 to 8"`
}

func (p *partOf) Check() error {
	if p.Bits == 0 {
		return errors.New("no bits")
	}
	return nil
}
