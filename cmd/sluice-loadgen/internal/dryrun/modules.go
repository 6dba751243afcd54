//go:build !minimal

package dryrun

import (
	"sluice/edge"
	"sluice/edge/modules/challenge"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/ja4"
	"sluice/edge/modules/lists"
	"sluice/edge/modules/tokens"
	"sluice/edge/modules/verified"
)

// Modules are the features of an edge that rules may speak of, as far as files have them: nothing
// of them runs here.
func Modules() edge.Modules {
	return edge.Modules{lists.Module(false), tokens.Module(), geo.Module(geo.Checked), ja4.Module(),
		verified.Module(nil), challenge.Module(nil), challenge.WhenModule()}
}

// Missing is empty: this program has all parts.
var Missing map[string]string

// NotLogged is what no log has of what they find out, by the fact or the field of a rule that needs
// it.
var NotLogged = map[string]string{
	"ja4": "TLS", "pass": "passes", "verified": "what DNS says of robots",
	"when": "how fast an origin would have answered",
}

// Challenge is what rules say to have clients asked for a pass, in place of refusing them.
const Challenge = challenge.Action
