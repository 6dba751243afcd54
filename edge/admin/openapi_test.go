package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/edge/events"
)

// The document has exactly the routes that there are, with the token where they want it, and closes every object that is not made to be
// added to: a field that an answer has and the document has not is then found by TestOpenAPI in cmd/sluice.
func TestDocument(t *testing.T) {
	h, s := newAPI(t, nil)
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Security    *[]any
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	text := do(h, "GET", "/v1/openapi.json", "").Body.Bytes()
	withoutParameters := make(map[string]any)
	if err := json.Unmarshal(text, &withoutParameters); err != nil {
		t.Fatal(err)
	}
	for _, item := range withoutParameters["paths"].(map[string]any) {
		delete(item.(map[string]any), "parameters") // which are no method
	}
	operations, _ := json.Marshal(withoutParameters)
	if err := json.Unmarshal(operations, &doc); err != nil {
		t.Fatal(err)
	}
	a := api{Options{Edge: s, Metrics: prometheus.NewRegistry()}}
	routes := func(patterns []string) (list []string) {
		for _, p := range patterns {
			list = append(list, strings.NewReplacer("...}", "}", "{$}", "").Replace(p))
		}
		slices.Sort(list)
		return list
	}
	all := slices.Collect(maps.Keys(a.private()))
	for _, r := range s.Routes() {
		all = append(all, r.Pattern)
	}
	private := routes(slices.Clone(all))
	all = routes(append(all, slices.Collect(maps.Keys(a.public()))...))
	var described []string
	ids := make(map[string]bool)
	for path, item := range doc.Paths {
		for method, operation := range item {
			route := strings.ToUpper(method) + " " + path
			described = append(described, route)
			if operation.OperationID == "" || ids[operation.OperationID] {
				t.Errorf("%s has no operationId of its own: %q", route, operation.OperationID)
			}
			ids[operation.OperationID] = true
			if token := slices.Contains(private, route); token != (operation.Security == nil && route != "GET /metrics") || token && operation.Responses["401"] == nil {
				t.Errorf("%s: it wants the token: %v; the document says otherwise, or has no 401", route, token)
			}
		}
	}
	slices.Sort(described)
	if !slices.Equal(described, all) {
		t.Errorf("the document and the routes differ:\n%q\n%q", described, all)
	}
	open := []string{"RuleFields", "Outcome", "NodeFields", "MitigationFields", "HeavyFields", "HeavyKeyFields", "EventFields"}
	var close func(v any, where string)
	close = func(v any, where string) {
		switch v := v.(type) {
		case []any:
			for i := range v {
				close(v[i], fmt.Sprint(where, "/", i))
			}
		case map[string]any:
			if fields, object := v["properties"].(map[string]any); object && len(fields) > 0 && v["additionalProperties"] != false && v["unevaluatedProperties"] != false &&
				!slices.ContainsFunc(open, func(name string) bool { return where == "/components/schemas/"+name }) {
				t.Errorf("%s is open: a field more would not be found", where)
			}
			for name := range v {
				close(v[name], where+"/"+name)
			}
		}
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	close(whole, "")
	kinds := doc.Components.Schemas["EventFields"].(map[string]any)["properties"].(map[string]any)["kind"].(map[string]any)["enum"]
	if got := strings.Trim(fmt.Sprint(kinds), "[]"); got != strings.Trim(fmt.Sprint(events.Kinds()), "[]") {
		t.Errorf("the document's kinds of events are %s, want %v", got, events.Kinds())
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(string(text), `"#/components/schemas/`+name+`"`) {
			t.Errorf("the schema %s is not used", name)
		}
	}
}

// Every field of a rule is in the document, by its type where the document says nothing of it, and a patch may name it.
func TestDocumentHasFieldsOfRules(t *testing.T) {
	given := `{"components": {"schemas": {"RuleFieldNames": {}, "RuleFields": {"properties": {"name": {"maxLength": 64}, "estimate": {}}}}}}`
	var doc map[string]any
	if err := json.Unmarshal(withRuleFields([]byte(given)), &doc); err != nil {
		t.Fatal(err)
	}
	fields := at(doc, "components", "schemas", "RuleFields", "properties")
	for name, want := range map[string]string{
		"name": `{"maxLength":64}`, "key": `{"items":{"type":"string"},"type":"array"}`, "queue": `{"$ref":"#/components/schemas/Duration"}`,
		"concurrency": `{"type":"integer"}`, "mode": `{"type":"string"}`, "match": `{}`, "estimate": `{}`,
	} {
		if got, _ := json.Marshal(fields[name]); string(got) != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	names := fmt.Sprint(at(doc, "components", "schemas", "RuleFieldNames")["enum"])
	if len(strings.Fields(names)) != len(fields) || !strings.Contains(names, "concurrency") {
		t.Errorf("a patch may name %s", names)
	}
}
