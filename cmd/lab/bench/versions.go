package bench

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"sluice/loadgen/process"
)

// Versions names the programs that Run measures, and what this one was built with: figures say little without.
func (p Peers) Versions(ctx context.Context) (list []string, err error) {
	p.complete()
	for _, program := range []struct{ name, flag, measured string }{{"nginx", "-v", "nginx"}, {"haproxy", "-v", "haproxy"}, {"caddy", "version", "caddy"}, {"memcached", "-V", "sluice memcached"}} {
		if !slices.ContainsFunc(p.Edges, func(e string) bool { return e == program.measured || strings.HasPrefix(e, program.name+" ") }) {
			continue
		}
		path, err := process.Find(program.name, "install it, or leave it out with --edges")
		if err != nil {
			return nil, err
		}
		version, err := process.Version(ctx, path, program.flag)
		if err != nil {
			return nil, err
		}
		list = append(list, program.name+" "+version)
	}
	return append(list, "Go "+strings.TrimPrefix(runtime.Version(), "go")), nil
}
