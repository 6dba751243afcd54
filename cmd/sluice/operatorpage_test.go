//go:build system

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/docs/pages"
)

// A step is one command of the page, and what the page shows below it.
type step struct {
	line          int
	command, want string
}

// looks are commands that only look: what they show may come a moment later.
var looks = regexp.MustCompile(`^(sluice (status|top|blocked|rules|config|events|try show|suggest) [^;]*|grep .*|curl -s http[^;]*)$`)

// operating are the pages on an operator's tasks, as they go on from each other, and how many commands each has: a page that loses some fails.
var operating = []struct {
	page     string
	commands int
}{
	{"start", 26}, {"composing", 18}, {"rules", 29}, {"rule-kinds", 1}, {"blocks", 26}, {"pages", 22}, {"keys", 30}, {"trouble", 25}, {"changing", 43}, {"looking", 9}, {"whole-pop", 4}, {"trying", 18}, {"plans", 17},
}

// unrun are the pages there that need more than a shell: TestWallIsLifted does what wall says, in a network of its own, and
// TestRotationPage what rotation says of a token, but for what systemd does.
var unrun = []string{"wall", "rotation"}

// What the pages on an operator's tasks show is what happens: their files are written, their commands are run one after the other
// in a shell, and their output is compared. Their addresses are exchanged for others of this machine.
func TestOperatorPages(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"memcached", "curl", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test needs %s on the PATH: install it (apt-get install %s)", program, program)
		}
	}
	// The origin says what that of sluice-loadgen says, which the pages name: nothing may rest on the words of another.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "01") }))
	t.Cleanup(s.Close)
	there := strings.TrimPrefix(s.URL, "http://")
	// All of 127.0.0.0/8 is this machine, so an address by chance, and ports that neither the system gives away nor others prefer, are ours.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	dir := t.TempDir()
	bin := installed(t, dir)
	sh := startShell(t, "", dir, "PATH="+bin+":"+os.Getenv("PATH"))
	for _, p := range operating {
		sh.page = "docs/operating/" + p.page + ".md"
		text, err := os.ReadFile("../../" + sh.page)
		must(t, err)
		page := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(string(text), func(address string) string {
			if address == "127.0.0.1:3000" {
				return there
			}
			_, text, _ := strings.Cut(address, ":")
			port, _ := strconv.Atoi(text)
			return fmt.Sprintf("%s:%d", host, port+10000)
		})
		commands := 0
		for _, block := range pages.Blocks(page) {
			switch block.Kind {
			case "yaml":
				name, _, _ := strings.Cut(strings.TrimPrefix(block.Text, "# "), "\n")
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(block.Text), 0o600))
			case "console":
				for _, s := range steps(block) {
					commands++
					sh.step(s)
				}
			default:
				t.Errorf("%s:%d: a block of %q: want yaml or console", sh.page, block.Line, block.Kind)
			}
		}
		if commands != p.commands {
			t.Errorf("%s has %d commands, want %d: change the list with the page", sh.page, commands, p.commands)
		}
	}
}

// Whoever looks for a page on an operator's task finds it from docs/operating/README.md, and each page there is run, but for unrun.
func TestOperatorPagesAreFound(t *testing.T) {
	index, err := os.ReadFile("../../docs/operating/README.md")
	must(t, err)
	files, err := filepath.Glob("../../docs/operating/*")
	must(t, err)
	names := unrun
	for _, p := range operating {
		names = append(names, p.page)
	}
	if len(files) != len(names)+1 {
		t.Errorf("docs/operating has %d files, want README and the %d that are known", len(files), len(names))
	}
	for _, name := range names {
		if want := "](" + name + ".md)"; !strings.Contains(string(index), want) {
			t.Errorf("docs/operating/README.md has no link %s", want)
		}
	}
}

// installed puts a command sluice into the folder bin of dir.
func installed(t *testing.T, dir string) (bin string) {
	bin = filepath.Join(dir, "bin")
	must(t, os.Mkdir(bin, 0o700))
	sluice := fmt.Sprintf("#!/bin/sh\nSLUICE_UNDER_TEST=1 exec '%s' \"$@\"\n", os.Args[0])
	must(t, os.WriteFile(filepath.Join(bin, "sluice"), []byte(sluice), 0o700))
	return bin
}

// What README's first edge answers is what README says: a comment below a command is what it prints. Then README's configuration takes its place,
// before the same origin.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	there := strings.TrimPrefix(origin(t), "http://")
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	page := strings.NewReplacer("127.0.0.1:3000", there, "127.0.0.1:8080", host+":18080", "[10.0.0.0/8]", "[127.0.0.0/8]").Replace(string(text))
	const front, first = " --listen %s:18080 --admin %[1]s:18081 2> edge.log & EDGE=$!", "bin/sluice --origin "
	dir := t.TempDir()
	installed(t, dir)
	sh, commands := startShell(t, "README.md", dir), 0
	for _, b := range pages.Blocks(page) {
		if b.Kind == "yaml" {
			must(t, os.WriteFile(filepath.Join(dir, "sluice.yaml"), []byte(b.Text), 0o600))
		}
		if b.Kind != "sh" || !strings.Contains(b.Text, first) {
			continue
		}
		var list []step
		for line := range strings.Lines(b.Text) {
			if printed, ok := strings.CutPrefix(line, "# "); ok {
				list[len(list)-1].want += strings.ReplaceAll(printed, "60", "…") // seconds of a block, of which one may be over
				continue
			}
			list = append(list, step{line: b.Line, command: strings.TrimSpace(line)})
		}
		for _, s := range list {
			serve, edge := strings.CutSuffix(s.command, " &")
			switch {
			case strings.HasPrefix(s.command, "bin/sluice-loadgen"): // the test's origin is there already
				continue
			case strings.HasPrefix(s.command, "bin/sluice why "):
				s.command = strings.Replace(s.command, "why ", "why --admin "+host+":18081 ", 1)
			case edge:
				s.command = serve + fmt.Sprintf(front, host) + fmt.Sprintf("; bin/sluice status --wait 50s --admin %s:18081 > /dev/null", host)
			}
			commands++
			sh.step(s)
		}
	}
	if commands != 5 {
		t.Fatalf("README has %d commands of a first edge", commands)
	}
	sh.run("kill $EDGE; wait $EDGE")
	sh.step(step{command: "bin/sluice check sluice.yaml 2>&1 | grep -v warning:", want: "sluice.yaml: good: 3 rules, 1 origin\n"})
	sh.run("bin/sluice --config sluice.yaml" + fmt.Sprintf(front, host) + fmt.Sprintf("; bin/sluice status --wait 50s --admin %s:18081 > /dev/null", host))
	sh.step(step{command: "curl -s http://" + host + ":18080/", want: "hello\n"})
}

func steps(b pages.Block) (list []step) {
	n := b.Line
	for line := range strings.Lines(b.Text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, step{line: n, command: strings.TrimSpace(command)})
		} else {
			list[len(list)-1].want += line
		}
		n++
	}
	return list
}

// A shell runs commands one after the other, and remembers what they set.
type shell struct {
	t    *testing.T
	page string // that its commands are of
	dir  string
	in   *os.File
	out  chan string // its lines, and those of what it runs
	done string
}

func startShell(t *testing.T, page, dir string, env ...string) *shell {
	in, commands, err := os.Pipe()
	must(t, err)
	lines, out, err := os.Pipe()
	must(t, err)
	sh := &shell{t: t, page: page, dir: dir, in: commands, out: make(chan string, 1000), done: "done: " + filepath.Base(filepath.Dir(dir))}
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all that it starts can be ended
	must(t, cmd.Start())
	in.Close()
	out.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(sh.out)
		for s := bufio.NewScanner(lines); s.Scan(); {
			sh.out <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		commands.Close()
		for range sh.out {
		}
		<-ended
		lines.Close()
	})
	return sh
}

// run runs one command and returns what it wrote.
func (sh *shell) run(command string) string {
	sh.t.Helper()
	if _, err := fmt.Fprintf(sh.in, "%s\nprintf '\\n%%s\\n' '%s'\n", command, sh.done); err != nil {
		sh.t.Fatalf("%s: %v", command, err)
	}
	var text strings.Builder
	timeout := time.After(patience)
	for {
		select {
		case line, open := <-sh.out:
			if !open {
				sh.t.Fatalf("%s: the shell has ended after %s", command, text.String())
			}
			if line == sh.done {
				return text.String()
			}
			text.WriteString(line + "\n")
		case <-timeout:
			sh.t.Fatalf("%s: not done after %v; until then %s", command, patience, text.String())
		}
	}
}

// step runs a command of the page, a look again until it shows what the page does.
func (sh *shell) step(s step) {
	sh.t.Helper()
	want := pattern(s.want)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		got := sh.run(s.command)
		if want.MatchString(spaced(got)) {
			return
		}
		if !looks.MatchString(s.command) || time.Now().After(deadline) {
			logs := ""
			for _, name := range []string{"edge.log", "edge1.log", "edge2.log", "edge3.log", "edge4.log"} {
				if text, err := os.ReadFile(filepath.Join(sh.dir, name)); err == nil {
					logs += name + ":\n" + string(text)
				}
			}
			sh.t.Fatalf("%s:%d: %s\n got %s\nwant %s\n%s", sh.page, s.line, s.command, got, s.want, logs)
		}
	}
}

// pattern is what a page shows: … is anything in a line, or, alone, any lines. How far apart words stand does not matter.
func pattern(text string) *regexp.Regexp {
	var p strings.Builder
	p.WriteString(`\A`)
	for line := range strings.Lines(spaced(text)) {
		if line == "…\n" {
			p.WriteString(`(?:.*\n)*?`)
			continue
		}
		p.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	p.WriteString(`\z`)
	return regexp.MustCompile(p.String())
}

// spaced has one space between words, and no empty lines.
func spaced(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			b.WriteString(strings.Join(words, " ") + "\n")
		}
	}
	return b.String()
}
