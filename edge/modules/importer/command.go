package importer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sluice/edge"
	"sluice/edge/modules/importer/limit"
	"sluice/edge/operator"
	"sluice/edge/regular"
)

// Module makes rules of the limits of another program's file.
func Module() edge.Module {
	return edge.Module{Name: "importer", Commands: []operator.Command{command()}}
}

func command() operator.Command {
	set := operator.NewFlagSet("import")
	asJSON := set.Bool("json", false, "print JSON: rules, notes, and the YAML")
	const meant = "import wants a program and a file: sluice import nginx nginx.conf; - is standard input"
	return operator.Offline(set, "nginx|haproxy|envoy-ratelimit FILE",
		"make rules of another program's limits, with a note for what has no equal", meant,
		func(args []string, stdout, stderr io.Writer) int {
			if kinds[args[0]] == nil {
				return operator.Misuse(stderr,
					fmt.Errorf("import %s: want nginx, haproxy or envoy-ratelimit", args[0]))
			}
			r, err := importFile(args[0], args[1])
			if err != nil {
				fmt.Fprintf(stderr, "sluice import: %v\n", err)
				return operator.ExitFailed
			}
			if *asJSON {
				_ = operator.PrintJSON(stdout, r) // to the terminal, or to whom it may concern
			} else {
				fmt.Fprint(stdout, r.YAML)
			}
			if len(r.Rules) == 0 {
				return operator.ExitFailed
			}
			return 0
		})
}

func importFile(kind, file string) (*limit.Result, error) {
	read, open := os.ReadFile, beside(file)
	if file == "-" {
		file, open = "stdin", nil
		read = func(string) ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%w: give the path of a readable file", err)
	}
	r, err := Import(kind, file, text, open)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// maxIncludedBytes bounds a file that another includes: a pattern may name a log.
const maxIncludedBytes = 4 << 20

// beside opens files by their names relative to another's folder.
func beside(file string) Open {
	return func(pattern string) (files []File, err error) {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(file), pattern)
		}
		names, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		if len(names) == 0 && !strings.ContainsAny(pattern, "*?[") {
			return nil, fmt.Errorf("there is no %s here", pattern)
		}
		for _, name := range names {
			text, err := regular.Read(name, maxIncludedBytes)
			if err != nil {
				return nil, err
			}
			files = append(files, File{Name: name, Text: text})
		}
		return files, nil
	}
}
