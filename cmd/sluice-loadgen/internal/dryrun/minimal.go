//go:build minimal

package dryrun

import (
	"errors"

	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/rules"
)

// Modules are none: a minimal program refuses what rules say of them.
func Modules() []config.Module { return nil }

// NotLogged is what no log has of what modules find out: nothing.
var NotLogged map[string]string

// Challenge is no rule's action here.
const Challenge rules.Action = "challenge"

// Missing is what a minimal program is built without, by the setting that needs it: see
// config.Parser.
var Missing = map[string]string{"geo.country": "MaxMind's databases",
	"geo.asn": "MaxMind's databases"}

func locate(c *config.Config) (address.Geo, error) {
	if c.Geo != (config.Geo{}) {
		return address.Geo{}, errors.New("geo: this program was built without MaxMind's databases")
	}
	return address.Geo{}, nil
}
