// Command sluice is one HTTP edge: it proxies requests to an origin and refuses sources that send too many.
//
//	sluice --origin http://127.0.0.1:3000     serve, with a limit of 100 requests a minute for each source
//	sluice --config sluice.yaml               serve what a file says
//	sluice check sluice.yaml                  tell what is wrong with it, and what a start with it would find (also -t)
//	sluice status                             ask a running edge; sluice help lists what else
//	sluice why 192.0.2.7 --at 14:05 access.log
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"sluice/edge/config"
	"sluice/pop/nodename"
)

// Exit codes: bad input is the operator's to mend, wrong usage is answered with how it is meant.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		c, known := findCommand(args[0])
		if !known {
			return misuse(stderr, fmt.Errorf("unknown command %q: sluice help lists them; flags alone serve", args[0]))
		}
		return c.run(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "-t" {
		return cmdCheck(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "--version" {
		return cmdVersion(args[1:], stdout, stderr)
	}
	f, err := parseFlags(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, usage(f))
		return 0
	case err != nil:
		return misuse(stderr, err)
	}
	c, err := f.load()
	if err == nil {
		err = serve(c, f, stderr)
	}
	if err != nil {
		if err != errLogged {
			fmt.Fprintln(stderr, "sluice:", sentence(err))
		}
		return exitFailed
	}
	return 0
}

func misuse(w io.Writer, err error) int {
	fmt.Fprintf(w, "sluice: %v (sluice --help tells more)\n", err)
	return exitUsage
}

func readConfig(file string) (*config.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("%s: cannot be read: %w: give the path of a readable file", file, err)
	}
	return parseConfig(file, text)
}

func parseConfig(file string, text []byte) (*config.Config, error) {
	return config.Parser{Nodes: checkNodes}.Parse(file, text)
}

// checkNodes reports what is wrong with a list of memcached nodes.
func checkNodes(names []string) error {
	_, err := nodename.All(names)
	return err
}

// sentence is an error as one line: the first of several, and how to see the others.
func sentence(err error) string {
	first, rest, more := strings.Cut(err.Error(), "\n")
	if !more {
		return first
	}
	return fmt.Sprintf("%s (and %d more: sluice check FILE shows all)", first, 1+strings.Count(rest, "\n"))
}

// version is what this program says of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

// versionOf is the version, the commit, if it is known, and the Go that it was built with.
func versionOf(info *debug.BuildInfo) string {
	text := strings.Trim(info.Main.Version, "()")
	if text == "" {
		text = "devel"
	}
	var commit, changed string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				changed = " with changes"
			}
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	return text + ", commit " + commit + changed + ", " + info.GoVersion
}

// buildInfo says what this process is.
func buildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": "unknown", "commit": "unknown", "go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["version"] = strings.Trim(info.Main.Version, "()")
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				labels["commit"] = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_build_info", Help: "What this process was built from; always 1.",
		ConstLabels: labels}, func() float64 { return 1 })
}
