package main

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/pflag"
)

// demonstrate sets what the command line left open to a mixed attack of 25 s on what can be had here: two memcached nodes
// and three edges, or, without a memcached, one edge that counts alone.
func (f *labFlags) demonstrate(flags *pflag.FlagSet) error {
	settings := [][2]string{
		{"workload", "mixed"}, {"duration", "25s"}, {"limit", "60"}, {"window", "5s"}, {"mitigation-timeout", "5s"},
		{"html", "report.html"}, {"edges", "3"}, {"memcached", "2"},
	}
	if _, err := exec.LookPath("memcached"); err != nil && !flags.Changed("memcached") {
		fmt.Fprintln(os.Stderr, "there is no memcached on the PATH: one edge with the embedded tier instead of three that share two nodes")
		settings = append(settings[:len(settings)-2], [][2]string{{"edges", "1"}, {"memcached", "0"}}...)
	}
	for _, s := range settings {
		if s[0] == "workload" && flags.Changed("trace") || flags.Changed(s[0]) {
			continue
		}
		if err := flags.Set(s[0], s[1]); err != nil {
			return fmt.Errorf("demo: --%s %s: %w", s[0], s[1], err)
		}
	}
	return nil
}
