package admin

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	goyaml "github.com/goccy/go-yaml"

	"sluice/edge/route"
	"sluice/edge/rules"
)

// The API as a document (OpenAPI 3.1), written in YAML because people write it, and served as JSON.
//
//go:embed openapi.yaml
var document []byte

// openAPI serves the document.
func openAPI() http.HandlerFunc {
	text, err := goyaml.YAMLToJSON(document)
	if err != nil {
		panic(err) // it is embedded
	}
	text = withRuleFields(text)
	return func(w http.ResponseWriter, _ *http.Request) {
		route.Begin(w, "application/json")
		_, _ = w.Write(text) // the operator is gone: nobody to tell
	}
}

// withRuleFields adds to a document what it does not say of a rule's fields, by the types that they
// have in rules.Config: a field needs words in the document only if its type says too little.
func withRuleFields(text []byte) []byte {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(err) // it is embedded
	}
	fields := at(doc, "components", "schemas", "RuleFields", "properties")
	for f := range reflect.TypeFor[rules.Config]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" &&
			fields[name] == nil {
			fields[name] = schemaOf(f.Type)
		}
	}
	names := make([]any, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	at(doc, "components", "schemas", "RuleFieldNames")["enum"] = names
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // it was JSON
	}
	return text
}

// at is the object of a document at a path.
func at(doc map[string]any, path ...string) map[string]any {
	for _, name := range path {
		doc = doc[name].(map[string]any)
	}
	return doc
}

// schemaOf is the schema of a field of a rule by its type alone; of an object it says nothing.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[rules.Duration]():
		return map[string]any{"$ref": "#/components/schemas/Duration"}
	case t.Kind() == reflect.String:
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Float64:
		return map[string]any{"type": "number"}
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{}
}
