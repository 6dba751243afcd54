//go:build system

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each shell is asked what it would offer after a line, once it has read its script.
var shells = map[string]string{
	"bash": `source "$SCRIPT"; read -ra COMP_WORDS <<<"$LINE"; [[ $LINE == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		complete -p sluice >/dev/null || exit 1; _sluice; printf '%s\n' "${COMPREPLY[@]}"`,
	// What zsh's own system would do with the lists is not shown outside of its line editor: here they are printed.
	"zsh": `compdef() { [[ $1 == _sluice && $2 == sluice ]] || exit 1 }
		_files() { print -rl -- *(N) }
		_describe() { local each; for each in ${(P)3}; do print -r -- ${each%%:*}; done }
		source $SCRIPT; words=(${(s: :)LINE}); [[ $LINE == *' ' ]] && words+=(''); CURRENT=$#words; _sluice`,
	"fish": `source $SCRIPT; complete -C $LINE | string replace -r '\t.*' ''; true`,
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	bin := t.TempDir() // with the program, whom the scripts ask
	must(t, os.Symlink(os.Args[0], filepath.Join(bin, "sluice")))
	for shell, program := range shells {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Fatalf("this test needs %s on the PATH: install it (apt-get install %s)", shell, shell)
			}
			dir := t.TempDir()
			script := filepath.Join(dir, "script")
			var text, errs bytes.Buffer
			if code := run([]string{"completion", shell}, &text, &errs); code != 0 {
				t.Fatalf("exit %d: %s", code, errs.String())
			}
			must(t, os.WriteFile(script, text.Bytes(), 0o600))
			for _, test := range []struct {
				line string
				want string // these are offered
				not  string // and none of these
			}{
				{"sluice ", "status top blocked rules reload drain undrain config block unblock allow deny events check help completion version", "serve"},
				{"sluice unb", "unblock", ""},
				{"sluice --log-f", "--log-format", "--json"},
				{"sluice --log-format ", "text json", "script status"},
				{"sluice top --", "--by --number --admin --config --token-file --json", "--reason"},
				{"sluice top --by ", "requests refused shadow", "script --by"},
				{"sluice top --json --by ref", "refused", "requests --by"},
				{"sluice top --json ", "", "requests script --by status"},
				{"sluice nonsense ", "", "script status"},
				{"sluice block --", "--for --reason --rule", "--by"},
				{"sluice block ", "", "status script"},
				{"sluice block --for ", "", "status script"},
				{"sluice rules ", "set history rollback", "status script NAME"},
				{"sluice blocked --mode ", "enforce shadow", "script"},
				{"sluice deny --", "--for --reason --remove", "--rule"},
				{"sluice why --config ", "script", "status"},
				{"sluice check ", "script", "status"},
				{"sluice status --config ", "script", "status"},
				{"sluice completion ", "bash zsh fish", "script"},
				{"sluice help ev", "events", ""},
			} {
				bare := map[string]string{"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
				cmd := exec.Command(path, bare, "-c", program)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "SLUICE_UNDER_TEST=1", "PATH="+bin+":"+os.Getenv("PATH"), "SCRIPT="+script, "LINE="+test.line, "HOME="+dir)
				cmd.Stderr = new(bytes.Buffer)
				out, err := cmd.Output()
				if err != nil || cmd.Stderr.(*bytes.Buffer).Len() > 0 {
					t.Fatalf("%q: %v: %s", test.line, err, cmd.Stderr)
				}
				offered := strings.Fields(string(out))
				offered = slices.DeleteFunc(offered, func(s string) bool { // bash and fish filter, zsh's own does later
					return !strings.HasPrefix(s, test.line[strings.LastIndexByte(test.line, ' ')+1:])
				})
				for _, w := range strings.Fields(test.want) {
					if !slices.Contains(offered, w) {
						t.Errorf("after %q there is no %s: %q", test.line, w, offered)
					}
				}
				for _, w := range strings.Fields(test.not) {
					if slices.Contains(offered, w) {
						t.Errorf("after %q there is %s: %q", test.line, w, offered)
					}
				}
			}
		})
	}
}
