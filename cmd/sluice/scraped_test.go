//go:build system

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What finds the pods of the Kubernetes example gives them the job that alerts ask for, and no annotation has another job scrape them as well.
func TestClusterIsScraped(t *testing.T) {
	t.Parallel()
	edge := manifests(t)["Deployment sluice"].Spec.Template
	app, pop := edge.Metadata.Labels["app"], "cluster"
	if len(edge.Metadata.Annotations) > 0 || !slices.ContainsFunc(edge.Spec.Containers[0].Ports, func(p struct {
		Name          string
		ContainerPort int
	}) bool {
		return p.Name == "admin"
	}) {
		t.Errorf("annotations %v, ports %v", edge.Metadata.Annotations, edge.Spec.Containers[0].Ports)
	}
	config := configOf(t, manifests(t))
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
	if config.PoP.Name != pop {
		t.Errorf("the PoP is %q, and edges are scraped as of %q", config.PoP.Name, pop)
	}
}
