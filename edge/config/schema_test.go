package config

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sluice/edge/edgetest/golden"
)

// object is a schema, or a part of one.
type object = map[string]any

func anyOf(all ...any) object { return object{"anyOf": all} }

// reference stands for a value: a text with ${…} in it.
var reference = object{"$ref": "#/definitions/reference"}

var scalars = []string{"string", "number", "boolean"}

// A setting is a field with those within it.
type setting struct {
	path     string
	row      described // the zero one if it has no row
	within   []string  // in their order
	settings map[string]*setting
}

// settings are the described fields as a tree.
func settings(t *testing.T) *setting {
	root := &setting{settings: make(map[string]*setting)}
	for _, d := range describedFields(t) {
		at := root
		for _, name := range strings.Split(d.path, ".") {
			if at.settings[name] == nil {
				at.settings[name] = &setting{path: strings.TrimPrefix(at.path+"."+name, "."), settings: make(map[string]*setting)}
				at.within = append(at.within, name)
			}
			at = at.settings[name]
		}
		at.row = d
	}
	return root
}

// fields is the schema of a mapping.
func (s *setting) fields() object {
	properties, required := make(object), []string{}
	for _, name := range s.within {
		properties[name] = s.settings[name].schema()
		if s.settings[name].row.standard == "required" && !strings.HasPrefix(s.settings[name].row.text, "Required,") {
			required = append(required, name)
		}
	}
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

var (
	link      = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	fromTo    = regexp.MustCompile(`(\d+) to (\d+)`)
	timeOf    = object{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	zeroValue = object{"enum": []any{0, "0"}}
)

// whole is the schema of a whole number in a range as pages show it.
func whole(of string) object {
	o := object{"type": "integer"}
	if m := fromTo.FindStringSubmatch(of); m != nil {
		o["minimum"], o["maximum"] = json.Number(m[1]), json.Number(m[2])
	}
	return o
}

// schema is what the field's type and range come to, by what the code takes.
func (s *setting) schema() object {
	kind, of := kindOf(s.path)
	list := func(items ...any) object { return object{"type": "array", "items": anyOf(append(items, reference)...)} }
	takes := func(value any) bool { return says(s.path, value) == "" }
	var all []any
	switch kind {
	case "boolean":
		all = append(all, object{"type": "boolean"})
		if takes(1) { // in its place a number
			all = append(all, object{"type": "integer"})
		}
	case "integer":
		all = append(all, whole(of))
	case "number":
		o := whole(of)
		o["type"] = "number"
		all = append(all, o)
	case "duration":
		all = append(all, timeOf)
		if strings.HasPrefix(of, "0, or") {
			all = append(all, zeroValue)
		}
	case "size":
		all = append(all, object{"type": "integer", "minimum": 0}, object{"type": "string", "pattern": "^[0-9]+( *[KMG]iB)?$"})
	case "choice":
		all = append(all, object{"enum": strings.Split(of, ", ")})
	case "list":
		all = append(all, object{"type": "array", "items": object{"type": scalars}})
	case "list of integers":
		items := []any{whole(of)}
		if len(s.within) > 0 {
			items = append(items, s.fields())
		}
		all = append(all, list(items...))
	case "list of durations":
		all = append(all, list(timeOf))
	case "list of fields":
		all = append(all, object{"type": "array", "items": s.fields()})
	case "fields":
		all = append(all, s.fields())
		if takes(1) { // in their place a number
			all = append(all, object{"type": "integer"})
		}
	case listeners:
		address := object{"type": scalars}
		all = append(all, address, s.fields(), list(address, s.fields()))
	case "fields by name":
		all = append(all, object{"type": "object", "additionalProperties": anyOf(object{"type": scalars}, object{"type": "object"})})
	default:
		all = append(all, object{"type": scalars})
		if takes([]any{s.row.standard}) || takes([]any{"/x"}) { // or several
			all = append(all, object{"type": "array", "items": object{"type": scalars}})
		}
	}
	if takes("none") && kind != "text" {
		all = append(all, object{"const": "none"})
	}
	if !strings.Contains(kind, "list") && !strings.Contains(kind, "fields") && kind != "text" {
		all = append(all, reference)
	}
	o := anyOf(all...)
	if len(all) == 1 {
		o = maps.Clone(all[0].(object))
	}
	if d := s.row; d.text != "" {
		o["description"] = link.ReplaceAllString(d.text, "$1")
		var standard any
		if d.standard != "required" && d.standard != "none" && yaml.Unmarshal([]byte(d.standard), &standard) == nil {
			o["default"] = standard
		}
	}
	return o
}

// schema is that of a whole configuration.
func schema(t *testing.T) []byte {
	o := settings(t).fields()
	o["$schema"], o["title"] = "http://json-schema.org/draft-07/schema#", "A configuration of Sluice"
	o["definitions"] = object{"reference": object{"type": "string", "pattern": `\$\{`}}
	o["patternProperties"] = object{"^x-": object{"description": "Not read: a place for anchors."}}
	o["properties"].(object)["include"] = object{"type": []string{"string", "array"}, "items": object{"type": "string"},
		"description": "Other files that are parts of this configuration: paths that begin in this file's folder, or patterns such as conf.d/*.yaml."}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compiled is the schema in use.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", text); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate holds a configuration against the schema, as an editor does.
func validate(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var content any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	if content == nil {
		return nil
	}
	plain, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// The schema is made of the rows of the documentation and of what the code takes.
func TestSchema(t *testing.T) {
	want := schema(t)
	if golden.Rewrite() {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, Schema) {
		t.Error("schema.json is out of date: go test ./edge/config -run TestSchema -rewrite")
	}
}

// Every example, every file of deploy and every configuration of a document is good by the schema.
func TestExamplesFitTheSchema(t *testing.T) {
	s, n := compiled(t), 0
	try := func(name, text string) {
		n++
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := filepath.WalkDir("../../examples", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		try(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sluice.yaml", "debian/sluice.yaml", "compose/sluice.yaml"} {
		text, err := os.ReadFile("../../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		try(name, string(text))
	}
	for name, text := range documents(t) {
		for _, block := range yamlBlocks(text) {
			try(name, block)
		}
	}
	if n < 50 {
		t.Errorf("%d configurations are found", n)
	}
}

// The schema takes whatever the edge takes, of every field, and references in place of values.
func TestSchemaTakesWhatTheEdgeTakes(t *testing.T) {
	s, taken := compiled(t), 0
	values := []any{0, 1, 10, 100, 1e6, "0", "1", "5s", "1h30m", "250ms", "10KiB", "1 MiB", "x", "/x", ":80", "X-Y", "none", "*", "source", "example.com", "192.0.2.0/24", true, false, 1.5,
		[]any{}, []any{"a"}, []any{"GET"}, []any{"/x"}, []any{"source", "host"}, []any{1}, []any{32}, []any{200}, []any{"10s"}, []any{"192.0.2.1"}, map[string]any{}, map[string]any{"a": "b"}, map[string]any{"a": 1}, map[string]any{"limit": 1}}
	for _, d := range describedFields(t) {
		kind, of := kindOf(d.path)
		mine := slices.Clone(values)
		if kind == "choice" {
			for word := range strings.SplitSeq(of, ", ") {
				mine = append(mine, word)
			}
		}
		for _, bound := range fromTo.FindStringSubmatch(of) {
			if v, err := strconv.ParseInt(bound, 10, 64); err == nil {
				mine = append(mine, v)
			}
		}
		for _, v := range mine {
			if says(d.path, v) != "" {
				continue
			}
			taken++
			if err := validate(t, s, nest(d.path, v)); err != nil {
				t.Errorf("%s: the edge takes %v, and the schema does not: %v", d.path, v, err)
			}
		}
		if !strings.Contains(kind, "list") && !strings.Contains(kind, "fields") {
			if err := validate(t, s, nest(d.path, "${X:-y}")); err != nil && !strings.Contains(err.Error(), "missing property") { // which nest leaves out
				t.Errorf("%s: a reference: %v", d.path, err)
			}
		}
	}
	if taken < 400 {
		t.Errorf("%d values are taken", taken)
	}
}

// What an editor should underline is refused by the schema, as it is by the edge.
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{
		"listn: \":80\"", "limits: {conections: 1}", "limits: {connections: many}", "limits: {connections: 0}", "limits: {header_timeout: 5}", "limits: {memory: 5MB}",
		"rules: [{limit: 1}]", "rules: [{name: a, limit: 1, windw: 1m}]", "rules: [{name: a, limit: 1, mode: on}]", "rules: [{name: a, limit: 1, windows: [{limit: 1}]}]", "rules: {name: a}",
		"origins: [{hosts: [a]}]", "rules: [{name: a, limit: 1, key: {header: a}}]", "rules: [{name: a, limit: 1, escalate: [1]}]", "admin_insecure: yes please", "include: {a: b}",
	} {
		if validate(t, s, text) == nil {
			t.Errorf("%s: the schema takes it", text)
		}
		if _, err := reading.Parse("f", []byte(text)); err == nil {
			t.Errorf("%s: the edge takes it", text)
		}
	}
}
