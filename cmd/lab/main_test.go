package main

import (
	"testing"

	"sluice/cmd/internal/labtest"
)

func TestCommandLines(t *testing.T) {
	f := labtest.CommandLine(t, &program)
	f("", 2, "Usage", "lab", "worst", "bench-peers")
	f("help", 0, "Usage")
	f("explode", 2, `"explode"`, "help")

	f("lab", 2, "--check", "sluice-loadgen lab")
	f("worst --rounds 0", 2, "--rounds 0")
	f("worst --edges 65", 2, "--edges 65", "1 to 64")
	f("worst --window 10ms", 2, "--window 10ms", "1s")
	f("worst --sources old", 2, "old", "known, fresh or any")
	f("flood --ways pigeon", 2, "pigeon", "kernel")
	f("flood --sources 70000", 2, "65536")
	f("pace --rate 0", 2, "--rate 0")
	f("pace --rate 50000 --time 1h", 2, "180000000 requests")
	f("pace --sources 0", 2, "--sources 0")
	f("pace --source pigeon", 2, "pigeon", "loopback, xff or proxy")
	f("lab --check everything", 2, "everything", "want quiet, shared, ")
	f("lab --check words --rate 5", 2, "--check words: --rate would change nothing")
	f("lab --check exact --limit 7", 2, "--check exact: --limit would change nothing")
	f("lab --check shared --workload mixed", 2, "--check shared: --workload")
	f("lab --check slow --seed 2 --speed 3", 2, "--check slow: --speed")
	f("lab --check quiet --http2 --sluice true", 2, "--check upgrades and restarts")
	f("lab --check upgrades --rate 5 --sluice true", 2, "--rate 5", "100 to 100,000")
	f("soak --for 2m --every 1m --sluice true", 2, "--for 2m0s", "at least 3")
	f("chaos --only nothing-like-it", 2, "--only", "--list")
	f("chaos --edges some", 2, "--edges some", "live, virtual or both")
}

func TestHelpOfEach(t *testing.T) { labtest.HelpOfEach(t, &program) }

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
