package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whatever a name leads to, Read returns at once: what a regular file has, or an error that names it.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(in("full"), []byte("12345"), 0o600))
	must(os.WriteFile(in("long"), []byte("123456"), 0o600))
	must(os.WriteFile(in("empty"), nil, 0o600))
	must(os.Symlink("full", in("link")))
	must(syscall.Mkfifo(in("pipe"), 0o600))
	l, err := net.Listen("unix", in("socket"))
	must(err)
	defer l.Close()
	for name, want := range map[string]string{
		in("full"):   "12345",
		in("link"):   "12345",
		in("empty"):  "",
		in("long"):   "read " + in("long") + ": it has more than 5 bytes",
		in("none"):   "open " + in("none") + ": no such file or directory",
		in("pipe"):   "open " + in("pipe") + ": that is no regular file",
		in("socket"): "open " + in("socket") + ": that is no regular file",
		"/dev/zero":  "open /dev/zero: that is no regular file",
		dir:          "open " + dir + ": that is a folder",
	} {
		text, err := Read(name, 5)
		got := string(text)
		if err != nil {
			got = fmt.Sprint(err)
			if of := (*fs.PathError)(nil); !errors.As(err, &of) || of.Path != name {
				t.Errorf("%s: %T, want an *fs.PathError of it", name, err)
			}
		}
		if got != want {
			t.Errorf("%s\n got %q\nwant %q", name, strings.TrimSpace(got), want)
		}
	}
}
