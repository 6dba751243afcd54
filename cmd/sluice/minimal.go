//go:build minimal

package main

import (
	"errors"

	"sluice/edge"
	"sluice/edge/config"
)

// errMissing is for what no start of a minimal program gets to: it refuses the settings that want
// it (settings.missing).
var errMissing = errors.New("this program was built without what the configuration needs: build it with make build")

func modules(bool, [][16]byte) edge.Modules { return nil }

func tryEtcd(*config.Config) error { return errMissing }
