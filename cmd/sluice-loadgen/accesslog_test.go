//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/loadgen/process"
)

// logged runs a real edge with an access log over a limit of 20, and returns the log: of one source 50 requests, 30 of them
// refused, and 10 of another.
func logged(t *testing.T, format, sampled string) (file string) {
	t.Helper()
	dir := labtest.Binaries(t)
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	file = filepath.Join(t.TempDir(), "access.log")
	front, back := freeAddress(t), freeAddress(t)
	config := writeConfig(t, fmt.Sprintf("listen: %s\nadmin: %s\nsource: {trust: [127.0.0.1]}\naccess_log: {file: %s, format: %s%s}\n"+
		"origins: [{servers: [%q]}]\nrules: [{name: r, limit: 20, window: 1h, mitigation_timeout: 1h}]\n", front, back, file, format, sampled, origin.URL))
	edge := exec.Command(filepath.Join(dir, "sluice"), "--config", config)
	must(t, edge.Start())
	t.Cleanup(func() {
		if edge.ProcessState == nil {
			_ = edge.Process.Kill()
			_ = edge.Wait()
		}
	})
	get := func(url, source string) error {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Forwarded-For", source)
		r.Header.Set("User-Agent", `a "browser" sample=7`)
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	labtest.Eventually(t, "the edge is ready", func() bool { return get("http://"+back+"/readyz", "") == nil })
	for i := range 60 {
		source := "192.0.2.1"
		if i%6 == 5 {
			source = "2001:db8::2"
		}
		must(t, get(fmt.Sprintf("http://%s/a?n=%d", front, i), source))
	}
	http.DefaultClient.CloseIdleConnections()
	must(t, edge.Process.Signal(syscall.SIGTERM))
	must(t, edge.Wait())
	return file
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := process.FreeAddresses(1)
	must(t, err)
	return free[0].String()
}

// What an edge has written can be asked what another limit had done: the same limit would refuse the same requests.
func TestWhatIfReadsOurAccessLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"combined", "json"} {
		var r asked
		runJSON(t, "what-if --limit 20 --window 1h --mitigation-timeout 1h --trace "+logged(t, format, ""), &r)
		if r.Figures.Requests != 60 || r.Figures.Refused != 30 || len(r.Refused) != 1 || r.Refused[0].Source != "192.0.2.1" {
			t.Errorf("%s: %+v", format, r)
		}
	}
}

// A log with a sample of the refusals says what is missing.
func TestWhatIfReadsASampledLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"combined", "json"} {
		file := logged(t, format, ", refused: 10")
		var r struct {
			Run struct {
				Lines   int
				Skipped map[string]int
			}
			Figures struct{ Requests int }
		}
		runJSON(t, "what-if --limit 20 --window 1h --mitigation-timeout 1h --trace "+file, &r)
		if r.Run.Lines != 33 || r.Figures.Requests != 33 || r.Run.Skipped["not in the log, which holds a sample"] != 27 {
			text, _ := os.ReadFile(file)
			t.Errorf("%s: %+v\n%s", format, r, text)
		}
	}
}

// With a sample of the successes, so does the answer: it would refuse more of the requests that came.
func TestWhatIfSaysThatSuccessesAreMissing(t *testing.T) {
	t.Parallel()
	file := logged(t, "json", ", succeeded: 1000000")
	var r struct {
		Run struct {
			Skipped map[string]int
			Notes   []string
		}
		Figures struct{ Requests int }
	}
	runJSON(t, "what-if --limit 20 --window 1h --mitigation-timeout 1h --trace "+file, &r)
	if r.Figures.Requests < 30 || r.Figures.Requests > 31 { // refusals are all there
		t.Errorf("%+v", r)
	}
	line := `{"t":1.5,"source":"192.0.2.7","status":200,"sample":100}` + "\n"
	must(t, os.WriteFile(file, []byte(strings.Repeat(line, 3)), 0o600))
	runJSON(t, "what-if --limit 20 --window 1h --mitigation-timeout 1h --trace "+file, &r)
	if r.Run.Skipped["not in the log, which holds a sample"] != 297 || !slices.ContainsFunc(r.Run.Notes, func(n string) bool { return strings.Contains(n, "about 297 requests are not in it") }) {
		t.Errorf("%+v", r)
	}
}

// And it can be replayed to a running edge.
func TestReplayOfOurAccessLog(t *testing.T) {
	t.Parallel()
	file := logged(t, "combined", "")
	dir := labtest.Binaries(t)
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	front, back := freeAddress(t), freeAddress(t)
	edge := exec.Command(filepath.Join(dir, "sluice"), "--listen", front, "--admin", back, "--origin", origin.URL, "--verdict-header",
		"--limit", "20", "--window", "1h", "--mitigation-timeout", "1h")
	must(t, edge.Start())
	defer func() {
		_ = edge.Process.Kill()
		_ = edge.Wait()
	}()
	labtest.Eventually(t, "the edge is ready", func() bool {
		answer, err := http.Get("http://" + back + "/readyz")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	})
	report := filepath.Join(t.TempDir(), "report.json")
	out, err := exec.Command(filepath.Join(dir, "sluice-loadgen"), "replay", "--pop", front, "--trace", file, "--limit", "20", "--window", "1h",
		"--mitigation-timeout", "1h", "--json", report).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r asked
	if text, err := os.ReadFile(report); err != nil || json.Unmarshal(text, &r) != nil || r.Figures.Requests != 60 || r.Figures.Refused != 30 {
		t.Errorf("%v %+v\n%s", err, r, out)
	}
}
