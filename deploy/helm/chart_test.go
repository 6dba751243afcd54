// Package helm renders the chart with Helm's own engine, and reads what comes out with the types of Kubernetes and of the Prometheus operator: a field that
// these have not is an error.
package helm

import (
	"bytes"
	"fmt"
	"io"
	"maps"
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

// By its own values the chart's objects fit together: what one names another has, each pod is guarded, and what the edges' configuration says of ports
// and nodes is so.
func TestDefaults(t *testing.T) {
	got, err := render(t, "sluice", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ConfigMap sluice", "Deployment sluice", "NetworkPolicy memcached", "NetworkPolicy sluice", "PodDisruptionBudget memcached",
		"PodDisruptionBudget sluice", "Service memcached", "Service sluice", "StatefulSet memcached"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Fatalf("objects %q, want %q", names, want)
	}
	edges, tier := got["Deployment sluice"].(*apps.Deployment).Spec, got["StatefulSet memcached"].(*apps.StatefulSet).Spec
	ports := make(map[string]int32) // of both, by name
	for app, pods := range map[string]core.PodTemplateSpec{"sluice": edges.Template, "memcached": tier.Template} {
		s, c := pods.Spec, pods.Spec.Containers[0]
		if g := s.SecurityContext; len(s.Containers) != 1 || !*g.RunAsNonRoot || g.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *s.AutomountServiceAccountToken {
			t.Errorf("%s: security of the pod: %+v", app, g)
		}
		if g := c.SecurityContext; *g.AllowPrivilegeEscalation || !*g.ReadOnlyRootFilesystem || !slices.Equal(g.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s: security of the container: %+v", app, g)
		}
		if c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: a probe and resources are wanted: %+v", app, c)
		}
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		labels := map[string]string{"app": app}
		service := got["Service "+app].(*core.Service).Spec
		if !maps.Equal(pods.Labels, labels) || !maps.Equal(service.Selector, labels) || len(pods.Annotations) > 0 ||
			!maps.Equal(got["PodDisruptionBudget "+app].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels, labels) ||
			!maps.Equal(got["NetworkPolicy "+app].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels, labels) {
			t.Errorf("%s: labels %v, annotations %v, the service selects %v", app, pods.Labels, pods.Annotations, service.Selector)
		}
	}
	if !maps.Equal(ports, map[string]int32{"http": 8080, "admin": 8081, "memcached": 11211}) {
		t.Errorf("ports %v", ports)
	}

	var froms []string // who may reach what
	for _, app := range []string{"sluice", "memcached"} {
		for _, in := range got["NetworkPolicy "+app].(*networking.NetworkPolicy).Spec.Ingress {
			from := "anybody"
			if len(in.From) == 1 && in.From[0].NamespaceSelector != nil {
				from = "namespace " + in.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			} else if len(in.From) == 1 {
				from = in.From[0].PodSelector.MatchLabels["app"]
			}
			froms = append(froms, in.Ports[0].Port.String()+" "+from)
		}
	}
	if want := []string{"http anybody", "admin namespace monitoring", "memcached sluice"}; !slices.Equal(froms, want) {
		t.Errorf("%q, want %q", froms, want)
	}

	edge := edges.Template.Spec.Containers[0]
	for path, p := range map[string]*core.Probe{"/readyz": edge.ReadinessProbe, "/healthz": edge.LivenessProbe} {
		if p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.String() != "admin" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	const notice, grace = 10, 20 // seconds: --notice, and what --grace is by itself
	if got := *edges.Template.Spec.TerminationGracePeriodSeconds; got <= notice+grace || !slices.Contains(edge.Args, "10s") {
		t.Errorf("a pod has %d s to end, by %q", got, edge.Args)
	}
	check(t, got["ConfigMap sluice"])
	var config struct {
		Listen, Admin string
		Source        any
		PoP           struct{ Memcached []string }
	}
	if err := yaml.Unmarshal([]byte(got["ConfigMap sluice"].(*core.ConfigMap).Data["sluice.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for i := range *tier.Replicas {
		nodes = append(nodes, fmt.Sprintf("memcached-%d.%s:11211", i, tier.ServiceName))
	}
	if config.Listen != ":8080" || config.Admin != "0.0.0.0:8081" || config.Source != nil || !slices.Equal(config.PoP.Memcached, nodes) {
		t.Errorf("%+v; pods %q", config, nodes)
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

// What clients of https, a registry of one's own and a cluster's rules about places need.
func TestHTTPS(t *testing.T) {
	got, err := render(t, "sluice", `
tls: {secretName: shop-tls, port: 8443}
ports: [{name: limits, port: 8083}]
imagePullSecrets: [{name: registry}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: edge, operator: Exists}]}]}}}
env: [{name: REGION, value: eu}]
volumes: [{name: lists, configMap: {name: lists}}]
volumeMounts: [{name: lists, mountPath: /etc/sluice/lists, readOnly: true}]
memcached: {pullPolicy: Always}
config:
  origins: [{servers: ["http://shop:80"]}]
  limit_api: {listen: ":8083", token_file: /etc/sluice/secret/limits.token}
  rules: [{name: login, limit: 5, match: {path: /login}}]
`)
	if err != nil {
		t.Fatal(err)
	}
	pod := got["Deployment sluice"].(*apps.Deployment).Spec.Template.Spec
	edge := pod.Containers[0]
	ports := make(map[string]int32)
	for _, p := range edge.Ports {
		ports[p.Name] = p.ContainerPort
	}
	mounts := make(map[string]string)
	for _, m := range edge.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range pod.Volumes {
		if mounts[v.Name] == "" {
			t.Errorf("volume %s is mounted nowhere", v.Name)
		}
		if v.Name == "tls" && v.Secret.SecretName != "shop-tls" {
			t.Errorf("certificates of %s", v.Secret.SecretName)
		}
	}
	if ports["https"] != 8443 || ports["limits"] != 8083 || len(pod.Volumes) != 4 || len(mounts) != 4 || edge.Env[0].Name != "REGION" ||
		pod.ImagePullSecrets[0].Name != "registry" || pod.Affinity == nil {
		t.Errorf("%+v", pod)
	}
	served := make(map[string]int32)
	for _, p := range got["Service sluice"].(*core.Service).Spec.Ports {
		if ports[p.TargetPort.String()] == 0 {
			t.Errorf("port %s leads to %s, which no container has", p.Name, p.TargetPort.String())
		}
		served[p.Name] = p.Port
	}
	if want := map[string]int32{"http": 80, "https": 8443, "limits": 8083}; !maps.Equal(served, want) {
		t.Errorf("ports %v, want %v", served, want)
	}
	if open := got["NetworkPolicy sluice"].(*networking.NetworkPolicy).Spec.Ingress[0].Ports; len(open) != 3 {
		t.Errorf("clients reach %v", open)
	}
	config := got["ConfigMap sluice"].(*core.ConfigMap).Data["sluice.yaml"]
	for _, want := range []string{"listen_tls: \":8443\"", mounts["tls"] + "/tls.crt", mounts["tls"] + "/tls.key"} {
		if !strings.Contains(config, want) {
			t.Errorf("no %q in\n%s", want, config)
		}
	}
	node := got["StatefulSet memcached"].(*apps.StatefulSet).Spec.Template.Spec
	if node.Containers[0].ImagePullPolicy != core.PullAlways || node.ImagePullSecrets[0].Name != "registry" {
		t.Errorf("%+v", node)
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
		"ports: [{name: http, port: 8082}]":                           "ports",
		"ports: [{name: more, port: 8443}]":                           "ports",
		"tls: {secretName: a}\nconfig: {tls: {folder: /a}}":           "config",
	} {
		if _, err := render(t, "sluice", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", values, err, want)
		}
	}
}
