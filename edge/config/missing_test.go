package config

import (
	"strings"
	"testing"
)

// A setting whose part the program was built without is an error that names both; none, and no setting, is not.
func TestMissing(t *testing.T) {
	texts := map[string]string{
		"listen.redirect": "listen: {address: ':80', redirect: 443}",
		"plans.store":     "plans: {key: 'header:X-Key', store: 'sqlite:/plans'}",
	}
	all := make(map[string]string)
	for _, o := range Default().optional() {
		text := "verdict_header: true\n" + texts[o.setting]
		if _, err := Parse("f.yaml", []byte(text)); err != nil || texts[o.setting] == "" {
			t.Errorf("%s: %v", text, err)
		}
		all[o.setting] = "it"
		_, err := Parser{Missing: map[string]string{o.setting: "a part"}}.Parse("f.yaml", []byte(text))
		want := "f.yaml:2:1: " + o.setting + ": this program was built without a part: build it with make build, or remove the setting"
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	// And one of a module
	p := Parser{Missing: map[string]string{"extra.names": "a part", "extra.file": "another"}}
	_, err := p.Parse("f.yaml", []byte("verdict_header: true\nextra: {file: f, names: [a]}"))
	const refused = ": this program was built without "
	if err == nil || strings.Count(err.Error(), "f.yaml:2:1: extra.") != 2 ||
		!strings.Contains(err.Error(), "extra.names"+refused+"a part: build") {
		t.Errorf("a setting of a module: %v", err)
	}
	if _, err := p.Parse("f.yaml", []byte("extra: {file: none, names: [], other: 1}")); err != nil {
		t.Error(err)
	}
	none := "plans: {store: none}"
	if _, err := (Parser{Missing: all}).Parse("f.yaml", []byte(none)); err != nil {
		t.Error(err)
	}
}

// The section of a module that the program was built without is an error that names both.
func TestMissingModule(t *testing.T) {
	p := Parser{Missing: map[string]string{"tea": "tea"}}
	_, err := p.Parse("f.yaml", []byte("verdict_header: true\ntea: {pot: /pot}"))
	const want = "f.yaml:2:1: tea: this program was built without tea: build it with make build, or remove the setting"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := p.Parse("f.yaml", []byte("verdict_header: true")); err != nil {
		t.Error(err)
	}
}
