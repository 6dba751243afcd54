package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocuments: each table in the documents is what is stored of its run, and nothing else there is a measured figure. (`make figures` runs
// what is quick anew, and writes tables.) How old runs are is no concern of whoever tests a change.
func TestDocuments(t *testing.T) {
	b, err := load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	b.history = false
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
  slow: {command: cat slow, long: an hour, measures: [code], spread: seeds 1 to 2}
  quick: {command: cat quick, measures: [code], spread: two rounds}
tables:
  times: {run: slow, lines: '^ *size  ', under: '^(\w+) log', where: {size: '\d+'}, columns: [log = under, size, took, p99 ms, 'never = not there?'], keys: 2}
  rounds: {run: quick, each: '^round', columns: ['of = /of (\w+)/', 'ms = / ([\d.]+) ms/']}
values:
  cost: {run: quick, find: ' ([\d.]+) ms', digits: 2}
`,
	"slow":  "first log\n  size   took  p99 ms\n    10   3 ms     4-5\n   all   9 ms      19\n\nsecond log\n  size   took  p99 ms\n  1000  1,250 ms  6\n",
	"quick": "round 1 of a 10.25 ms\nround 2 of a 12.5 ms\nround 3 of b 7 ms\n",
	"code":  "1",
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
	if err := figures(t.Context(), root, false, false, true, nil); err != nil {
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
	if err := figures(t.Context(), root, true, false, false, nil); err != nil {
		t.Error("what was just written:", err)
	}
	for range commits + 1 {
		if strings.Contains(get(t, root, "README.md"), older) {
			t.Fatal("older than its code too early")
		}
		put(t, root, "code", get(t, root, "code")+"1")
		git(t, root, "commit", "-qam", "more")
	}
	if err := figures(t.Context(), root, true, false, false, nil); err == nil || !strings.Contains(err.Error(), "README.md:10: is not") {
		t.Errorf("a run that is older than its code: %v", err)
	}
	if err := figures(t.Context(), root, false, false, false, nil); err != nil || strings.Count(get(t, root, "README.md"), older) != 1 {
		t.Errorf("%v:\n%s", err, get(t, root, "README.md"))
	}
}

// TestMutations: whatever is changed by hand is found by the check, and written back or refused.
func TestMutations(t *testing.T) {
	const run = "docs/figures/runs/slow.txt"
	root := lay(t)
	for name, c := range map[string]struct {
		file, was, is, want string
		stays               bool // writing does not put it right
	}{
		"unit":              {"README.md", "| 3 ms |", "| 3 s |", "README.md:7: is not", false},
		"broken figure":     {"README.md", "`10 s`.", "`10 s`, and takes 1.5\nms.", `README.md:2: "1.5\nms" is a figure`, true},
		"a share":           {"README.md", "`10 s`.", "`10 s`, or 1/18 of it.", "is a figure", true},
		"neighbour's cell":  {"README.md", "| second | 1000 |", "| second | 2000 |", "README.md:8: is not", false},
		"p99":               {"README.md", "| 4-5 |", "| 4-6 |", "README.md:7: is not", false},
		"date in a table":   {"README.md", ", 20", ", 19", "README.md:10: is not", false},
		"value":             {"README.md", "7–12", "7–11", "README.md:2: is not", false},
		"row of one's own":  {"README.md", "<!-- end -->\n\n```", "<!-- end -->\n\n| a | b |\n|---|---|\n| x | 17 |\n\n```", "is a figure", true},
		"place without end": {"README.md", "<!-- = -->", "", "README.md: a place has no end", true},
		"commit":            {run, "commit: ", "commit: a", "slow.txt:1: is not as its run wrote it", true},
		"date":              {run, "date: 2", "date: 1", "slow.txt:1: is not as its run wrote it", true},
		"stored p99":        {run, "4-5", "4-6", "slow.txt:1: is not as its run wrote it", true},
		"quick run":         {"quick", "12.5", "12.6", "quick.txt: the command prints something else now", false},
		"a run too many":    {"docs/figures/figures.yaml", "runs:\n", "runs:\n  idle: {command: 'true', long: years}\n", "nothing is made of the run idle", true},
	} {
		t.Run(name, func(t *testing.T) {
			before := get(t, root, c.file)
			if !strings.Contains(before, c.was) {
				t.Fatalf("%s has no %q:\n%s", c.file, c.was, before)
			}
			put(t, root, c.file, strings.Replace(before, c.was, c.is, 1))
			defer func() {
				put(t, root, c.file, before)
				if err := figures(t.Context(), root, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
			}()
			if err := figures(t.Context(), root, true, false, false, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("--check says %v, want %q", err, c.want)
			}
			if err := figures(t.Context(), root, false, false, false, nil); c.stays != (err != nil) {
				t.Errorf("writing: %v", err)
			} else if c.file == "README.md" && !c.stays && get(t, root, c.file) != before {
				t.Errorf("is not written back:\n%s", get(t, root, c.file))
			}
		})
	}
}
