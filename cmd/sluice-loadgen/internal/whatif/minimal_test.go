//go:build minimal

package whatif

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A minimal program refuses a configuration with databases, instead of asking as if there were none.
func TestMinimal(t *testing.T) {
	for _, setting := range []string{"country", "asn"} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte("geo: {"+setting+": /nowhere}\nrules: [{name: a, limit: 1}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := addFlags(pflag.NewFlagSet("what-if", pflag.ContinueOnError))
		f.config = file
		_, err := f.load()
		if want := "geo." + setting + ": this program was built without MaxMind's databases"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
