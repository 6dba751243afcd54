//go:build !minimal

package main

import (
	"sluice/edge"
	"sluice/edge/modules/accesslog"
	"sluice/edge/modules/acme"
	"sluice/edge/modules/challenge"
	"sluice/edge/modules/cors"
	"sluice/edge/modules/etcd"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/importer"
	"sluice/edge/modules/ja4"
	"sluice/edge/modules/limitapi"
	"sluice/edge/modules/lists"
	"sluice/edge/modules/maintenance"
	"sluice/edge/modules/pages"
	"sluice/edge/modules/ratelimit"
	"sluice/edge/modules/redirect"
	"sluice/edge/modules/suggest"
	"sluice/edge/modules/tokens"
	"sluice/edge/modules/tracing"
	"sluice/edge/modules/try"
	"sluice/edge/modules/verified"
	"sluice/edge/modules/wall"
)

// What stands here, and in files with the same condition under internal and
// edge/plans/store, links what a program that is built with -tags minimal does without. Such a
// program refuses the settings that need it: see settings.missing.

// modules are the features that this program's edge has, in the order in which each point asks
// them. An edge that is offline serves nothing. passes are the keys of passes that all edges of the
// PoP believe; nil: this process's alone.
func modules(offline bool, passes [][16]byte) edge.Modules {
	return edge.Modules{redirect.Module(), maintenance.Module(), cors.Module(),
		pages.Module(), lists.Module(offline), tokens.Module(), geo.Module(geo.Checked),
		ja4.Module(), verified.Module(nil), challenge.Module(passes), challenge.WhenModule(),
		etcd.Module(), acme.Module(), accesslog.Module(), tracing.Module(thisBuild().Version),
		ratelimit.Module(), limitapi.Module(), wall.Module(),
		suggest.Module(), importer.Module(), try.Module()}
}
