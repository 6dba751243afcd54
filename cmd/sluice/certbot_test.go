//go:build system

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the document has certbot run copies a pair to where an edge takes it from, and lets no other user read the key. (That certbot runs it is certbot's.)
func TestCertbotHook(t *testing.T) {
	text, err := os.ReadFile("../../docs/install/certificates.md")
	must(t, err)
	_, hook, _ := strings.Cut(string(text), "```\n#!/bin/sh\n")
	hook, _, found := strings.Cut(hook, "```")
	if !found {
		t.Fatal("the page has no hook")
	}
	lineage, to := filepath.Join(t.TempDir(), "example.com"), filepath.Join(t.TempDir(), "certificates")
	hook = strings.NewReplacer("/etc/sluice/certificates", to, "-o root -g sluice", fmt.Sprintf("-o %d -g %d", os.Getuid(), os.Getgid())).Replace(hook)
	cert, key := newAuthority(t).issue(t, "example.com")
	must(t, os.Mkdir(lineage, 0o700))
	for name, from := range map[string]string{"fullchain.pem": cert, "privkey.pem": key} {
		must(t, os.Symlink(from, filepath.Join(lineage, name))) // as certbot's are
	}
	for range 2 { // the first certificate, and a renewal
		cmd := exec.Command("sh", "-c", "umask 0; "+hook)
		cmd.Env = append(os.Environ(), "RENEWED_LINEAGE="+lineage)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for name, want := range map[string]os.FileMode{".": os.ModeDir | 0o750, "example.com.key": 0o640, "example.com.crt": 0o644} {
		info, err := os.Lstat(filepath.Join(to, name))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s is %v, want %v", name, info.Mode(), want)
		}
	}
	file := write(t, fmt.Sprintf("listen_tls: '127.0.0.1:0'\ntls: {folder: %s}\norigins: [{servers: ['http://127.0.0.1:1']}]\n", to))
	if code, out, errs := sluice("check", file); code != 0 {
		t.Errorf("check: exit %d: %s%s", code, out, errs)
	}
}
