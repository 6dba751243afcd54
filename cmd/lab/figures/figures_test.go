package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocuments: each table in the documents is what is stored of its run. (`make figures` runs what is quick anew,
// and writes tables.)
func TestDocuments(t *testing.T) {
	b, err := load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.documents(true); err != nil {
		t.Error(err)
	}
}

// A small repository: a table and a value in a page, of a long run and a quick one.
var small = map[string]string{
	"README.md": "# Small\nA request takes <!-- =cost -->?<!-- = --> µs. The limit is `5 ms`, of `10 s`.\n\n<!-- figures times -->\n<!-- end -->\n\n```\nshown 7 ms\n```\n" +
		"\n<!-- figures rounds -->\n<!-- end -->\n",
	"docs/figures/figures.yaml": `
runs:
  slow: {command: cat slow, long: an hour, measures: [code, counter], spread: seeds 1 to 2}
  quick: {command: cat quick, measures: [code], spread: two rounds}
tables:
  times: {run: slow, lines: '^ *size  ', under: '^(\w+) log', where: {size: '\d+'}, columns: [log = under, size, took, p99 ms, 'never = not there?'], keys: 2}
  rounds: {run: quick, each: '^round', columns: ['of = /of (\w+)/', 'ms = / ([\d.]+) ms/']}
values:
  cost: {run: quick, find: ' ([\d.]+) ms', digits: 2}
`,
	"slow":         "first log\n  size   took  p99 ms\n    10   3 ms     4-5\n   all   9 ms      19\n\nsecond log\n  size   took  p99 ms\n  1000  1,250 ms  6\n",
	"quick":        "round 1 of a 10.25 ms\nround 2 of a 12.5 ms\nround 3 of b 7 ms\n",
	"code":         "1",
	"counter/a.go": "package counter // before",
}

// lay writes the small repository, commits it, runs all and writes its documents.
func lay(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range small {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, root, name, text)
	}
	git(t, root, "init", "-q")
	git(t, root, "add", "-A")
	git(t, root, "commit", "-qm", "begin")
	if err := figures(t.Context(), root, false, false, false, true, nil); err != nil {
		t.Fatal(err)
	}
	return root
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWrite(t *testing.T) {
	root := lay(t)
	page := get(t, root, "README.md")
	for _, want := range []string{
		"takes <!-- =cost -->7–12<!-- = --> µs", "| log | size | took | p99 ms |\n|---|---|---|---|\n| first | 10 | 3 ms | 4-5 |\n| second | 1000 | 1,250 ms | 6 |\n\n*`cat slow`: commit ",
		"; seeds 1 to 2.*\n<!-- end -->", "| a | 10.2–12.5 |\n| b | 7 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if err := figures(t.Context(), root, true, false, false, false, nil); err != nil {
		t.Error("what was just written:", err)
	}
	put(t, root, "README.md", strings.Replace(page, "| 3 ms |", "| 2 ms |", 1))
	if err := figures(t.Context(), root, true, false, false, false, nil); err == nil || !strings.Contains(err.Error(), "README.md:7: is not") {
		t.Errorf("a table that no run printed: %v", err)
	}
	if err := figures(t.Context(), root, false, false, false, false, nil); err != nil || get(t, root, "README.md") != page {
		t.Errorf("%v: is not written back:\n%s", err, get(t, root, "README.md"))
	}
}

// A release has no figures that are older than what they measure of the heart, of a history that is not here, or of a command that is another now.
func TestFresh(t *testing.T) {
	root := lay(t)
	git(t, root, "add", "-A")
	git(t, root, "commit", "-qm", "figures")
	fresh := func(want string) {
		t.Helper()
		err := figures(t.Context(), root, false, false, true, false, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fresh("")
	put(t, root, "code", "2")
	git(t, root, "commit", "-qam", "what is not the heart")
	fresh("")
	const run = folder + "/runs/slow.txt"
	stored := get(t, root, run)
	put(t, root, run, strings.Replace(stored, "commit: ", "commit: 0123456", 1))
	fresh("slow is of commit 0123456")
	put(t, root, run, strings.Replace(stored, "command: cat", "command: dog", 1))
	fresh("slow is of another command: dog slow")
	put(t, root, run, stored)
	for _, other := range []string{"pop/a.go", "counter/a_test.go"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, other)), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, root, other, "package other")
	}
	git(t, root, "add", "-A")
	git(t, root, "commit", "-qm", "what the run does not measure")
	fresh("")
	put(t, root, "counter/a.go", "package counter")
	git(t, root, "commit", "-qam", "what it measures of the heart")
	fresh("the last change of counter")
}
