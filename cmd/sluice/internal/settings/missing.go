//go:build minimal

package settings

// missing is what a minimal program is built without, by the setting that needs it.
var missing = map[string]string{
	"access_log":                "the access log",
	"acme.hosts":                "ACME",
	"cors.origins":              "CORS",
	"etcd.endpoints":            "etcd",
	"geo.asn":                   "MaxMind's databases",
	"geo.country":               "MaxMind's databases",
	"jwt.keys_file":             "JSON Web Tokens",
	"lists":                     "named lists",
	"limit_api.listen":          "the limit API",
	"listen.redirect":           "redirects to https",
	"pages":                     "pages",
	"plans.store":               "drivers of databases",
	"rate_limit_service.listen": "Envoy's rate limit service",
	"tracing.endpoint":          "OpenTelemetry",
	"wall.socket":               "the wall in the kernel",
}
