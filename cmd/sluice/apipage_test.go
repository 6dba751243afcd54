package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"sluice/edge/edgetest/golden"
)

// apiDocument is what the pages on the API show of edge/admin/openapi.yaml.
type apiDocument struct {
	Tags  []struct{ Name, Description string }
	Paths yaml.MapSlice
}

// An operation is one method of a path, or what all methods of it share.
type operation struct {
	Tags        []string
	Summary     string
	Parameters  []parameter
	RequestBody struct {
		Content map[string]struct {
			Example any
		}
	} `yaml:"requestBody"`
	Responses yaml.MapSlice
}

type parameter struct {
	Ref      string `yaml:"$ref"`
	Name, In string
}

const apiIntro = `# The operators' API

Everything that an operator can see and do is served as JSON at the address that ` + "`admin`" + ` names.
The dashboard and the commands of ` + "`sluice`" + ` use the same routes. Each edge describes them in
OpenAPI 3.1, with the fields of every body and answer: ` + "`GET /v1/openapi.json`" + `.
[The guide](guide.md) explains what an answer means and who may ask.

` + "```sh" + `
curl -s localhost:8081/v1/status
curl -s -X PUT localhost:8081/v1/mitigations/login/192.0.2.7 -d '{"for":"10m"}'
` + "```" + `

The page is made from ` + "`edge/admin/openapi.yaml`" + `: ` + "`go test ./cmd/sluice -run TestAPIPage -rewrite`" + `.
`

// The page on the API has each route of the document that edges serve.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../edge/admin/openapi.yaml")
	must(t, err)
	var d apiDocument
	must(t, yaml.UnmarshalWithOptions(text, &d, yaml.UseOrderedMap()))
	page, routes := apiIntro, 0
	for _, tag := range d.Tags {
		page += fmt.Sprintf("\n## %s%s\n%s.\n\n| route | parameters | example of a body | what it does | answers |\n|---|---|---|---|---|\n", strings.ToUpper(tag.Name[:1]), tag.Name[1:], tag.Description)
		for _, path := range d.Paths {
			for _, method := range path.Value.(yaml.MapSlice) {
				var o operation
				again, err := yaml.Marshal(method.Value)
				must(t, err)
				if yaml.Unmarshal(again, &o) != nil || !slices.Contains(o.Tags, tag.Name) {
					continue
				}
				routes++
				page += fmt.Sprintf("| `%s %s` | %s | %s | %s | %s |\n", strings.ToUpper(method.Key.(string)), path.Key, o.parameters(), o.example(t), o.Summary, o.answers())
			}
		}
	}
	if routes < 35 {
		t.Errorf("%d routes are on the page", routes)
	}
	madePage(t, "api/README", page, "TestAPIPage")
}

// parameters are those of a query and the headers: those of a path are in the path.
func (o operation) parameters() string {
	var list []string
	for _, p := range o.Parameters {
		if p.Ref != "" {
			p.Name = map[string]string{"Operator": "X-Operator", "IfMatch": "If-Match"}[p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]]
		}
		switch {
		case p.In == "query":
			list = append(list, "`?"+p.Name+"=`")
		case p.Name != "" && p.In != "path":
			list = append(list, "`"+p.Name+"`")
		}
	}
	return strings.Join(list, ", ")
}

func (o operation) example(t *testing.T) string {
	body := o.RequestBody.Content["application/json"].Example
	if body == nil {
		return ""
	}
	text, err := yaml.MarshalWithOptions(body, yaml.JSON())
	must(t, err)
	return "`" + strings.TrimSpace(string(text)) + "`"
}

func (o operation) answers() string {
	var list []string
	for _, r := range o.Responses {
		list = append(list, fmt.Sprintf("`%v`", r.Key))
	}
	return strings.Join(list, ", ")
}

// madePage holds a page of docs against what it is made of, or writes it.
func madePage(t *testing.T, name, page, test string) {
	t.Helper()
	file := "../../docs/" + name + ".md"
	if golden.Rewrite() {
		must(t, os.WriteFile(file, []byte(page), 0o644))
	}
	if was, err := os.ReadFile(file); err != nil || string(was) != page {
		t.Errorf("%s is out of date (%v): go test ./cmd/sluice -run %s -rewrite", file, err, test)
	}
}
