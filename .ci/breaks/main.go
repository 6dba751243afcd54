// Breaks shows that what judges accuracy sees a limiter that is broken: it builds sluice-loadgen
// with each break of breaks.yaml (go build -overlay), runs the short run of accuracy with it, and
// fails unless that ends with exit code 1 and names a promise. A break that no longer applies, or
// does not build, is a failure as well. Before that it runs an unbroken one with several seeds,
// each of which must end with 0. It runs at the top of the repository:
//
//	go run ./.ci/breaks [-seeds 10] [-only NAME] [-run "--short --sizes"]
//	go run ./.ci/breaks -apply    # only whether all of them still apply
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
)

// change is a way to break the limiter.
type change struct {
	Name  string `yaml:"name"`
	Edits []edit `yaml:"edits"`
}

// edit replaces a text that stands in a file exactly once.
type edit struct {
	File string `yaml:"file"`
	Old  string `yaml:"old"`
	New  string `yaml:"new"`
}

func main() {
	seeds := flag.Int("seeds", 10, "so many seeds that must stay green, unbroken")
	only := flag.String("only", "", "the breaks whose name has this in it")
	args := flag.String("run", "--short", "`FLAGS` of sluice-loadgen accuracy")
	apply := flag.Bool("apply", false, "look whether all breaks apply to the code, and run nothing")
	flag.Parse()
	if err := run(*apply, *seeds, *only, strings.Fields(*args)); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1)
	}
}

func run(apply bool, seeds int, only string, args []string) error {
	text, err := os.ReadFile(".ci/breaks/breaks.yaml")
	if err != nil {
		return err
	}
	var all []change
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&all); err != nil {
		return fmt.Errorf("breaks.yaml: %w", err)
	}
	dir, err := os.MkdirTemp("", "sluice-breaks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var failed []error
	if apply {
		for i := range all {
			if err := all[i].overlay(dir, filepath.Join(dir, "overlay.json")); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", all[i].Name, err))
			}
		}
		return errors.Join(failed...)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "break\texit code\tbroken promises")
	program := filepath.Join(dir, "sluice-loadgen")
	if seeds > 0 {
		if err := build(program, ""); err != nil {
			return err
		}
	}
	for seed := 1; seed <= seeds; seed++ {
		name := fmt.Sprintf("none, seed %d", seed)
		code, broken, err := judged(program,
			append([]string{"--seeds", "1", "--seed", fmt.Sprint(seed)}, args...))
		fmt.Fprintf(table, "%s\t%d\t%s\n", name, code, strings.Join(broken, "; "))
		if err != nil || code != 0 || len(broken) > 0 {
			failed = append(failed, fmt.Errorf("%s: exit code %d, want 0: %s %v", name, code,
				strings.Join(broken, "; "), err))
		}
	}
	for i := range all {
		c := &all[i]
		if !strings.Contains(c.Name, only) {
			continue
		}
		code, broken, err := c.try(dir, program, args)
		fmt.Fprintf(table, "%s\t%d\t%s\n", c.Name, code, strings.Join(broken, "; "))
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name, err))
		} else if code != 1 || len(broken) == 0 {
			failed = append(failed,
				fmt.Errorf("%s: exit code %d and %d broken promises: nobody saw it", c.Name, code,
					len(broken)))
		}
	}
	table.Flush()
	return errors.Join(failed...)
}

// try builds a broken program and has it judged.
func (c *change) try(dir, program string, args []string) (code int, broken []string, err error) {
	overlay := filepath.Join(dir, "overlay.json")
	if err := c.overlay(dir, overlay); err != nil {
		return -1, nil, err
	}
	if err := build(program, overlay); err != nil {
		return -1, nil, err
	}
	return judged(program, args)
}

// overlay writes the changed files, and the list of them for the compiler.
func (c *change) overlay(dir, list string) error {
	texts := make(map[string]string)
	for _, e := range c.Edits {
		if _, ok := texts[e.File]; !ok {
			text, err := os.ReadFile(e.File)
			if err != nil {
				return fmt.Errorf("it no longer applies: %w", err)
			}
			texts[e.File] = string(text)
		}
		if n := strings.Count(texts[e.File], e.Old); n != 1 {
			return fmt.Errorf("it no longer applies: in %s there are %d times, want once:\n%s",
				e.File, n, e.Old)
		}
		texts[e.File] = strings.Replace(texts[e.File], e.Old, e.New, 1)
	}
	if len(texts) == 0 {
		return errors.New("it changes nothing")
	}
	replace := make(map[string]string)
	for file, text := range texts {
		from, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		replace[from] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[from], []byte(text), 0o644); err != nil {
			return err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(list, b, 0o644)
}

func build(program, overlay string) error {
	goCommand := os.Getenv("GO")
	if goCommand == "" {
		goCommand = "go"
	}
	args := []string{"build", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.Command(goCommand, append(args, "./cmd/sluice-loadgen")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return nil
}

// names finds in what the run says which promises were broken: "  NAME: FOUND, …" at the end of
// what it printed.
var names = regexp.MustCompile(`(?m)^  ([a-z0-9 ]+: [^:]*):`)

func judged(program string, args []string) (code int, broken []string, err error) {
	began := time.Now()
	var stderr bytes.Buffer
	cmd := exec.Command(program, append([]string{"accuracy"}, args...)...)
	cmd.Stderr = &stderr
	err = cmd.Run()
	code = cmd.ProcessState.ExitCode()
	fmt.Fprintf(os.Stderr, "breaks: %v: exit code %d after %v\n", cmd.Args[1:], code,
		time.Since(began).Round(time.Second))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return code, nil, err
	}
	for _, found := range names.FindAllStringSubmatch(stderr.String(), -1) {
		broken = append(broken, found[1])
	}
	return code, broken, nil
}
