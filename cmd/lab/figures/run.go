package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

const (
	folder = "docs/figures"
	fold   = "----\n"
)

// A book is figures.yaml.
type book struct {
	Runs   map[string]*run
	Tables map[string]*table
	Values map[string]*value

	root string
	used map[string]bool
}

// A run is a command that prints figures.
type run struct {
	Command string
	// How long it takes, by hand; none: it is in virtual time, takes seconds and is run each time
	Long     string
	Measures []string // packages
	Spread   string   // what a range in its figures is of, such as "seeds 1 to 4"

	root, name                  string
	text                        string
	command, commit, date, took string // as stored
	machine, spread             string
}

func load(root string) (*book, error) {
	text, err := os.ReadFile(filepath.Join(root, folder, "figures.yaml"))
	if err != nil {
		return nil, err
	}
	b := &book{root: root, used: make(map[string]bool)}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(b); err != nil {
		return nil, fmt.Errorf("%s/figures.yaml: %w", folder, err)
	}
	for name, r := range b.Runs {
		r.root, r.name = root, name
		if err := r.read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return b, nil
}

// run runs what is quick, and what is long where that is asked for; or what is named. What a quick
// run prints must be what is stored, where nothing is to be written.
func (b *book) run(ctx context.Context, check, long bool, only []string) error {
	var wrong error
	names := sorted(b.Runs)
	slices.SortStableFunc(names,
		func(x, y string) int { return b.Runs[x].reads() - b.Runs[y].reads() })
	for _, name := range names {
		r := b.Runs[name]
		if len(only) > 0 && !slices.Contains(only, name) || len(only) == 0 && r.Long != "" &&
			!long {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, r.Command)
		began := time.Now()
		text, err := r.execute(ctx)
		switch {
		case err != nil:
			wrong = errors.Join(wrong, err)
		case text == r.text && r.command == r.Command && r.Long == "":
		case check:
			wrong = errors.Join(wrong,
				fmt.Errorf("%s/runs/%s.txt: the command prints something else now; make figures stores it", folder, name))
		default:
			r.text, r.command, r.commit, r.date, r.took = text, r.Command, r.revision(),
				began.Format(time.DateOnly), fmt.Sprint(time.Since(began).Round(time.Second))
			r.machine, r.spread = machine(), r.Spread
			if err := r.store(); err != nil {
				return err
			}
		}
	}
	return wrong
}

// reads is how much of what others have stored a run works on; it comes after them.
func (r *run) reads() int { return strings.Count(r.Command, folder+"/runs/") }

func (r *run) file() string { return filepath.Join(r.root, folder, "runs", r.name+".txt") }

func (r *run) head() string {
	return fmt.Sprintf("command: %s\ncommit: %s\ndate: %s\ntook: %s\nmachine: %s\nspread: %s\n",
		r.command, r.commit, r.date, r.took, r.machine, r.spread)
}

func (r *run) store() error {
	if err := os.MkdirAll(filepath.Dir(r.file()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.file(), []byte(r.head()+fold+r.text), 0o644)
}

// read takes apart what store wrote.
func (r *run) read() error {
	stored, err := os.ReadFile(r.file())
	if err != nil {
		return err
	}
	head, text, _ := strings.Cut(string(stored), fold)
	into := map[string]*string{
		"command": &r.command, "commit": &r.commit, "date": &r.date, "took": &r.took,
		"machine": &r.machine, "spread": &r.spread,
	}
	for line := range strings.Lines(head) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if into[name] == nil {
			return fmt.Errorf("%s/runs/%s.txt: a line of its head is none that a run writes: %q",
				folder, r.name, line)
		}
		*into[name] = value
	}
	r.text = text
	return nil
}

// noise is what differs from run to run, and is no figure.
var noise = regexp.MustCompile(`(?m)^(decisions per second .*|=== .*|--- .*|ok  .*|PASS|FAIL|goos: .*|goarch: .*|pkg: .*)\n|^ +\w+_test\.go:\d+:`)

// execute runs the command from the top of the repository. What it says of its progress is shown if
// it fails.
func (r *run) execute(ctx context.Context) (string, error) {
	if strings.Contains(r.Command, "$LOGS") && os.Getenv("LOGS") == "" {
		return "", fmt.Errorf("%s: say where the access logs are: LOGS=DIR", r.name)
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", r.Command)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = r.root, &stderr, 10*time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s%s", r.name, r.Command, err, out, stderr.Bytes())
	}
	return noise.ReplaceAllStringFunc(string(out),
		func(s string) string { return strings.Repeat(" ", 4*strings.Count(s, "_test.go")) }), nil
}

func (r *run) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// revision is the commit that is checked out, and whether what the run measures has changes that
// are not committed.
func (r *run) revision() string {
	commit, err := r.git("rev-parse", "--short=12", "HEAD")
	if changed, _ := r.git(append([]string{"status", "--porcelain", "--"},
		r.Measures...)...); err != nil || changed != "" {
		commit += ", changed"
	}
	return commit
}

// The idea of the product: a figure that was measured before the last change of it may be another
// now.
var heart = []string{"counter", "mitigation", "pop", "edge/limiter"}

// fresh is an error that names each run whose figures are of another history, of another command,
// or older than what it measures of the heart. Tests of the heart change no figure.
func (b *book) fresh() (stale error) {
	for _, name := range sorted(b.Runs) {
		r, why := b.Runs[name], ""
		_, unknown := r.git("merge-base", "--is-ancestor", r.commit, "HEAD")
		of := r.ofHeart()
		changed, err := r.git(append([]string{"log", "-1", "--format=%h", "--", ":!*_test.go"},
			of...)...)
		if err != nil {
			return fmt.Errorf("the commits are needed to say how old figures are: clone the whole repository: %w", err)
		}
		_, older := r.git("merge-base", "--is-ancestor", changed, r.commit)
		switch {
		case r.Long == "": // make figures runs it each time
		case r.text == "":
			why = "was never run"
		case unknown != nil:
			why = "is of commit " + r.commit + ", which is not in the history"
		case len(of) > 0 && older != nil:
			why = "is of commit " + r.commit + ", older than " + changed + ", the last change of " +
				strings.Join(of, ", ")
		case r.command != r.Command:
			why = "is of another command: " + r.command
		}
		if why != "" {
			stale = errors.Join(stale, fmt.Errorf("%s %s: make figures FLAGS=\"--only %s\"", name,
				why, name))
		}
	}
	return stale
}

// ofHeart are the packages of the heart that the run measures.
func (r *run) ofHeart() (list []string) {
	for _, of := range r.Measures {
		if slices.ContainsFunc(heart,
			func(h string) bool { return of == h || strings.HasPrefix(of, h+"/") }) {
			list = append(list, of)
		}
	}
	return list
}

// note is the line below each table.
func (r *run) note() string {
	n := fmt.Sprintf("*`%s`: commit %s, %s, %s", r.command, r.commit, r.date, r.machine)
	if r.spread != "" {
		n += "; " + r.spread
	}
	return n + ".*"
}

var model = regexp.MustCompile(`model name\s*: (.*)`)

func machine() string {
	name := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := model.FindSubmatch(text); m != nil {
			name = string(m[1])
		}
	}
	return fmt.Sprintf("%s, %d processors, %s, %s", name, runtime.NumCPU(), runtime.GOOS,
		runtime.Version())
}
