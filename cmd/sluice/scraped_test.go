//go:build system

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What finds the pods of the chart, by its own values, gives them the job that alerts ask for.
func TestClusterIsScraped(t *testing.T) {
	t.Parallel()
	const app, pop = "sluice", "cluster"
	for file, want := range map[string]string{"values.yaml": "\npopName: " + pop + " ", "templates/edges.yaml": "{name: admin, containerPort: 8081}"} {
		text, err := os.ReadFile("../../deploy/helm/sluice/" + file)
		must(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
	scraped, err := os.ReadFile("../../deploy/prometheus/kubernetes.yml")
	must(t, err)
	// Debian's promtool is built without the discovery of Kubernetes.
	known := strings.NewReplacer("kubernetes_sd_configs: [{role: pod}]", "static_configs: [{targets: [a]}]", "[sluice.rules.yml]", "[]").Replace(string(scraped))
	if out, err := exec.Command("promtool", "check", "config", write(t, known)).CombinedOutput(); err != nil {
		t.Errorf("promtool (of the package prometheus): %v\n%s", err, out)
	}
	for _, want := range []string{"job_name: " + app, "regex: " + app + ";admin,", "target_label: pop, replacement: " + pop} {
		if !strings.Contains(string(scraped), want) {
			t.Errorf("kubernetes.yml has no %q", want)
		}
	}
	m := yamlDocuments[map[string]any](t, "prometheus/podmonitor.yaml")[0]
	if text := fmt.Sprint(m["spec"]); !strings.Contains(text, "jobLabel:app") || !strings.Contains(text, "map[matchLabels:map[app:"+app+"]]") || !strings.Contains(text, "port:admin") || !strings.Contains(text, "replacement:"+pop) {
		t.Errorf("podmonitor.yaml: %v", text)
	}
	rules, err := os.ReadFile("../../deploy/prometheus/sluice.rules.yml")
	must(t, err)
	for _, job := range regexp.MustCompile(`job=~?"([^"]*)"`).FindAllStringSubmatch(string(rules), -1) {
		if job[1] != app {
			t.Errorf("an alert asks for the job %q, and edges have %q", job[1], app)
		}
	}
}
