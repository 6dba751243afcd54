package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"sluice/edge/rules"
)

// Shown is a configuration for operators, with the names of the file: what is in force but for the
// rules.
func Shown(c *Config) map[string]any {
	all := shownStruct(reflect.ValueOf(c).Elem())
	delete(all, "rules")
	all["listen"], all["listen_tls"] = shownListeners(c.Listen), shownListeners(c.ListenTLS)
	all["deny"] = shownGroup(c.Deny, c.DenyMarked)
	all["allow"] = shownGroup(c.Allow, c.AllowMarked)
	for i, o := range c.Origins {
		if o.Upgrades == nil {
			all["origins"].([]any)[i].(map[string]any)["upgrades"] = []string{"websocket"}
		}
	}
	if c.Plans.Store != "" {
		all["plans"].(map[string]any)["store"] = redacted(c.Plans.Store)
	}
	for name, settings := range c.Settings {
		all[name] = shownValue(reflect.ValueOf(settings).Elem(), "")
	}
	if c.Limits.Wanted > c.Limits.Connections {
		all["limits"].(map[string]any)["connections_configured"] = c.Limits.Wanted
	}
	if len(c.Composed.Hidden) > 0 {
		all = hidden(plain(all), "", c.Composed.Hidden).(map[string]any)
	}
	return all
}

// Fields is a rule in JSON, as ParseRule reads it: its name, and what is not the default.
func Fields(r rules.Config) map[string]any {
	all, standard := plain(r), plain(rules.Default(r.Name, 0))
	set := differing(all, standard)
	set["name"] = r.Name
	return set
}

// RuleJSON is Fields as text, the same for the same rule.
func RuleJSON(r rules.Config) string { return text(Fields(r)) }

// Hash stands for rules, in whatever order: the same for the same, and a number that a float64
// holds.
func Hash(list []rules.Config) uint64 {
	lines := make([]string, len(list))
	for i, r := range list {
		lines[i] = RuleJSON(r)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return binary.BigEndian.Uint64(sum[:8]) >> 16
}

// plain is a value as JSON shows it.
func plain(v any) (fields map[string]any) {
	d := json.NewDecoder(strings.NewReader(text(v)))
	d.UseNumber()
	_ = d.Decode(&fields) // it is what text wrote
	return fields
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a rule always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// differing are the fields that differ from the standard, and of objects those within.
func differing(all, standard map[string]any) map[string]any {
	set := make(map[string]any)
	for name, v := range all {
		if inner, object := v.(map[string]any); object {
			its, _ := standard[name].(map[string]any)
			if d := differing(inner, its); len(d) > 0 {
				set[name] = d
			}
		} else if !reflect.DeepEqual(v, standard[name]) {
			set[name] = v
		}
	}
	return set
}
