// Package importer makes rules of the limits of other programs: nginx's limit_req and limit_conn,
// HAProxy's stick tables, and the descriptors of Envoy's ratelimit. A format is a package, and a
// line in kinds.
//
// It reads what says who may send how much, and passes over all else. What has no equal, or is not
// quite equal, becomes a note with its line. A rule whose condition is not understood is a shadow,
// so that nothing is refused that was not.
package importer

import (
	"fmt"

	"sluice/edge/modules/importer/envoy"
	"sluice/edge/modules/importer/haproxy"
	"sluice/edge/modules/importer/limit"
	"sluice/edge/modules/importer/nginx"
)

// kinds are the programs whose files can be read.
var kinds = map[string]func(r *limit.Result, text string) error{
	"nginx":           nginx.Read,
	"haproxy":         haproxy.Read,
	"envoy-ratelimit": envoy.Read,
}

// A File is one that another includes, and Open returns those.
type (
	File = limit.File
	Open = limit.Open
)

// Import reads a file of a program, and those that it includes; open may be nil: then none is read.
func Import(kind, file string, text []byte, open Open) (*limit.Result, error) {
	read, known := kinds[kind]
	if !known {
		return nil, fmt.Errorf("%q cannot be imported: want nginx, haproxy or envoy-ratelimit",
			kind)
	}
	r := limit.New(file, open)
	if err := read(r, string(text)); err != nil {
		return nil, err
	}
	return r, r.Write()
}
