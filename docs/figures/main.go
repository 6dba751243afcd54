// Command figures holds what the documents say against what the commands beside it print.
//
// claims.yaml has a claim for each figure: the words it stands in, the command that prints it, where in its output, and by how much the two may
// differ. A claim whose words are no longer in the document fails, so a figure cannot be changed without its claim; and a figure that no claim and no
// exemption has fails, so none can be added without one (coverage.go). Quick commands run each time. Of long ones the last output is kept in runs, with its date,
// machine and revision of the code, and the documents are held against that; --long runs them again, one after the other. Who breaks that off and
// starts anew goes on where it was: what was stored of the same code and command is not run twice.
//
//	make figures                         # quick commands, stored outputs of the long ones
//	make figures LONG=1 LOGS=DIR         # all of them, a few hours
//	make figures LONG=1 FLAGS="--only worst"
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

func main() {
	long := pflag.Bool("long", false, "run long commands as well, and store what they print")
	only := pflag.String("only", "", "`NAME` of a command: this one alone")
	all := pflag.Bool("all", false, "print each cell of a table, in place of a line for all that agree")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := check(ctx, ".", os.Stdout, *long, *only, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// check prints a line for each claim, and then what differs. It reports whether nothing does.
func check(ctx context.Context, root string, w io.Writer, long bool, only string, all bool) (bool, error) {
	book, err := load(root)
	if err != nil {
		return false, err
	}
	var verdicts []verdict
	var failed error
	for i := range book.Commands {
		c := &book.Commands[i]
		if only != "" && c.Name != only {
			continue
		}
		out, err := c.output(ctx, long)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, claim := range book.claimsOf(c.Name) {
			verdicts = append(verdicts, claim.judge(book.texts[claim.document], out)...)
		}
	}
	if len(verdicts) == 0 && failed == nil {
		return false, fmt.Errorf("no claim has a command called %q", only)
	}
	ok := write(w, verdicts, all)
	if only != "" {
		return ok, failed
	}
	return ok, errors.Join(failed, book.uncovered())
}

// write prints the table: a line for each figure, and one for all of a table that agree. What differs is said again below it.
func write(w io.Writer, verdicts []verdict, all bool) bool {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "claim\tcommand\tprinted\tdocument\tverdict")
	count := make(map[string]int)
	for i := 0; i < len(verdicts); {
		v, n := &verdicts[i], 1
		if !all && v.claim.Table != "" && v.state == agrees {
			for i+n < len(verdicts) && verdicts[i+n].claim == v.claim && verdicts[i+n].state == v.state {
				n++
			}
		}
		count[v.state] += n
		i += n
		printed, stands := v.printed, v.stands
		if n > 1 {
			printed, stands = fmt.Sprintf("%d figures", n), "the same"
		}
		fmt.Fprintf(t, "%s:%d %s\t%s, %s\t%s\t%s\t%s\n", v.document, v.line, short(v.what), v.command, v.when, printed, stands, v.state)
	}
	t.Flush()
	for _, v := range verdicts {
		if v.state == differs {
			fmt.Fprintf(w, "\n%s:%d: %q has %s, but %s prints %s (%s)", v.document, v.line, short(v.what), v.stands, v.command, v.printed, v.when)
		}
	}
	fmt.Fprintf(w, "\n%d figures agree with their command, %d differ\n", count[agrees], count[differs])
	return count[differs] == 0
}

func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 72 {
		return string(r[:71]) + "…"
	}
	return s
}
