package labtest

import (
	"bytes"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// CommandLine returns what tries a command line of a program: its exit code, and that it says what
// is wanted; what is wrong in one line.
func CommandLine(t *testing.T, p *cli.Program) func(line string, code int, want ...string) {
	return func(line string, code int, want ...string) {
		t.Helper()
		var stderr bytes.Buffer
		got := p.Run(t.Context(), strings.Fields(line), &stderr)
		if got != code {
			t.Errorf("%q: exit code %d, want %d; it says %q", line, got, code, stderr.String())
		}
		for _, w := range want {
			if !strings.Contains(stderr.String(), w) {
				t.Errorf("%q: it says %q, want something with %q", line, stderr.String(), w)
			}
		}
		if code != 0 && strings.HasPrefix(stderr.String(), p.Name) && strings.Count(stderr.String(),
			"\n") != 1 {
			t.Errorf("%q: it says %q, want one line", line, stderr.String())
		}
	}
}

// HelpOfEach fails the test where a subcommand of a program has no help, by either of the two ways
// to ask for it.
func HelpOfEach(t *testing.T, p *cli.Program) {
	t.Helper()
	for _, c := range p.Commands {
		var stderr bytes.Buffer
		if code := p.Run(t.Context(), []string{c.Name, "--help"}, &stderr); code != 0 {
			t.Errorf("%s --help: exit code %d: %s", c.Name, code, stderr.String())
		}
		var helped bytes.Buffer
		if code := p.Run(t.Context(), []string{"help", c.Name}, &helped); code != 0 ||
			helped.String() == p.Help() {
			t.Errorf("help %s: exit code %d, and what help alone says: %s", c.Name, code,
				helped.String())
		}
	}
}
