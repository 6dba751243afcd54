//go:build !minimal

package dryrun

import (
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/geo"
)

// Missing is empty: this program has all parts.
var Missing map[string]string

// locate reads the databases of a configuration.
func locate(c *config.Config) (address.Geo, error) {
	found, _, err := new(geo.Store).Prepare(geo.Config(c.Geo))
	return found, err
}
