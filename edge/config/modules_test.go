package config_test

import (
	"os"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/modules/accesslog"
	"sluice/edge/modules/acme"
	"sluice/edge/modules/challenge"
	"sluice/edge/modules/cors"
	"sluice/edge/modules/etcd"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/ja4"
	"sluice/edge/modules/limitapi"
	"sluice/edge/modules/lists"
	"sluice/edge/modules/maintenance"
	"sluice/edge/modules/pages"
	"sluice/edge/modules/ratelimit"
	"sluice/edge/modules/redirect"
	"sluice/edge/modules/tokens"
	"sluice/edge/modules/tracing"
	"sluice/edge/modules/verified"
	"sluice/edge/modules/wall"
)

// TestMain names the modules by which the pages, the schema and the errors are made: those of
// cmd/sluice/modules.go.
func TestMain(m *testing.M) {
	config.Use(edge.Modules{redirect.Module(), maintenance.Module(), tokens.Module(), ja4.Module(),
		challenge.Module(nil), challenge.WhenModule(), verified.Module(nil), cors.Module(),
		lists.Module(true), acme.Module(), etcd.Module(), geo.Module(nil), pages.Module(), accesslog.Module(), tracing.Module(""),
		ratelimit.Module(), limitapi.Module(), wall.Module()}.Config())
	os.Exit(m.Run())
}
