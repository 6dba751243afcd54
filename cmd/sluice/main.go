// Command sluice is one HTTP edge: it proxies requests to an origin and refuses sources that send
// too many.
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
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/operator"
)

func main() {
	// Of every time in logs, files and answers: edges of a PoP may be in several zones
	time.Local = time.UTC
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		c, known := findCommand(args[0])
		if !known {
			return operator.Misuse(stderr,
				fmt.Errorf("unknown command %q%s: sluice help lists them; flags alone serve",
					args[0], didYouMean(args[0])))
		}
		return c.Run(args[1:], stdout, stderr)
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
		return operator.Misuse(stderr, err)
	}
	c, err := f.load()
	if err == nil {
		err = serve(c, f, stderr)
	}
	if err != nil {
		if err != errLogged {
			fmt.Fprintln(stderr, "sluice:", settings.Sentence(err))
		}
		return operator.ExitFailed
	}
	return 0
}
