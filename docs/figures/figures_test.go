package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCovered: every figure in the documents has a claim, or the reason why it needs none. Who adds one, or changes one without its claim, is told here.
func TestCovered(t *testing.T) {
	b, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.uncovered(); err != nil {
		t.Error(err)
	}
	figures := 0
	for _, d := range b.texts {
		figures += len(d.figures())
	}
	if figures < 400 {
		t.Errorf("%d figures are found in the documents: they are no longer recognised", figures)
	}
}

// TestStored: what is stored of long commands is what the documents say. (`make figures` runs the quick ones as well.)
func TestStored(t *testing.T) {
	b, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Commands {
		c := &b.Commands[i]
		if c.Long == "" {
			continue
		}
		out, err := c.output(t.Context(), false)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, claim := range b.claimsOf(c.Name) {
			for _, v := range claim.judge(b.texts[claim.document], out) {
				if v.state == differs {
					t.Errorf("%s:%d: %q has %s, but %s prints %s", v.document, v.line, short(v.what), v.stands, c.Name, v.printed)
				}
			}
		}
	}
}

// A small repository: two pages, a command that prints two figures, one that prints a table, and one that takes long.
var small = map[string]string{
	"README.md": "# Small\nA request takes 1.5\nms, and 1,000 of them\na second.\n\n| size | took | of it |\n|---|---|---|\n| 10 | 3 ms | 1-2 % |\n| 1,000 | 250 ms | 1/4 |\n" +
		"\n```\nwords  12\nmore   13\n```\n",
	"deploy/README.md": "A limit of 5 s is the default.\n\n## Sizing\nFor 64 MB and 3 cores.\n",
	"docs/slow.md":     "It took 7 s.\n",
	"took":             "size 10: 3.2 ms, 1-2 % of it\nsize 1000: 249.8 ms, 4\n",
	"words":            "words  12\nmore   13\n",
	"docs/figures/claims.yaml": `
commands:
  - {name: request, run: "echo 'took 1490 µs, 1004/s'"}
  - {name: took, run: cat took}
  - {name: words, run: cat words}
  - {name: slow, run: echo took 7 s; echo ran >>runs, long: an hour}
claims:
  README.md:
    - {words: "A request takes {1.5} ms", command: request, times: 0.001, find: 'took (\d+)'}
    - {words: "and {1,000} of them a second", command: request, within: "1 %", find: '(\d+)/s'}
    - table: "| size | took | of it |"
      command: took
      columns: {2: 'size $1: ([\d.]+) ms', 3: 'size $1: .*, ([\d-]+)'}
    - {block: "words  12", command: words}
  docs/slow.md:
    - {words: "It took {7} s", command: slow, find: 'took (\d+)'}
exempt:
  deploy/README.md:
    - {words: "A limit of 5 s", why: a default}
    - {section: "## Sizing", why: arithmetic}
`,
	"docs/figures/runs/slow.txt": "command: echo took 7 s; echo ran >>runs\ncode: 0123456\ndate: 2026-01-02\ntook: 1h\nmachine: a slow one\n----\ntook 7 s\n",
}

// lay writes the small repository with changes: in each, what is before the arrow becomes what is after it.
func lay(t *testing.T, changes ...[3]string) string {
	t.Helper()
	files, root := maps.Clone(small), t.TempDir()
	for _, c := range changes {
		if !strings.Contains(files[c[0]], c[1]) {
			t.Fatalf("%s has no %q", c[0], c[1])
		}
		files[c[0]] = strings.ReplaceAll(files[c[0]], c[1], c[2])
	}
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const claims = "docs/figures/claims.yaml"

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		changes [][3]string
		want    string // of what is said; begins with what differs if nothing else is wrong
	}{
		"as it is":                       {nil, "8 figures agree with their command, 0 differ"},
		"a figure that is refuted":       {[][3]string{{"took", "249.8", "249.4"}}, `README.md:9: "1,000 | 250 ms | 1/4" has 250 ms, but took prints 249.4 (today)`},
		"beyond the tolerance":           {[][3]string{{claims, "1004/s", "1011/s"}}, "has 1,000, but request prints 1011 (today)"},
		"within a factor":                {[][3]string{{claims, `within: "1 %"`, "within: factor 2"}, {claims, "1004/s", "1999/s"}}, "8 figures agree with their command, 0 differ"},
		"within it, below":               {[][3]string{{claims, `within: "1 %"`, "within: factor 2"}, {claims, "1004/s", "501/s"}}, "8 figures agree with their command, 0 differ"},
		"beyond a factor":                {[][3]string{{claims, `within: "1 %"`, "within: factor 2"}, {claims, "1004/s", "2001/s"}}, "has 1,000, but request prints 2001 (today)"},
		"beyond it, below":               {[][3]string{{claims, `within: "1 %"`, "within: factor 2"}, {claims, "1004/s", "499/s"}}, "has 1,000, but request prints 499 (today)"},
		"a factor below one":             {[][3]string{{claims, `within: "1 %"`, "within: factor 0.5"}}, `within "factor 0.5": want a share`},
		"a ratio to what is not printed": {[][3]string{{claims, "find: '(\\d+)/s'", "find: '(\\d+)/s', over: '(\\d+) of none'"}}, `nothing is printed like (\d+) of none`},
		"a ratio that agrees":            {[][3]string{{claims, "{1.5} ms\", command: request, times: 0.001, find: 'took (\\d+)'", "{1.5} ms\", command: request, within: \"2 %\", find: 'took (\\d+)', over: ', (\\d+)/s'"}}, "8 figures agree with their command, 0 differ"},
		"a ratio refuted":                {[][3]string{{claims, "took 1490", "took 1690"}, {claims, "{1.5} ms\", command: request, times: 0.001, find: 'took (\\d+)'", "{1.5} ms\", command: request, within: \"2 %\", find: 'took (\\d+)', over: ', (\\d+)/s'"}}, "has 1.5, but request prints 1.6833 (today)"},
		"one of two refuted":             {[][3]string{{"took", "1-2 %", "1-3 %"}}, "has 1-2 %, but took prints 1-3 (today)"},
		"a block":                        {[][3]string{{"words", "more   13", "more   14"}}, "has more 13, but words prints no such line (today)"},
		"a block out of order":           {[][3]string{{"words", "words  12\nmore   13", "more   13\nwords  12"}}, "has more 13, but words prints no such line (today)"},
		"not printed":                    {[][3]string{{"took", "size 10:", "size 11:"}}, "but took prints nothing is printed like size 10: "},
		"a long one's":                   {[][3]string{{"docs/figures/runs/slow.txt", "----\ntook 7", "----\ntook 8"}}, `docs/slow.md:1: "It took 7 s" has 7, but slow prints 8 (2026-01-02)`},
		"figure without its claim":       {[][3]string{{"README.md", "takes 1.5\nms", "takes 1.4\nms"}}, "README.md: \"A request takes {1.5} ms\": these words stand there 0 times"},
		"the other way":                  {[][3]string{{claims, "{1.5}", "{1.4}"}}, "these words stand there 0 times"},
		"a new cell":                     {[][3]string{{"README.md", "| of it |", "| of it | more |"}, {claims, "| of it |", "| of it | more |"}, {"README.md", "1/4 |", "1/4 | 9 |"}}, `README.md:9: "9" has no claim`},
		"a new row":                      {[][3]string{{"README.md", "| 1/4 |\n", "| 1/4 |\n| 20 | 5 ms | 1 % |\n"}}, "but took prints nothing is printed like size 20"},
		"a new sentence":                 {[][3]string{{"docs/slow.md", "7 s.", "7 s. It is 3 times as fast."}}, `docs/slow.md:1: "3 times" has no claim`},
		"a new block":                    {[][3]string{{"docs/slow.md", "7 s.\n", "7 s.\n```\nit 8\n```\n"}}, `docs/slow.md:3: "it 8" has no claim`},
		"outside of its section":         {[][3]string{{"deploy/README.md", "## Sizing", "For 2 GB.\n\n## Sizing"}}, `deploy/README.md:3: "2 GB" has no claim`},
		"no reason":                      {[][3]string{{claims, "why: a default", `why: ""`}}, "want why it needs no command"},
		"nothing stored":                 {[][3]string{{"docs/figures/runs/slow.txt", small["docs/figures/runs/slow.txt"], ""}}, "slow: no output is stored; run it"},
		"stored of something else":       {[][3]string{{"docs/figures/runs/slow.txt", "command: echo took", "command: echo  took"}}, "slow.txt is of another command"},
		"a command fails":                {[][3]string{{claims, "run: cat took", "run: cat took none"}}, "took: cat took none: exit status 1"},
		"a word misspelled":              {[][3]string{{claims, "times: 0.001", "time: 0.001"}}, `unknown field "time"`},
		"no braces":                      {[][3]string{{claims, "{1.5}", "1.5"}}, "0 figures in braces, and 1 expressions to find them"},
		"too few groups":                 {[][3]string{{claims, "{1,000} of them a second", "{1,000} of {them} a second"}}, "want a group for each figure"},
		"unused command":                 {[][3]string{{claims, "  - {name: took,", "  - {name: other, run: echo}\n  - {name: took,"}}, `no claim has the command "other"`},
		"the same name":                  {[][3]string{{claims, "  - {name: took,", "  - {name: took, run: echo}\n  - {name: took,"}}, `command "took": want a name of its own`},
		"no such command":                {[][3]string{{claims, "command: words", "command: word"}}, `no command is called "word"`},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			ok, err := check(t.Context(), lay(t, c.changes...), &said, false, "", false)
			if err != nil {
				said.WriteString(err.Error())
			}
			if right := strings.HasSuffix(c.want, " 0 differ"); (ok && err == nil) != right {
				t.Errorf("agrees: %v, error %v", ok, err)
			}
			if !strings.Contains(said.String(), c.want) {
				t.Errorf("want %q in\n%s", c.want, said.String())
			}
		})
	}
}

// TestLong: long commands run where that is asked for, once for the same code; a change of the code makes them run again.
func TestLong(t *testing.T) {
	root := lay(t)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@localhost"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	commit := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "a.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", ".")
		git("commit", "-q", "-m", text)
	}
	f := func(what string, long bool, want int) {
		t.Helper()
		var said strings.Builder
		if ok, err := check(t.Context(), root, &said, long, "", false); !ok || err != nil {
			t.Errorf("%s: %v\n%s", what, err, said.String())
		}
		ran, _ := os.ReadFile(filepath.Join(root, "runs")) // there is none before the first run
		if n := strings.Count(string(ran), "ran"); n != want {
			t.Errorf("%s: ran %d times by now, want %d", what, n, want)
		}
	}
	git("init", "-q")
	commit("package a")
	f("stored", false, 0)
	f("of other code", true, 1)
	f("again", true, 1)
	commit("package b")
	f("new code, quick ones alone", false, 1)
	f("new code", true, 2)
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("package c"), 0o644); err != nil {
		t.Fatal(err)
	}
	f("code that is not committed", true, 3)
	f("of which nobody knows what it was", true, 4)
}
