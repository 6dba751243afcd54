package bench

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"sluice/loadgen/process"
)

// number is a version as programs write it, in whatever sentence.
var number = regexp.MustCompile(`[0-9]+\.[0-9][0-9.]*`)

// Versions names the programs that Run measures, and what this one was built with: figures say little without.
func (p Peers) Versions(ctx context.Context) (list []string, err error) {
	p.complete()
	for _, program := range []struct{ name, flag, measured string }{{"nginx", "-v", "nginx"}, {"haproxy", "-v", "haproxy"}, {"memcached", "-V", "sluice memcached"}} {
		if !slices.ContainsFunc(p.Edges, func(e string) bool { return e == program.measured || strings.HasPrefix(e, program.name+" ") }) {
			continue
		}
		path, err := process.Find(program.name, "install it, or leave it out with --edges")
		if err != nil {
			return nil, err
		}
		said, err := exec.CommandContext(ctx, path, program.flag).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("loadgen: bench-peers: %s %s: %w", path, program.flag, err)
		}
		list = append(list, program.name+" "+number.FindString(string(said)))
	}
	return append(list, "Go "+strings.TrimPrefix(runtime.Version(), "go")), nil
}
