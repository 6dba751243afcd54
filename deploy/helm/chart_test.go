// Package helm renders the chart with Helm's own engine, and reads what comes out with the types of Kubernetes and of the Prometheus operator: a field that
// these have not is an error.
package helm

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// typed is a new object of each kind that the chart may write.
var typed = map[string]func() any{
	"v1 ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1 Service":                              func() any { return new(core.Service) },
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// objects reads YAML documents strictly: by kind and name.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for _, one := range strings.Split("\n"+text, "\n---") {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(one), &head); err != nil {
			t.Fatalf("%v of\n%s", err, one)
		}
		if head.Kind == "" {
			continue // comments
		}
		make, known := typed[head.APIVersion+" "+head.Kind]
		if !known {
			t.Fatalf("%s %s: no such kind is expected", head.APIVersion, head.Kind)
		}
		object, name := make(), head.Kind+" "+head.Metadata.Name
		if err := yaml.UnmarshalStrict([]byte(one), object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = object
	}
	return all
}

// render is what `helm template RELEASE sluice -f values` writes.
func render(t *testing.T, release, values string) (map[string]any, error) {
	t.Helper()
	chart, err := loader.Load("sluice")
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: release, Namespace: "shop", Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			io.WriteString(&text, "---\n"+content+"\n")
		}
	}
	return objects(t, text.String()), nil
}

// check has sluice itself read the configuration of a ConfigMap, with secrets of its own in place of the cluster's.
func check(t *testing.T, config any) {
	t.Helper()
	folder := t.TempDir()
	text := strings.ReplaceAll(config.(*core.ConfigMap).Data["sluice.yaml"], "/etc/sluice/secret", folder)
	for name, content := range map[string]string{"sluice.yaml": text, "pop.secret": strings.Repeat("p", 44), "admin.token": strings.Repeat("a", 44)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("go", "-C", "../..", "run", "./cmd/sluice", "check", filepath.Join(folder, "sluice.yaml")).CombinedOutput(); err != nil {
		t.Errorf("sluice check: %v\n%s\n%s", err, said, text)
	}
}

// With its own values the chart writes what kubernetes/sluice.yaml has, so that neither is forgotten where the other changes. Only the image's tag is its own.
func TestDefaultsAreTheExample(t *testing.T) {
	got, err := render(t, "sluice", "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../kubernetes/sluice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := objects(t, string(text))
	edge := &got["Deployment sluice"].(*apps.Deployment).Spec.Template.Spec.Containers[0]
	if edge.Image != "sluice:0.1.0" || edge.ImagePullPolicy != core.PullIfNotPresent {
		t.Errorf("image %s, %s", edge.Image, edge.ImagePullPolicy)
	}
	edge.Image, edge.ImagePullPolicy = "sluice:latest", ""
	for name, w := range want {
		g := got[name]
		if c, is := w.(*core.ConfigMap); is {
			var a, b any
			if g == nil || yaml.Unmarshal([]byte(c.Data["sluice.yaml"]), &a) != nil || yaml.Unmarshal([]byte(g.(*core.ConfigMap).Data["sluice.yaml"]), &b) != nil ||
				!equality.Semantic.DeepEqual(a, b) {
				t.Errorf("%s: %+v, want %+v", name, b, a)
			}
			check(t, g)
			continue
		}
		if !equality.Semantic.DeepEqual(g, w) {
			t.Errorf("%s: the chart writes %+v, the example has %+v", name, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, the example has %d", len(got), len(want))
	}
}

// What values change, and nothing of another release's name.
func TestValues(t *testing.T) {
	got, err := render(t, "eu", `
replicas: 8
popName: fra1
limitMemory: 450MiB
service: {type: ClusterIP}
config:
  limits: {connections: 5000}
  origins: [{servers: ["http://shop:80"]}]
  rules: [{name: login, limit: 5, match: {path: /login}}]
memcached: {enabled: false, addresses: ["10.0.0.1:11211"]}
networkPolicy: {enabled: false}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"ConfigMap eu", "Deployment eu", "PodDisruptionBudget eu", "PrometheusRule eu", "Service eu", "Service eu-admin", "ServiceMonitor eu"}; !slices.Equal(names, want) {
		t.Errorf("objects %q, want %q", names, want)
	}
	check(t, got["ConfigMap eu"])
	config := got["ConfigMap eu"].(*core.ConfigMap).Data["sluice.yaml"]
	for _, want := range []string{"connections: 5000", "memory: 450MiB", "name: fra1", "- 10.0.0.1:11211", "path: /login"} {
		if !strings.Contains(config, want) {
			t.Errorf("no %q in\n%s", want, config)
		}
	}
	monitor := got["ServiceMonitor eu"].(*monitoring.ServiceMonitor)
	asked := got["Service eu-admin"].(*core.Service)
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if asked.Labels[label] != value || got["Service eu"].(*core.Service).Labels[label] == value {
			t.Errorf("the monitor looks for %s=%s; the services have %v and %v", label, value, asked.Labels, got["Service eu"].(*core.Service).Labels)
		}
	}
	if asked.Labels[monitor.Spec.JobLabel] != "sluice" || monitor.Spec.Endpoints[0].Port != asked.Spec.Ports[0].Name || monitor.Labels["release"] != "prometheus" {
		t.Errorf("monitor %+v of %+v", monitor.Spec, asked.Labels)
	}
	if groups := got["PrometheusRule eu"].(*monitoring.PrometheusRule).Spec.Groups; len(groups) == 0 || len(groups[0].Rules) == 0 {
		t.Errorf("alerts %+v", groups)
	}
}

// The chart carries the alerts with it, since a package of a chart has nothing from outside its folder.
func TestAlertsAreThoseOfPrometheus(t *testing.T) {
	const from, to = "../prometheus/sluice.rules.yml", "sluice/sluice.rules.yml"
	want, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what %s is: cd deploy/helm && cp %s %s (%v)", to, from, from, to, err)
	}
}

// A misspelled value, and one that the chart sets itself, are refused with the name.
func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 3": "replica",
		"config: {listen: ':80', origins: [{servers: ['http://a']}]}": "config",
		"config: {origins: null}":                                     "origins",
		"memcached: {enabled: false}":                                 "addresses",
		"memcached: {addresses: ['10.0.0.1:11211']}":                  "addresses",
		"limitMemory: 1G":                                             "limitMemory",
	} {
		if _, err := render(t, "sluice", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", values, err, want)
		}
	}
}
