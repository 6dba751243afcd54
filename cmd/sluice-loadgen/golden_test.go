//go:build !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/edge/edgetest/golden"
)

// What help shows of each command.
func TestHelpTexts(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "$ sluice-loadgen help\n%s\n", program.Help())
	for _, c := range program.Commands {
		text := captured(t, &os.Stderr, func() {
			if code := program.Run(t.Context(), []string{"help", c.Name}, os.Stderr); code != 0 {
				t.Errorf("help %s: exit code %d", c.Name, code)
			}
		})
		fmt.Fprintf(&b, "$ sluice-loadgen help %s\n%s\n", c.Name, text)
	}
	golden.Check(t, "help.txt", []byte(b.String()))
}

// clocked are the figures of a report that the machine decides, and not the seed.
var clocked = regexp.MustCompile(`("(?:took|decisions_per_second)": )[0-9.e+-]+`)

// Reports of one seed are the same, byte for byte: what decides has not changed, nor what judges.
// In virtual time the race detector finds nothing, and takes ten times as long.
func TestReportsOfASeed(t *testing.T) {
	folder := t.TempDir()
	must(t, os.Rename(someLog(t), filepath.Join(folder, "access.log")))
	must(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(`rules:
  - {name: login, match: {path: /login}, limit: 5, window: 20s, mitigation_timeout: 10s}
  - {name: pages, match: {path: /page}, limit: 8, window: 5s, mitigation_timeout: 0, estimate: lower}
  - {name: shadow, limit: 10, window: 10s, mode: shadow, escalate: [2m]}
`), 0o600))
	const deployed = " --workload onoff --limit 20 --window 10s --mitigation-timeout 10s --duration 40s"
	for name, line := range map[string]string{
		"simulate-one-edge.json":  "simulate --mode estimator --estimate nearest,lower" + deployed,
		"simulate-faults.json":    "simulate --edges 4 --memcached 2 --fault 12s,kill,memcached/0 --fault 20s,restart,memcached/0" + deployed,
		"simulate-two-pops.json":  "simulate --edges 2 --memcached 1 --pops 2 --peers" + deployed,
		"simulate-buckets.json":   "simulate --edges 3 --memcached 1 --algorithm token_bucket --burst 10" + deployed,
		"simulate-published.json": "simulate --workload published-bursty --in-order --scale 20000 --mode estimator --limit 20 --window 1m",
		"compare.json":            "compare --edges 3" + deployed,
		"what-if.json":            "what-if --good 198.51.100.0/24 --config FOLDER/rules.yaml --trace FOLDER/access.log",
		"what-if-one-rule.json":   "what-if --limit 20 --window 30s --mitigation-timeout 10s --curve default --trace FOLDER/access.log",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			var stderr bytes.Buffer
			args := append(strings.Fields(line), "--json", file)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "FOLDER", folder)
				if strings.Contains(args[i], ",kill,") || strings.Contains(args[i], ",restart,") {
					args[i] = strings.ReplaceAll(args[i], ",", " ")
				}
			}
			captured(t, &os.Stdout, func() {
				if code := program.Run(t.Context(), args, &stderr); code != 0 {
					t.Fatalf("%s: exit code %d: %s", line, code, stderr.String())
				}
			})
			text, err := os.ReadFile(file)
			must(t, err)
			text = clocked.ReplaceAll(bytes.ReplaceAll(text, []byte(folder), []byte("FOLDER")), []byte("${1}0"))
			golden.Check(t, name, text)
		})
	}
}
