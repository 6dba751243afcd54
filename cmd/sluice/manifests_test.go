package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/cmd/sluice/internal/settings"
	"sluice/edge/config"
)

// yamlDocuments are the objects of a YAML file of deploy. A field that T has not is an error.
func yamlDocuments[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	must(t, err)
	for d := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField(), yaml.AllowDuplicateMapKey()); ; {
		var one T
		if err := d.Decode(&one); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
}

// A composition is what compose.yaml uses of Compose's fields: one that is misspelled is none of them.
type composition struct {
	Name     string
	Services map[string]composed
	Networks map[string]struct{ Internal bool }
	Secrets  map[string]struct{ Environment string }
}

type composed struct {
	Build         struct{ Context, Dockerfile string }
	Image         string
	Command       []string
	Ports         []string
	Volumes       []string
	Secrets       []string
	Networks      []string
	Environment   map[string]string
	DependsOn     []string `yaml:"depends_on"`
	Restart       string
	ReadOnly      bool     `yaml:"read_only"`
	CapDrop       []string `yaml:"cap_drop"`
	SecurityOpt   []string `yaml:"security_opt"`
	Ulimits       map[string]int
	StopGraceTime string `yaml:"stop_grace_period"`
}

// What the composition names is there: services, networks, secrets, files, ports. The dashboard is provisioned, with its data source, and what guards nobody
// is published on this machine alone.
func TestComposition(t *testing.T) {
	c := yamlDocuments[composition](t, "compose.yaml")[0]
	mounted := make(map[string]string) // place in a container: file
	edges, published := 0, make(map[string]string)
	for name, s := range c.Services {
		if (s.Image == "") == (s.Build.Dockerfile == "") {
			t.Errorf("%s: image %q, Dockerfile %q", name, s.Image, s.Build.Dockerfile)
		}
		if s.Build.Dockerfile != "" {
			edges++
			if _, err := os.Stat(filepath.Join("../../deploy", s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			if _, err := os.Stat("../../deploy/" + parts[0]); err != nil || len(parts) != 3 || parts[2] != "ro" {
				t.Errorf("%s: %s: %v", name, v, err)
			}
			mounted[name+":"+parts[1]] = parts[0]
		}
		for _, p := range s.Ports {
			host := p[:strings.LastIndex(p, ":")]
			if !strings.HasPrefix(host, "127.0.0.1:") || published[host] != "" {
				t.Errorf("%s: port %s, and %s", name, p, published[host])
			}
			published[host] = name
		}
		for _, d := range s.DependsOn {
			if _, there := c.Services[d]; !there {
				t.Errorf("%s: depends on %s", name, d)
			}
		}
		for _, n := range s.Networks {
			if _, there := c.Networks[n]; !there && n != "default" {
				t.Errorf("%s: network %s", name, n)
			}
		}
		for _, n := range s.Secrets {
			if c.Secrets[n].Environment == "" {
				t.Errorf("%s: secret %s", name, n)
			}
		}
	}
	if edges != 3 || !c.Networks["tier"].Internal {
		t.Errorf("%d edges, networks %v", edges, c.Networks)
	}

	config, err := settings.ReadConfig("../../deploy/" + mounted["edge1:/etc/sluice/sluice.yaml"])
	must(t, err)
	_, port, _ := strings.Cut(config.Admin, ":")
	for _, host := range config.PoP.Memcached {
		if name, _, _ := strings.Cut(host, ":"); len(c.Services[name].Networks) != 1 || c.Services[name].Networks[0] != "tier" {
			t.Errorf("node %s: networks %v", host, c.Services[name].Networks)
		}
	}
	for _, file := range []string{config.AdminTokenFile, config.PoP.SecretFile} {
		if name, ok := strings.CutPrefix(file, "/run/secrets/"); !ok || !slices.Contains(c.Services["edge1"].Secrets, name) {
			t.Errorf("%s is no secret of edge1", file)
		}
	}
	for i := 1; i <= 3; i++ {
		scraped, err := os.ReadFile("../../deploy/" + mounted["prometheus:/etc/prometheus/prometheus.yml"])
		if target := fmt.Sprintf(`"edge%d:%s"`, i, port); err != nil || !bytes.Contains(scraped, []byte(target)) {
			t.Errorf("Prometheus does not scrape %s: %v", target, err)
		}
	}
	if mounted["prometheus:/etc/prometheus/sluice.rules.yml"] != "./prometheus/sluice.rules.yml" {
		t.Errorf("mounted %v", mounted)
	}

	type sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
		}
	}
	if s := yamlDocuments[sources](t, "grafana/provisioning/datasources/prometheus.yaml")[0].Datasources[0]; s.URL != "http://prometheus:9090" || s.Type != "prometheus" || !s.IsDefault {
		t.Errorf("data source %+v", s)
	}
	type providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	p := yamlDocuments[providers](t, "grafana/provisioning/dashboards/sluice.yaml")[0].Providers[0]
	if mounted["grafana:"+p.Options.Path+"/sluice.json"] != "./grafana/sluice.json" || mounted["grafana:/etc/grafana/provisioning"] != "./grafana/provisioning" {
		t.Errorf("dashboards are looked for at %s, mounted %v", p.Options.Path, mounted)
	}
}

// A manifest is what kubernetes/sluice.yaml uses of the objects' fields: one that is misspelled is none of them.
type manifest struct {
	APIVersion, Kind string
	Metadata         metadata
	Data             map[string]string
	Spec             struct {
		Replicas                                            int
		Selector                                            json.RawMessage // of a Service: labels alone
		ServiceName, Type, ClusterIP, ExternalTrafficPolicy string
		PublishNotReadyAddresses                            bool
		Ports                                               []struct {
			Name             string
			Port, TargetPort any
		}
		Strategy struct {
			RollingUpdate struct{ MaxUnavailable, MaxSurge int }
		}
		Template struct {
			Metadata metadata
			Spec     pod
		}
		MaxUnavailable int
		PodSelector    selector
		PolicyTypes    []string
		Ingress        []struct {
			From  []struct{ PodSelector, NamespaceSelector *selector }
			Ports []struct{ Port string }
		}
	}
}

type metadata struct {
	Name                string
	Labels, Annotations map[string]string
}

type selector struct{ MatchLabels map[string]string }

type pod struct {
	AutomountServiceAccountToken  *bool
	TerminationGracePeriodSeconds int
	SecurityContext               struct {
		RunAsNonRoot                   bool
		RunAsUser, RunAsGroup, FSGroup int
		SeccompProfile                 struct{ Type string }
	}
	TopologySpreadConstraints []struct {
		MaxSkew                        int
		TopologyKey, WhenUnsatisfiable string
		LabelSelector                  selector
	}
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string }
		Secret    struct {
			SecretName  string
			DefaultMode int
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Ports       []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, LivenessProbe, ReadinessProbe *probe
	Resources                                   struct{ Requests, Limits map[string]string }
	SecurityContext                             struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Capabilities             struct{ Drop []string }
	}
	VolumeMounts []struct {
		Name, MountPath string
		ReadOnly        bool
	}
}

type probe struct {
	HTTPGet *struct {
		Path, Port  string
		HTTPHeaders []struct{ Name, Value string }
	}
	TCPSocket                                       *struct{ Port string }
	PeriodSeconds, TimeoutSeconds, FailureThreshold int
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	all := make(map[string]manifest)
	for _, object := range yamlDocuments[map[string]any](t, "kubernetes/sluice.yaml") {
		text, err := json.Marshal(object)
		must(t, err)
		var m manifest
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&m); err != nil {
			t.Fatalf("%v of %v: %v", object["kind"], object["metadata"], err)
		}
		all[m.Kind+" "+m.Metadata.Name] = m
	}
	return all
}

// The objects of the Kubernetes example fit together: what one names another has, each pod is guarded, and what the edge's configuration says of ports, files and
// nodes is so.
func TestKubernetes(t *testing.T) {
	all := manifests(t)
	versions := map[string]string{"ConfigMap": "v1", "Service": "v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1",
		"PodDisruptionBudget": "policy/v1", "NetworkPolicy": "networking.k8s.io/v1"}
	ports := make(map[string]map[string]int) // of the pods of an app, by name
	want := []string{"ConfigMap sluice"}
	for _, workload := range []string{"Deployment sluice", "StatefulSet memcached"} {
		m, there := all[workload]
		app := m.Metadata.Name
		want = append(want, workload, "PodDisruptionBudget "+app, "NetworkPolicy "+app, "Service "+app)
		s := m.Spec.Template.Spec
		if !there || !s.SecurityContext.RunAsNonRoot || s.SecurityContext.SeccompProfile.Type == "" || s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
			t.Errorf("%s: security of the pod: %+v", workload, s.SecurityContext)
		}
		ports[app] = make(map[string]int)
		for _, c := range s.Containers {
			if g := c.SecurityContext; g.AllowPrivilegeEscalation == nil || *g.AllowPrivilegeEscalation || !g.ReadOnlyRootFilesystem || !slices.Equal(g.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: security of the container: %+v", workload, g)
			}
			for _, p := range c.Ports {
				ports[app][p.Name] = p.ContainerPort
			}
			if c.ReadinessProbe == nil || c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" {
				t.Errorf("%s: a probe and resources are wanted: %+v", workload, c)
			}
		}
		if m.Spec.Template.Metadata.Labels["app"] != app {
			t.Errorf("%s: pods have labels %v", workload, m.Spec.Template.Metadata.Labels)
		}
	}
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("objects %q, want %q", names, want)
	}
	for name, m := range all {
		if m.APIVersion != versions[m.Kind] {
			t.Errorf("%s: apiVersion %s, want %s", name, m.APIVersion, versions[m.Kind])
		}
		labels := fmt.Sprintf(`{"matchLabels":{"app":"%s"}}`, m.Metadata.Name)
		if m.Kind == "Service" {
			labels = fmt.Sprintf(`{"app":"%s"}`, m.Metadata.Name)
		}
		if got := string(m.Spec.Selector); got != labels && m.Spec.Selector != nil || m.Kind == "NetworkPolicy" && m.Spec.PodSelector.MatchLabels["app"] != m.Metadata.Name {
			t.Errorf("%s: selects %s %v, want %s", name, got, m.Spec.PodSelector, labels)
		}
		for _, p := range m.Spec.Ports {
			if target, named := p.TargetPort.(string); named && ports[m.Metadata.Name][target] == 0 {
				t.Errorf("%s: no port %s", name, target)
			}
		}
	}

	policy := func(name, port string) (froms []string) { // who may reach a port
		for _, in := range all["NetworkPolicy "+name].Spec.Ingress {
			for _, p := range in.Ports {
				if ports[name][p.Port] == 0 {
					t.Errorf("policy of %s: no port %s", name, p.Port)
				}
				if p.Port == port && len(in.From) == 0 {
					froms = append(froms, "anybody")
				}
				for _, f := range in.From {
					if p.Port == port && f.PodSelector != nil {
						froms = append(froms, f.PodSelector.MatchLabels["app"])
					}
					if p.Port == port && f.NamespaceSelector != nil {
						froms = append(froms, "namespace "+f.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
					}
				}
			}
		}
		return froms
	}
	for _, p := range []struct {
		name, port string
		froms      []string
	}{{"sluice", "http", []string{"anybody"}}, {"sluice", "admin", []string{"namespace monitoring"}}, {"memcached", "memcached", []string{"sluice"}}} {
		if got := policy(p.name, p.port); !slices.Equal(got, p.froms) {
			t.Errorf("%s of %s is reached by %q, want %q", p.port, p.name, got, p.froms)
		}
	}

	c := configOf(t, all)
	edge := all["Deployment sluice"].Spec.Template
	if _, port, _ := strings.Cut(c.Admin, ":"); port != strconv.Itoa(ports["sluice"]["admin"]) || len(c.Source.Trust) > 0 {
		t.Errorf("admin %s, ports %v, trust %v", c.Admin, ports["sluice"], c.Source.Trust)
	}
	if _, port, _ := strings.Cut(c.Listen[0].Address, ":"); port != strconv.Itoa(ports["sluice"]["http"]) {
		t.Errorf("listen %s, ports %v", c.Listen[0].Address, ports["sluice"])
	}
	mounts := make(map[string]string) // folder: what is there
	for _, m := range edge.Spec.Containers[0].VolumeMounts {
		for _, v := range edge.Spec.Volumes {
			if v.Name == m.Name && m.ReadOnly {
				mounts[m.MountPath] = "config map " + v.ConfigMap.Name + ", secret " + v.Secret.SecretName
			}
		}
	}
	f, err := parseFlags(edge.Spec.Containers[0].Args)
	must(t, err)
	if mounts[filepath.Dir(f.config)] != "config map sluice, secret " || mounts[filepath.Dir(c.AdminTokenFile)] != "config map , secret sluice" ||
		mounts[filepath.Dir(c.PoP.SecretFile)] != "config map , secret sluice" {
		t.Errorf("mounts %v; the edge reads %s, %s and %s", mounts, f.config, c.AdminTokenFile, c.PoP.SecretFile)
	}
	if stop := time.Duration(edge.Spec.TerminationGracePeriodSeconds) * time.Second; stop <= f.notice+f.grace {
		t.Errorf("a pod has %v to end, and takes %v and %v", stop, f.notice, f.grace)
	}
	for kind, p := range map[string]*probe{"/readyz": edge.Spec.Containers[0].ReadinessProbe, "/healthz": edge.Spec.Containers[0].LivenessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != kind || p.HTTPGet.Port != "admin" {
			t.Errorf("%s: %+v", kind, p)
		}
	}
	tier := all["StatefulSet memcached"]
	var nodes []string
	for i := range tier.Spec.Replicas {
		nodes = append(nodes, fmt.Sprintf("%s-%d.%s:%d", tier.Metadata.Name, i, tier.Spec.ServiceName, ports["memcached"]["memcached"]))
	}
	if !slices.Equal(c.PoP.Memcached, nodes) {
		t.Errorf("nodes %v, pods %v", c.PoP.Memcached, nodes)
	}
}

// The image has the certificates of public CAs where Go looks for them, or no origin over https can be reached, and they come from a stage that has them.
func TestImageHasCertificates(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	must(t, err)
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	const file = "/etc/ssl/certs/ca-certificates.crt" // the first of certFiles in crypto/x509; golang:1.26 is Debian, with its ca-certificates
	if !found || !regexp.MustCompile(`(?m)^COPY --from=build `+file+` `+file+`$`).MatchString(last) || !strings.Contains(string(text), "FROM golang:1.26 AS build\n") {
		t.Errorf("the image has no CA certificates:\n%s", text)
	}
}

// configOf reads the configuration of the edges.
func configOf(t *testing.T, all map[string]manifest) *config.Config {
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	must(t, os.WriteFile(file, []byte(all["ConfigMap sluice"].Data["sluice.yaml"]), 0o600))
	c, err := settings.ReadConfig(file)
	must(t, err)
	return c
}
