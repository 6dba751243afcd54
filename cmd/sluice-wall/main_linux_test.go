//go:build system

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/sluice-wall/internal/nft"
	"sluice/edge/wall/record"
)

func TestFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                     "--ports is missing",
		"--ports 0":                            "between 1 and 65535",
		"--ports 80,99999":                     "between 1 and 65535",
		"--ports 80 --max 0":                   "--max 0",
		"--ports 80 --lease 2m":                "--lease 2m0s",
		"--ports 80 --lease 1ms":               "--lease 1ms",
		"--ports 80 --answer no":               "want reset or drop",
		"--ports 80 --socket=":                 "--socket is empty",
		"--ports 80 more":                      "is no flag",
		"--port 80":                            "unknown flag",
		"--ports 80 --user nobody-at-all":      "no such user",
		"--ports 80 --user 0 --socket " + file: "no socket",
	} {
		var out, err bytes.Buffer
		if code := run(strings.Fields(args), &out, &err); code == 0 || !strings.Contains(err.String(), want) {
			t.Errorf("%s: %d %q, want %q", args, code, err.String(), want)
		}
	}
	var out bytes.Buffer
	if code := run([]string{"--help"}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "--lease") {
		t.Errorf("--help: %d %q", code, out.String())
	}
}

// TestServe: what an edge asks for is refused, and nothing is left of it when the helper has stopped. A second helper at the same socket is
// refused; one after it takes the place of a socket that a dead one has left.
func TestServe(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	web, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	port := uint16(web.Addr().(*net.TCPAddr).Port)
	refused := func() bool {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(198, 18, 7, 7)}, Timeout: time.Second}
		c, err := d.Dial("tcp", fmt.Sprintf("198.18.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err != nil
	}
	o, _, err := parse([]string{"--ports", fmt.Sprint(port), "--user", fmt.Sprint(os.Getuid()), "--socket", filepath.Join(t.TempDir(), "wall.sock")})
	if err != nil {
		t.Fatal(err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()

	log := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve(ctx, o, log) }()
	var c net.Conn
	for end := time.Now().Add(10 * time.Second); c == nil; {
		if c, err = net.Dial("unix", o.socket); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	var b []byte
	for _, r := range []record.Record{{Op: record.Hello}, {Op: record.Port, A: uint64(port)}, {Op: record.Add, Prefix: netip.MustParsePrefix("198.18.7.0/24"), A: 10_000}, {Op: record.Commit}} {
		b = r.Append(b)
	}
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	answers := make([]byte, 2*record.Size)
	if _, err := io.ReadFull(c, answers); err != nil {
		t.Fatal(err)
	}
	if r, err := record.Parse(answers[record.Size:]); err != nil || r != (record.Record{Op: record.Commit}) {
		t.Errorf("%+v %v", r, err)
	}
	if !refused() {
		t.Error("not refused")
	}
	if err := serve(ctx, o, log); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a second helper: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if refused() {
		t.Error("refused by a helper that has stopped")
	}
	if _, err := os.Stat(o.socket); err == nil {
		t.Error("the socket is still there")
	}
	table, err := nft.Open(nft.Config{Ports: []uint16{port}, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	table.Close()
}
