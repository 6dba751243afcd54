package labtest

import (
	"os"
	"testing"

	"sluice/cmd/internal/namespace"
)

// Namespace runs a test in a network of its own: the same test in another process. It reports
// whether this is the one in it, where the test goes on.
func Namespace(t *testing.T) bool {
	t.Helper()
	if namespace.Inside() {
		if err := namespace.Up(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := namespace.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1",
		"-test.timeout=5m")
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "-test.v")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a network namespace: %v (this needs root, or a kernel that gives others a user namespace)\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	return false
}
