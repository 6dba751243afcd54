package upgrade

import (
	"net"
	"path/filepath"
	"testing"
)

func TestUnixSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listen("listen", "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen("listen", "unix:"+path); err == nil {
		t.Error("a socket in use was taken")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	again, err := listen("listen", "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
