// Package promises is the numbers that the documents promise, which loadgen/promise holds runs
// against.
package promises

import _ "embed"

// YAML is promises.yaml.
//
//go:embed promises.yaml
var YAML []byte
