package config

import (
	"reflect"
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
}
