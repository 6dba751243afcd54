//go:build minimal

package dryrun

import (
	"sluice/edge"
	"sluice/edge/rules"
)

// Modules are none: a minimal program refuses what rules say of them.
func Modules() edge.Modules { return nil }

// NotLogged is what no log has of what modules find out: nothing.
var NotLogged map[string]string

// Challenge is no rule's action here.
const Challenge rules.Action = "challenge"

// Missing is what a minimal program is built without, by the setting that needs it: see
// config.Parser.
var Missing = map[string]string{"geo.country": "MaxMind's databases",
	"geo.asn": "MaxMind's databases", "jwt.keys_file": "JSON Web Tokens", "lists": "named lists"}
