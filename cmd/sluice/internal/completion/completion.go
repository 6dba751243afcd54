// Package completion has shells complete a command line: their scripts ask the program itself,
// which answers from its table of commands, so that they know what it knows.
package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sluice/edge/operator"
)

// file is the answer where the name of a file is wanted.
const file = "FILE"

// scripts each ask `completion --` with the words up to the cursor, and take a line for each word
// that is offered: the word, a tab, and what it means. In bash a word with = comes in pieces.
var scripts = map[string]string{
	"bash": `# bash completion for %[1]s: source <(%[1]s completion bash)
_%[1]s() {
	local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} list
	[[ $cur != = ]] || cur=
	list=($(%[1]s completion -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	if [[ ${list[0]} == %[2]s ]]; then
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$cur"))
	else
		COMPREPLY=($(compgen -W "${list[*]%%%%$'\t'*}" -- "$cur"))
	fi
}
complete -F _%[1]s %[1]s
`,
	"zsh": `#compdef %[1]s
# zsh completion for %[1]s: source <(%[1]s completion zsh), or a file _%[1]s in a folder of $fpath
_%[1]s() {
	local -a list=("${(@f)$(%[1]s completion -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ $list == %[2]s ]]; then
		_files
	elif [[ -n $list ]]; then
		list=("${(@)list//:/\\:}")
		list=("${(@)list/$'\t'/:}")
		_describe -V '%[1]s' list
	fi
}
if [[ $funcstack[1] == _%[1]s ]]; then
	_%[1]s "$@"
else
	compdef _%[1]s %[1]s
fi
`,
	"fish": `# fish completion for %[1]s: %[1]s completion fish | source
function __%[1]s_complete
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	set -l list (%[1]s completion -- $words[2..] "$cur" 2>/dev/null)
	if test "$list" = %[2]s
		__fish_complete_path "$cur"
	else
		printf '%%s\n' $list
	end
end
complete -c %[1]s -f -a '(__%[1]s_complete)'
`}

// Shells lists those that there are scripts for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Write writes the script of a shell for a program. The error names a shell that there is none for.
func Write(w io.Writer, shell, program string) error {
	script, known := scripts[shell]
	if !known {
		return fmt.Errorf("there is no completion for %q: want %s", shell, strings.Join(Shells(),
			", "))
	}
	_, err := fmt.Fprintf(w, script, program, file)
	return err
}

// Offer writes what may stand in the place of the last of these words, whatever of it is there yet.
func Offer(w io.Writer, commands []operator.Command, words []string) {
	last := len(words) - 1
	cur, before := words[last], slices.DeleteFunc(slices.Clone(words[:last]),
		func(word string) bool { return word == "=" })
	var name, prev string
	if len(before) > 0 {
		prev = before[len(before)-1]
		if !strings.HasPrefix(before[0], "-") {
			name = before[0]
		}
	}
	i := slices.IndexFunc(commands, func(c operator.Command) bool { return c.Name == name })
	if i < 0 {
		return
	}
	wants, flags := commands[i].Args, []string(nil)
	if name == "" {
		wants = "COMMAND"
	}
	if commands[i].Flags != nil {
		commands[i].Flags.VisitAll(func(f *pflag.Flag) {
			value, does := pflag.UnquoteUsage(f)
			for _, spelled := range []string{"--" + f.Name, "-" + f.Shorthand} {
				if spelled == "-" {
					continue
				}
				flags = append(flags, spelled+"\t"+does)
				if spelled == prev && f.NoOptDefVal == "" {
					wants, cur = value, ""
				}
			}
		})
	}
	offered := flags
	if !strings.HasPrefix(cur, "-") {
		offered = values(wants, commands)
	}
	for _, line := range offered {
		fmt.Fprintln(w, line)
	}
}

// values are what a flag or an argument may be, by its name.
func values(name string, commands []operator.Command) (list []string) {
	name, _, _ = strings.Cut(name, " ") // of several arguments the first
	switch name = strings.Trim(name, "[]"); {
	case name == "COMMAND":
		for _, c := range commands {
			if c.Name != "" {
				list = append(list, c.Name+"\t"+c.Does)
			}
		}
	case strings.HasPrefix(name, file):
		list = []string{file}
	case strings.Contains(name, "|") && strings.ToUpper(name) != name:
		list = strings.Split(name, "|")
	}
	return list
}
