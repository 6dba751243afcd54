package main

import (
	"testing"

	"sluice/cmd/internal/labtest"
)

func TestCommandLines(t *testing.T) {
	f := labtest.CommandLine(t, &program)
	f("", 2, "Usage", "lab", "chaos", "bench-peers")
	f("help", 0, "Usage")
	f("explode", 2, `"explode"`, "help")

	f("lab", 2, "--check", "sluice-loadgen lab")
	f("flood --ways pigeon", 2, "pigeon", "kernel")
	f("flood --sources 70000", 2, "65536")
	f("pace --rate 0", 2, "--rate 0")
	f("pace --rate 50000 --time 1h", 2, "180000000 requests")
	f("pace --sources 0", 2, "--sources 0")
	f("lab --check everything", 2, "everything", "want shedding")
	f("bench-peers --rounds 0", 2, "--rounds 0", "1 to 100")
	f("rest --after 2h", 2, "--after 2h0m0s", "an hour")
	f("http2-attacks --attacks hug", 2, "--attacks hug", "rapid reset")
	f("soak --for 2m --every 1m --sluice true", 2, "--for 2m0s", "at least 3")
	f("chaos --only nothing-like-it", 2, "--only", "--list")
}

func TestHelpOfEach(t *testing.T) { labtest.HelpOfEach(t, &program) }

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
