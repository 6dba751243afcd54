// Package golden holds what tests see against files in testdata/golden of their package, which were
// read by people. go test PACKAGE -rewrite writes them anew; a commit that changes one names it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

const folder = "testdata/golden"

// Rewrite reports whether a test writes its files anew. A test binary has one flag of that name,
// and datadriven declares it.
func Rewrite() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// Check compares what was got with the file of that name.
func Check(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(folder, name)
	if Rewrite() {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -rewrite, if it should be so):\n%s", path, diff)
	}
}

// Cases plays the cases of a file: a line with a command, an input, ----, and what f makes of that,
// up to an empty line.
func Cases(t *testing.T, name string, f func(t *testing.T, d *datadriven.TestData) string) {
	t.Helper()
	datadriven.RunTest(t, filepath.Join(folder, name), f)
}
