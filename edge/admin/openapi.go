package admin

import (
	_ "embed"
	"net/http"

	goyaml "github.com/goccy/go-yaml"
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
	return func(w http.ResponseWriter, _ *http.Request) {
		begin(w, "application/json")
		_, _ = w.Write(text) // the operator is gone: nobody to tell
	}
}
