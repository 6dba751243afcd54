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
	"strings"
	"time"
)

// A command prints figures.
type command struct {
	Name, Run string
	Long      string // how long it takes, by hand; none: seconds, and it runs each time

	root string
}

// An output is what a command printed, and when.
type output struct {
	text, when string
}

const fold = "----\n"

func (c *command) file() string { return filepath.Join(c.root, folder, "runs", c.Name+".txt") }

// output is what the command prints, today or the last time.
func (c *command) output(ctx context.Context, long bool) (*output, error) {
	if c.Long == "" {
		text, err := c.execute(ctx)
		return &output{text: text, when: "today"}, err
	}
	stored, err := os.ReadFile(c.file())
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case long && !(err == nil && c.fresh(string(stored))):
		return c.store(ctx)
	case err != nil:
		return nil, fmt.Errorf("%s: no output is stored; run it: make figures LONG=1 FLAGS=\"--only %s\" (%s)", c.Name, c.Name, c.Long)
	}
	return c.read(string(stored))
}

// read takes apart what store wrote.
func (c *command) read(stored string) (*output, error) {
	head, text, ok := strings.Cut(stored, fold)
	fields := make(map[string]string)
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	switch {
	case !ok || fields["date"] == "":
		return nil, fmt.Errorf("%s: want a head with command, code, date, took and machine, and a line %q", c.file(), strings.TrimSpace(fold))
	case fields["command"] != c.Run:
		return nil, fmt.Errorf("%s is of another command, %q: run it again: make figures LONG=1 FLAGS=\"--only %s\"", c.file(), fields["command"], c.Name)
	}
	return &output{text: text, when: fields["date"]}, nil
}

// fresh reports whether an output is of this code and this command. Who has changed the code since it was committed runs everything anew.
func (c *command) fresh(stored string) bool {
	head, _, _ := strings.Cut(stored, fold)
	revision := c.revision()
	return !strings.Contains(revision, "changed") && strings.Contains(head, "command: "+c.Run+"\n") && strings.Contains(head, "code: "+revision+"\n")
}

// store runs the command and keeps what it prints.
func (c *command) store(ctx context.Context) (*output, error) {
	fmt.Fprintf(os.Stderr, "%s (%s): %s\n", c.Name, c.Long, c.Run)
	began, revision := time.Now(), c.revision()
	text, err := c.execute(ctx)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("command: %s\ncode: %s\ndate: %s\ntook: %v\nmachine: %s\n", c.Run, revision, began.Format(time.DateOnly), time.Since(began).Round(time.Second), machine())
	if err := os.MkdirAll(filepath.Dir(c.file()), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.file(), []byte(head+fold+text), 0o644); err != nil {
		return nil, err
	}
	return &output{text: text, when: "today"}, nil
}

// execute runs the command from the top of the repository. What it says of its progress is shown if it fails.
func (c *command) execute(ctx context.Context) (string, error) {
	if strings.Contains(c.Run, "$LOGS") && os.Getenv("LOGS") == "" {
		return "", fmt.Errorf("%s: say where the access logs are: LOGS=DIR", c.Name)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Run)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = c.root, &stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s%s", c.Name, c.Run, err, out, stderr.Bytes())
	}
	return string(out), nil
}

// revision is the last commit that touched code.
func (c *command) revision() string {
	files := []string{"*.go", "go.mod", "go.sum", ":!" + folder}
	git := func(args ...string) string {
		cmd := exec.Command("git", append(append(args, "--"), files...)...)
		cmd.Dir = c.root
		out, err := cmd.Output()
		if err != nil {
			return "unknown, changed"
		}
		return strings.TrimSpace(string(out))
	}
	revision := git("log", "-1", "--format=%h")
	if git("status", "--porcelain") != "" {
		revision += ", changed"
	}
	return revision
}

var model = regexp.MustCompile(`model name\s*: (.*)`)

func machine() string {
	name := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := model.FindSubmatch(text); m != nil {
			name = string(m[1])
		}
	}
	return fmt.Sprintf("%s, %d processors, %s, %s", name, runtime.NumCPU(), runtime.GOOS, runtime.Version())
}
