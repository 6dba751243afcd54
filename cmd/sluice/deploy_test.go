package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The example that operators start from must be a good one.
func TestDeployedExample(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"check", "../../deploy/sluice.yaml"}, &out, &errs); code != 0 {
		t.Errorf("sluice check deploy/sluice.yaml: exit %d: %s", code, errs.String())
	}
}

// No example lets everybody be an operator: they listen on this machine alone, or want a token.
func TestExamplesGuardOperators(t *testing.T) {
	everywhere := regexp.MustCompile(`admin"?[:,=]? *"?(0\.0\.0\.0|\[::\]|\*)?:\d`)
	token := regexp.MustCompile(`(?m)^\s*admin_token_file: /`)
	seen := 0
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		if found := everywhere.Find(text); found != nil && !token.Match(text) {
			t.Errorf("%s: %q, and no admin_token_file", path, found)
		}
		return nil
	})
	if err != nil || seen < 5 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// What goes wrong if a flag of an example is no more: the process that it starts ends at once.
func TestExamplesHaveFlags(t *testing.T) {
	between := regexp.MustCompile(`,? +`)
	for name, line := range map[string]*regexp.Regexp{
		"deploy/systemd/sluice.service": regexp.MustCompile(`(?m)^ExecStart=\S+/sluice (.*)$`),
		"deploy/compose.yaml":           regexp.MustCompile(`command: &command \[(.*)\]`),
		"deploy/kubernetes/sluice.yaml": regexp.MustCompile(`args: \[(--config.*)\]`),
		"README.md":                     regexp.MustCompile(`(?m)^bin/sluice (.*) &$`),
	} {
		text, err := os.ReadFile("../../" + name)
		must(t, err)
		lines := line.FindAllSubmatch(text, -1)
		if len(lines) == 0 {
			t.Errorf("%s: no command line", name)
		}
		for _, m := range lines {
			if _, err := parseFlags(between.Split(strings.ReplaceAll(string(m[1]), `"`, ""), -1)); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			}
		}
	}
}

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
	for _, name := range []string{"sluice.service", "sluice.socket", "sluice-wall.service"} {
		text, err := os.ReadFile("../../deploy/systemd/" + name)
		must(t, err)
		text = regexp.MustCompile(`/usr/bin/sluice(-wall)?`).ReplaceAll(text, []byte(os.Args[0])) // verify wants to see the program
		must(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	out, err := exec.Command("systemd-analyze", "verify", filepath.Join(folder, "sluice.service"), filepath.Join(folder, "sluice.socket"), filepath.Join(folder, "sluice-wall.service")).CombinedOutput()
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

// What the package is made of is there, with documents, examples and what shells complete by, and what its files name of it is in it.
func TestPackageHasWhatItNames(t *testing.T) {
	text, err := os.ReadFile("../../.ci/release/debian.go")
	must(t, err)
	var made, named []string
	for _, m := range regexp.MustCompile(`"(deploy/[^"]+)": +"([^"]+)"`).FindAllSubmatch(text, -1) {
		_, err := os.Stat("../../" + string(m[1]))
		must(t, err)
		made = append(made, "/"+string(m[2]))
	}
	list := regexp.MustCompile(`(?m)^var read = \[\]string\{(.*)\}$`).FindSubmatch(text)
	unread := regexp.MustCompile("regexp.MustCompile\\(`([^`]+)`\\)").FindSubmatch(text)
	if len(made) < 5 || list == nil || unread == nil {
		t.Fatalf("the release puts %q in the package, and to read %q but %q", made, list, unread)
	}
	left := regexp.MustCompile(string(unread[1]))
	for _, what := range strings.Split(strings.ReplaceAll(string(list[1]), `"`, ""), ", ") {
		must(t, filepath.WalkDir("../../"+what, func(file string, d fs.DirEntry, err error) error {
			if below := strings.TrimPrefix(file, "../../"); err == nil && !d.IsDir() && !left.MatchString(below) {
				made = append(made, "/usr/share/doc/sluice/"+below)
			}
			return err
		}))
	}
	for _, want := range []string{"/etc/logrotate.d/sluice", "/usr/share/doc/sluice/docs/alerts/README.md", "/usr/share/doc/sluice/examples/exactly-once.yaml", "/usr/share/doc/sluice/deploy/prometheus/sluice.rules.yml"} {
		if !slices.Contains(made, want) {
			t.Errorf("%s is not in the package", want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if !regexp.MustCompile(`"` + shell + `": +"usr/share/`).Match(text) {
			t.Errorf("%s has nothing to complete by", shell)
		}
	}
	for _, file := range []string{"systemd/sluice.service", "systemd/sluice.socket", "systemd/sluice-wall.service", "debian/sluice.yaml", "debian/postinst", "anycast/sluice-announce.service"} {
		text, err := os.ReadFile("../../deploy/" + file)
		must(t, err)
		for _, name := range regexp.MustCompile(`/usr/(share/doc|lib)/sluice/[\w./-]*\w`).FindAll(text, -1) {
			if named = append(named, string(name)); !slices.Contains(made, string(name)) {
				t.Errorf("%s names %s, which is not in the package", file, name)
			}
		}
	}
	if len(named) < 3 {
		t.Errorf("%q are named", named)
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
	program, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "program"), program, 0o755))
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

// What the unit has to stop is longer than the edge takes, and a reload asks whether the file is good before it tells the edge, outside of the sandbox:
// inside there are no credentials then.
func TestUnitStopsAndReloads(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/sluice.service")
	must(t, err)
	lines := func(name string) (values []string) {
		for _, m := range regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllSubmatch(text, -1) {
			values = append(values, string(m[1]))
		}
		return values
	}
	f, err := parseFlags(strings.Fields(lines("ExecStart")[0])[1:])
	must(t, err)
	stop, err := time.ParseDuration(lines("TimeoutStopSec")[0] + "s")
	must(t, err)
	if least := f.notice + f.grace + 5*time.Second; stop < least { // a second of noticing, and reports to the tier
		t.Errorf("the edge takes up to %v, and has %v", least, stop)
	}
	if got := lines("ExecReload"); !slices.Equal(got, []string{"+/usr/bin/sluice check " + f.config, "/bin/kill -HUP $MAINPID"}) {
		t.Errorf("a reload is %q", got)
	}
}
