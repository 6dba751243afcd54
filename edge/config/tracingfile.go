package config

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/tracing"
)

func (r *reader) tracing(n ast.Node, t *tracing.Config) {
	const name = "tracing"
	seen := r.mapping(n, name, fields{
		"endpoint": r.text(name+".endpoint", func(n ast.Node, text string) {
			if text == "none" {
				return
			}
			if err := tracing.CheckEndpoint(text); err != nil {
				r.fail(n, "tracing.endpoint: %v", err)
				return
			}
			t.Endpoint = text
		}),
		"sample": r.text(name+".sample", func(n ast.Node, text string) {
			share, err := strconv.ParseFloat(text, 64)
			if err != nil || !(share >= 0 && share <= 1) {
				r.fail(n,
					"tracing.sample: %s is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000", text)
				return
			}
			t.Sample = share
		}),
		"parent":         oneOf(r, name+".parent", &t.Parent, tracing.None, tracing.Trusted),
		"service_name":   r.str(name+".service_name", &t.ServiceName),
		"client_address": r.boolean(name+".client_address", &t.ClientAddress),
	})
	if seen != nil && t.Endpoint == "" && len(seen) > 0 && seen["endpoint"] == nil &&
		len(r.errs) == 0 {
		r.fail(n,
			"tracing has no endpoint: give that of a collector, such as http://127.0.0.1:4318")
	}
}
