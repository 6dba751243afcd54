package config

import (
	"reflect"
	"testing"

	"sluice/edge/rules"
	"sluice/edge/rules/rulestest"
)

// Every field of a rule comes back as it was written, and changes what edges compare: one that reading or writing forgets would be lost
// by a change of the rule.
func TestEveryFieldOfARule(t *testing.T) {
	for _, field := range rulestest.Fields(reflect.TypeFor[rules.Config](), "") {
		change := rulestest.Written[field]
		if change == nil {
			t.Errorf("%s: say in rulestest how to change it, and let configfile.go read it, and its JSON have the name that it has there", field)
			continue
		}
		want := rules.Default("r", 100)
		if change(&want); reflect.DeepEqual(want, rules.Default("r", 100)) {
			t.Errorf("%s: the change is none", field)
		}
		text := RuleJSON(want)
		if got, err := ParseRule(want.Name, []byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v\n%s", field, got, err, want, text)
		}
		if n := len(Fields(want)); n > 4 {
			t.Errorf("%s: %d fields are written, with the defaults: %s", field, n, text)
		}
		if standard := []rules.Config{rules.Default("r", 100)}; Hash([]rules.Config{want}) == Hash(standard) || Hash(standard)>>48 != 0 {
			t.Errorf("%s: the hash does not show it", field)
		}
	}
}
