package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"sluice/edge/metric"
	"sluice/edge/operator"
)

// A build is what a program was built from. What its build did not note is "unknown".
type build struct {
	Version string `json:"version"` // (devel) without its brackets, where no version was given
	Commit  string `json:"commit"`
	Changed bool   `json:"changed"` // files of the commit
	Go      string `json:"go"`
}

// thisBuild is that of this program.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{Version: "unknown", Commit: "unknown", Go: "unknown"}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: strings.Trim(info.Main.Version, "()"), Commit: "unknown",
		Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

// version is this program's version, in words.
func version() string { return thisBuild().String() }

// String is the version, the commit and the Go that it was built with.
func (b build) String() string {
	commit, changed := b.Commit[:min(12, len(b.Commit))], ""
	if b.Changed {
		changed = " with changes"
	}
	// Between releases Go's version has it; other edges get the first 64 bytes of this text
	if strings.Contains(b.Version, commit) {
		return b.Version + changed + ", " + b.Go
	}
	return b.Version + ", commit " + commit + changed + ", " + b.Go
}

// Collect is one metric, which is always 1.
func (b build) Collect(to metric.Sink) {
	to.Gauge(1, "sluice_build_info", "What this process was built from; always 1.", "version",
		b.Version, "commit", b.Commit, "go", b.Go)
}

func cmdVersion(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == "--json":
		text, err := json.MarshalIndent(thisBuild(), "", "  ")
		if err != nil { // no field of a build can be
			panic(err)
		}
		fmt.Fprintln(stdout, string(text))
	case len(args) > 0:
		return operator.Misuse(stderr, errors.New("version wants --json or nothing"))
	default:
		fmt.Fprintln(stdout, "sluice", version())
	}
	return 0
}
