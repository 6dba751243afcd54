package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
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

	config, err := reader().Config("../../deploy/" + mounted["edge1:/etc/sluice/sluice.yaml"])
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
