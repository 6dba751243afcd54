// Command sluice is one HTTP edge: it proxies requests to an origin and refuses sources that send too many.
//
//	sluice --origin http://127.0.0.1:3000     serve, with a limit of 100 requests a minute for each source
//	sluice --config sluice.yaml               serve what a file says
//	sluice check sluice.yaml                  validate it
//	sluice why 192.0.2.7 --at 14:05 access.log
//	sluice version
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

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
		switch command := args[0]; {
		case command == "check" && len(args) == 2 && !strings.HasPrefix(args[1], "-"):
			return check(args[1], stdout, stderr)
		case command == "check":
			return misuse(stderr, errors.New("check wants one file: sluice check FILE"))
		case command == "why":
			return explain(args[1:], stdout, stderr)
		case command == "version" && len(args) == 1:
			fmt.Fprintln(stdout, "sluice", version())
			return 0
		case command == "version":
			return misuse(stderr, errors.New("version wants nothing else"))
		default:
			return misuse(stderr, fmt.Errorf("unknown command %q: want check, why, version, or flags alone to serve", command))
		}
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

// check prints everything that is wrong with a file, a line each.
func check(file string, stdout, stderr io.Writer) int {
	c, err := readConfig(file)
	if err == nil && len(c.Origins) == 0 && c.CheckPath == "" {
		fmt.Fprintf(stdout, "%s: good, but it names no origin: serving needs --origin URL\n", file)
		return 0
	}
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	for _, w := range c.Warnings() {
		fmt.Fprintf(stderr, "%s: warning: %s\n", file, w)
	}
	fmt.Fprintf(stdout, "%s: good: %d rules, %d origins\n", file, len(c.Rules), len(c.Origins))
	return 0
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

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && v == "(devel)" {
			v = s.Value[:12]
		}
	}
	return strings.Trim(v, "()") + " " + info.GoVersion
}
