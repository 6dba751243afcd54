// Package completion writes scripts by which shells complete a command line: from a table of commands, so that they know what the
// program knows.
package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Command is what shells are told of a command. What a flag or an argument wants is read from its name: of a|b it is one of
// these words, FILE is a file, and of other names a shell knows nothing.
type Command struct {
	Name, Does string // no Name: the program without a command
	Args       string // such as "SOURCE", "[FILE]", "bash|zsh|fish"
	Flags      *pflag.FlagSet
}

// Shells lists those that there are scripts for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Write writes the script of a shell for a program. The error names a shell that there is none for.
func Write(w io.Writer, shell, program string, commands []Command) error {
	var text string
	switch shell {
	case "bash":
		text = bash(program, commands)
	case "zsh":
		text = zsh(program, commands)
	case "fish":
		text = fish(program, commands)
	default:
		return fmt.Errorf("there is no completion for %q: want %s", shell, strings.Join(Shells(), ", "))
	}
	_, err := io.WriteString(w, text)
	return err
}

// flag is a flag as a shell sees it.
type flag struct {
	names  []string // with their dashes
	does   string
	takes  bool
	wanted // if it takes something
}

// wanted is what may stand somewhere.
type wanted struct {
	file  bool
	words []string
}

// String is how scripts say it: FILE, or the words.
func (w wanted) String() string {
	if w.file {
		return "FILE"
	}
	return strings.Join(w.words, " ")
}

// want reads what is wanted from its name.
func want(name string) wanted {
	name, _, _ = strings.Cut(name, " ") // of several arguments the first
	name = strings.Trim(name, "[]")
	if strings.Contains(name, "|") && strings.ToUpper(name) != name {
		return wanted{words: strings.Split(name, "|")}
	}
	return wanted{file: strings.HasPrefix(name, "FILE")}
}

func (c Command) flags() (list []flag) {
	if c.Flags == nil {
		return nil
	}
	c.Flags.VisitAll(func(f *pflag.Flag) {
		name, does := pflag.UnquoteUsage(f)
		l := flag{names: []string{"--" + f.Name}, does: does, takes: f.NoOptDefVal == ""}
		if f.Shorthand != "" {
			l.names = append(l.names, "-"+f.Shorthand)
		}
		if l.takes {
			l.wanted = want(name)
		}
		list = append(list, l)
	})
	return list
}

func names(commands []Command) (list []string) {
	for _, c := range commands {
		if c.Name != "" {
			list = append(list, c.Name)
		}
	}
	return list
}

// args is what a command's argument may be; COMMAND is one of the commands.
func (c Command) args(commands []Command) wanted {
	if strings.Trim(c.Args, "[]") == "COMMAND" {
		return wanted{words: names(commands)}
	}
	return want(c.Args)
}

func (c Command) flagNames() (list []string) {
	for _, f := range c.flags() {
		list = append(list, f.names...)
	}
	return list
}

// A line with = comes in pieces, because = parts words there.
const bashFrame = `# bash completion for %[1]s: source <(%[1]s completion bash)
_%[1]s() {
	local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=
	COMPREPLY=()
	if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
	if [[ $COMP_CWORD == 1 || $command == -* ]]; then command=; fi
	case $command:$prev in
%[2]s	*)
		case $command:$cur in
%[3]s		esac ;;
	esac
	if [[ $words == FILE ]]; then
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$cur"))
	else
		COMPREPLY=($(compgen -W "${words// /$'\n'}" -- "$cur"))
	fi
}
complete -F _%[1]s %[1]s
`

func bash(program string, commands []Command) string {
	var values, rest strings.Builder
	for _, c := range commands {
		for _, f := range c.flags() {
			if f.takes {
				fmt.Fprintf(&values, "\t%s) words='%s' ;;\n", pattern(c.Name, f.names), f.wanted)
			}
		}
		if flags := c.flagNames(); len(flags) > 0 {
			fmt.Fprintf(&rest, "\t\t%s:-*) words='%s' ;;\n", c.Name, strings.Join(flags, " "))
		}
		args := c.args(commands)
		if c.Name == "" {
			args = wanted{words: names(commands)}
		}
		fmt.Fprintf(&rest, "\t\t%s:*) words='%s' ;;\n", c.Name, args)
	}
	return fmt.Sprintf(bashFrame, program, values.String(), rest.String())
}

// pattern is what a flag of a command looks like to a shell's case: "top:--by|top:-b".
func pattern(command string, flags []string) string {
	list := slices.Clone(flags)
	for i, f := range list {
		list[i] = command + ":" + f
	}
	return strings.Join(list, "|")
}

const zshFrame = `#compdef %[1]s
# zsh completion for %[1]s: source <(%[1]s completion zsh), or a file _%[1]s in a folder of $fpath
_%[1]s() {
	local command=$words[2] prev=$words[CURRENT-1]
	local -a list
	if [[ $CURRENT == 2 || $command == -* ]]; then command=; fi
	case $command:$prev in
%[2]s	(*)
		case $command:$words[CURRENT] in
%[3]s		esac ;;
	esac
	if [[ $list == FILE ]]; then
		_files
	elif (( $#list )); then
		_describe -V '%[1]s' list
	fi
}
if [[ $funcstack[1] == _%[1]s ]]; then
	_%[1]s "$@"
else
	compdef _%[1]s %[1]s
fi
`

func zsh(program string, commands []Command) string {
	var values, rest strings.Builder
	for _, c := range commands {
		var flags []string
		for _, f := range c.flags() {
			if f.takes {
				fmt.Fprintf(&values, "\t(%s) list=(%s) ;;\n", pattern(c.Name, f.names), f.wanted)
			}
			for _, name := range f.names {
				flags = append(flags, described(name, f.does))
			}
		}
		if len(flags) > 0 {
			fmt.Fprintf(&rest, "\t\t(%s:-*) list=(%s) ;;\n", c.Name, strings.Join(flags, " "))
		}
		args := c.args(commands).String()
		if c.Name == "" {
			var each []string
			for _, other := range commands {
				if other.Name != "" {
					each = append(each, described(other.Name, other.Does))
				}
			}
			args = strings.Join(each, " ")
		}
		fmt.Fprintf(&rest, "\t\t(%s:*) list=(%s) ;;\n", c.Name, args)
	}
	return fmt.Sprintf(zshFrame, program, values.String(), rest.String())
}

// described is a word and what it means, as zsh's _describe wants it.
func described(name, does string) string {
	return quote(name + ":" + strings.ReplaceAll(does, ":", `\:`))
}

func fish(program string, commands []Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s: %[1]s completion fish | source\ncomplete -c %[1]s -f\n", program)
	for _, c := range commands {
		when := "__fish_use_subcommand"
		if c.Name != "" {
			fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", program, c.Name, quote(c.Does))
			when = quote("__fish_seen_subcommand_from " + c.Name)
		}
		for _, f := range c.flags() {
			fmt.Fprintf(&b, "complete -c %s -n %s", program, when)
			for _, name := range f.names {
				if long, ok := strings.CutPrefix(name, "--"); ok {
					fmt.Fprintf(&b, " -l %s", long)
				} else {
					fmt.Fprintf(&b, " -s %s", strings.TrimPrefix(name, "-"))
				}
			}
			if f.takes {
				b.WriteString(f.wanted.fish())
			}
			fmt.Fprintf(&b, " -d %s\n", quote(f.does))
		}
		if args := c.args(commands); c.Name != "" && (args.file || len(args.words) > 0) {
			fmt.Fprintf(&b, "complete -c %s -n %s%s\n", program, when, args.fish()[len(" -r"):])
		}
	}
	return b.String()
}

func (w wanted) fish() string {
	switch {
	case w.file:
		return " -r -F"
	case len(w.words) > 0:
		return " -x -a " + quote(strings.Join(w.words, " "))
	}
	return " -x"
}

// quote makes one word of text in any of the shells.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
