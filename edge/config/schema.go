package config

import _ "embed"

// Schema is the JSON Schema (draft 7) of a configuration, by which editors complete and check one.
// It is made of what the documentation is made of: go test ./edge/config -run TestSchema -rewrite
//
// It takes all that Parse takes. Parse finds more: what fields say about each other, and how texts
// are written.
//
//go:embed schema.json
var Schema []byte
