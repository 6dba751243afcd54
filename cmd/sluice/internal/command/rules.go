package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/operator"
	"sluice/edge/rules"
)

// ruleForms are the forms of the command rules, with what each wants behind its name.
var ruleForms = []struct{ name, args string }{
	{"add", "[FILE]"}, {"edit", "NAME [FILE]"}, {"set", "NAME FIELD=VALUE…"}, {"remove",
		"NAME"}, {"history", "NAME"}, {"rollback", "NAME [VERSION]"},
}

// rulesCommand is the command rules, in all its forms.
func rulesCommand() operator.Command {
	c := operator.Asks(operator.NewFlagSet("rules"), "[add|edit|set|remove|history|rollback …]",
		"the rules in force; or add [FILE], edit NAME [FILE], set NAME FIELD=VALUE…, remove NAME, history NAME, rollback NAME [VERSION]", askRules)
	c.Examples = `Examples:
  sluice rules set login limit=20 window=5m        what is named changes, on every edge of the PoP; the rest stays
  sluice rules set login 'match.methods=[POST]'    a field within a field; a list
  sluice rules set api plans.pro=1000              the limit of one plan
  sluice rules set login mode=shadow share=null    null: the default
  sluice rules add rule.yaml                       rules in YAML, as in a configuration; without FILE, or with -, from standard input
  sluice rules edit login                          all of it, in $EDITOR; or from FILE, or from standard input (-)
  sluice rules remove login                        whatever the file says
  sluice rules history login                       what was changed, by whom; each change has a version
  sluice rules rollback login                      to the version before the one in force; a second time takes that back
  sluice rules rollback login 0                    to what the file says
A rule changed here lies over the file until it is rolled back to 0. docs/configuration/rules.md has every field; sluice config shows those in force.

`
	return c
}

// askRules is the command rules: without arguments those in force, else one of them is changed,
// or its past shown.
func askRules(c *operator.Client, args []string) error {
	if len(args) == 0 {
		return c.Rules()
	}
	what, rest := args[0], args[1:]
	i := slices.IndexFunc(ruleForms,
		func(f struct{ name, args string }) bool { return f.name == what })
	if i < 0 {
		var forms []string
		for _, f := range ruleForms {
			forms = append(forms, "rules "+f.name+" "+f.args)
		}
		return operator.UsageErrorf("no form %q: want rules, %s", what, strings.Join(forms, ", "))
	}
	form := operator.UsageErrorf("want sluice rules %s %s", what, ruleForms[i].args)
	if len(rest) == 0 || rest[0] == "" {
		form = operator.UsageErrorf("%q is not enough: %w", what, form)
	}
	if what == "add" {
		if len(rest) > 1 {
			return form
		}
		list, err := readRules(c, strings.Join(rest, ""))
		if err != nil {
			return err
		}
		return c.AddRules(list)
	}
	if len(rest) == 0 || rest[0] == "" {
		return form
	}
	name, rest := rest[0], rest[1:]
	switch {
	case what == "set" && len(rest) > 0:
		patch, err := operator.CheckFields(rest)
		if err != nil {
			return operator.UsageErrorf("%w", err)
		}
		return c.SetRule(name, patch)
	case what == "set":
		return operator.UsageErrorf("nothing is to be set: sluice rules set %s limit=300", name)
	case what == "edit" && len(rest) == 1:
		return c.EditRule(name, func(string) (rules.Config, error) {
			return oneRule(readRules(c, rest[0]))
		})
	case what == "edit" && len(rest) == 0:
		if err := c.EditRule(name, func(now string) (rules.Config, error) { return inEditor(c, now) }); !errors.Is(err, errUnchanged) {
			return err
		}
		if c.JSON {
			return c.Rule(name)
		}
		_, err := fmt.Fprintln(c.Out, "nothing is changed")
		return err
	case what == "remove" && len(rest) == 0:
		return c.RemoveRule(name)
	case what == "history" && len(rest) == 0:
		return c.History(name)
	case what == "rollback" && len(rest) == 0:
		return c.Rollback(name, "")
	case what == "rollback" && len(rest) == 1:
		if _, err := strconv.ParseUint(rest[0], 10, 64); err != nil {
			return operator.UsageErrorf("version %q: want the number of one (sluice rules history %s lists them), or 0, which is what the file says", rest[0], name)
		}
		return c.Rollback(name, rest[0])
	}
	return form
}

// readRules reads rules of a file, or of standard input, which is - or no name.
func readRules(c *operator.Client, file string) ([]rules.Config, error) {
	if file != "" && file != "-" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w: give a file with rules in YAML, or - for standard input",
				err)
		}
		return whole(settings.Reader{Modules: c.Modules}.Rules(file, text))
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return whole(settings.Reader{Modules: c.Modules}.Rules("stdin", text))
}

func whole(list []rules.Config, err error) ([]rules.Config, error) {
	if err != nil {
		err = wholeError{err}
	}
	return list, err
}

// wholeError is one whose lines are all shown: of rules that were given, each about another thing
// that is wrong.
type wholeError struct{ error }

func (e wholeError) Unwrap() error { return e.error }

func oneRule(list []rules.Config, err error) (rules.Config, error) {
	switch {
	case err != nil:
		return rules.Config{}, err
	case len(list) > 1:
		return rules.Config{}, fmt.Errorf("there are %d rules in it: want one", len(list))
	}
	return list[0], nil
}

// errUnchanged says that what was written is what is there.
var errUnchanged = errors.New("nothing was changed")

// inEditor has the operator's editor change a rule. What is wrong stays in its file, so that
// nothing written is lost.
func inEditor(c *operator.Client, now string) (rule rules.Config, err error) {
	f, err := os.CreateTemp("", "sluice-rule-*.yaml")
	if err != nil {
		return rule, err
	}
	file := f.Name()
	_, err = f.WriteString(now)
	if err := errors.Join(err, f.Close()); err != nil {
		return rule, err
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	// An editor may have arguments, as in code --wait
	run := exec.Command("sh", "-c", editor+` "$0"`, file)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		_ = os.Remove(file)
		return rule, fmt.Errorf("the editor %q (EDITOR): %w: nothing is changed", editor, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return rule, err
	}
	if string(text) == now {
		_ = os.Remove(file)
		return rule, errUnchanged
	}
	if rule, err = oneRule(settings.Reader{Modules: c.Modules}.Rules(file, text)); err != nil {
		return rule,
			wholeError{fmt.Errorf("%w\nnothing is changed, and what you wrote is in %s: mend it there, and give it as sluice rules edit NAME %[2]s", err, file)}
	}
	return rule, os.Remove(file)
}
