//go:build system

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The unit passes systemd's own judgement: below 2.5 of 10, and not a directive that systemd does not know.
func TestUnitIsHardened(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze: units are judged where systemd is")
	}
	for _, name := range []string{"sluice.service", "sluice-wall.service"} {
		if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=25", "../../deploy/systemd/"+name).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	folder := t.TempDir()
	for _, name := range []string{"sluice.service", "sluice-wall.service"} {
		text, err := os.ReadFile("../../deploy/systemd/" + name)
		must(t, err)
		text = regexp.MustCompile(`/usr/bin/sluice(-wall)?`).ReplaceAll(text, []byte(os.Args[0])) // verify wants to see the program
		must(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	out, err := exec.Command("systemd-analyze", "verify", filepath.Join(folder, "sluice.service"), filepath.Join(folder, "sluice-wall.service")).CombinedOutput()
	if about := regexp.MustCompile(`(?m)^.*sluice(-wall)?\.(service|socket).*$`).FindAll(out, -1); err != nil || len(about) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// A new package makes a token and no PoP's secret, because another machine would have another, and says so. What there is, is left alone.
func TestPackageMakesNoSecret(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../../deploy/debian/postinst")
	must(t, err)
	script := strings.NewReplacer("/etc/sluice", dir+"/etc", "/run/systemd/system", dir+"/none", "getent passwd sluice", "true").Replace(string(text))
	install := func() string {
		t.Helper()
		said, err := exec.Command("sh", "-c", script, "postinst", "configure").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return string(said)
	}
	if said := install(); !strings.Contains(said, "pop.secret has no secret yet") {
		t.Errorf("the package says %q", said)
	}
	token, err := os.ReadFile(dir + "/etc/credentials/admin.token")
	if err != nil || len(token) < 40 {
		t.Errorf("token %q, %v", token, err)
	}
	secret := dir + "/etc/credentials/pop.secret"
	file := write(t, "origins: [{servers: ['http://127.0.0.1:3000']}]\npop: {memcached: ['127.0.0.1:11211'], secret_file: "+secret+"}")
	var out, said bytes.Buffer
	if code := run([]string{"check", file}, &out, &said); code != 1 || !strings.Contains(said.String(), "pop.secret_file: "+secret+" is empty") {
		t.Errorf("exit %d: %s", code, said.String())
	}
	must(t, os.WriteFile(secret, []byte(popKey), 0o600))
	if said := install(); said != "" {
		t.Errorf("an upgrade says %q", said)
	}
	if text, err := os.ReadFile(secret); string(text) != popKey {
		t.Errorf("an upgrade leaves %q, %v", text, err)
	}
}

// The package's configuration, with all that its comments offer, is good before the unit was ever started: as root and as the service's user, who may not
// listen on port 80 outside of the unit. What systemd makes at the start is told.
func TestPackageIsGoodBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sluice-") // not the test's own, whose parents only its user may enter
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile("../../deploy/debian/sluice.yaml")
	must(t, err)
	before, after, found := strings.Cut(string(text), "# pop:\n")
	if !found {
		t.Fatal("the package's file offers no PoP")
	}
	offered := "pop:\n" + regexp.MustCompile(`(?m)^# `).ReplaceAllString(after, "")
	all := strings.NewReplacer("/var/lib/", dir+"/", "/var/log/", dir+"/", "sluice.service", "none.service").Replace(before + offered)
	file := filepath.Join(dir, "sluice.yaml")
	must(t, os.WriteFile(file, []byte(all), 0o644))
	// By another process: one that a parallel test starts meanwhile would inherit a file that is open
	// here, and what is being written cannot be run.
	must(t, exec.Command("cp", os.Args[0], filepath.Join(dir, "program")).Run())
	for _, user := range []uint32{0, 65534} {
		cmd := exec.Command(filepath.Join(dir, "program"), "check", file)
		cmd.Env = append(os.Environ(), "SLUICE_UNDER_TEST=1")
		if os.Getuid() == 0 { // else whoever runs the tests will do
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("user %d: %v", user, err)
		}
		for _, want := range []string{"pop.secret_file", "admin_token_file", "state_dir: write " + dir + "/sluice", "access_log.file: write " + dir + "/sluice"} {
			if !strings.Contains(string(out), "warning: "+want) {
				t.Errorf("user %d: no word of %s: %s", user, want, out)
			}
		}
	}
}
