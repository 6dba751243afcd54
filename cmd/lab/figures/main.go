// Command figures writes what is measured into the documents. figures.yaml says which runs there
// are, and which tables and values are made of what they print; documents have a place for each,
// between two comments that nobody sees once the page is rendered:
//
//	<!-- figures NAME -->            <!-- =NAME -->1.5<!-- = -->
//	the table, and what it is from
//	<!-- end -->
//
// A quick run is in virtual time: it prints the same everywhere, and is run each time. What a long
// one printed last is in docs/figures/runs, with its command, commit, date and machine, and --long
// runs it anew. --fresh runs nothing, and fails where a stored run is older than
// what it measures of the heart.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/pflag"

	"sluice/docs/pages"
)

func main() {
	check := pflag.Bool("check", false,
		"write nothing, and fail if a document is not as it would be written")
	stored := pflag.Bool("stored", false,
		"run nothing, not what is quick either: write what is stored")
	long := pflag.Bool("long", false, "run what takes long as well")
	fresh := pflag.Bool("fresh", false,
		"run and write nothing, and fail if a stored run is of an older commit than the last change of what it measures of the heart")
	only := pflag.StringSlice("only", nil,
		"run these `NAMES` alone, whether they are quick or long")
	root := pflag.String("root", "../..", "the `FOLDER` of the repository")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *fresh {
		*check, *stored = true, true
	}
	if err := figures(ctx, *root, *check, *stored, *fresh, *long, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// figures runs what is to be run, and writes the documents below root.
func figures(ctx context.Context, root string, check, stored, fresh, long bool,
	only []string) error {
	b, err := load(root)
	if err != nil {
		return err
	}
	if fresh {
		if err := b.fresh(); err != nil {
			return err
		}
	}
	if !stored {
		if err := b.run(ctx, check, long, only); err != nil {
			return err
		}
	}
	return b.documents(check)
}

// documents writes those that may have figures, or says where they are not as they would be
// written.
func (b *book) documents(check bool) (wrong error) {
	all, err := pages.All(b.root)
	if err != nil {
		return err
	}
	for _, name := range sorted(all) {
		wrong = errors.Join(wrong, b.document(name, all[name], check))
	}
	return errors.Join(wrong, b.unused())
}

func (b *book) document(name, was string, check bool) error {
	is, err := b.write(name, was)
	line := difference(was, is)
	switch {
	case err != nil:
		return err
	case line == 0:
		return nil
	case check:
		return fmt.Errorf("%s:%d: is not what its run printed; make figures writes it anew", name,
			line)
	}
	return os.WriteFile(filepath.Join(b.root, name), []byte(is), 0o644)
}
