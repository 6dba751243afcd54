package main

import (
	"context"
	"os"
	"testing"

	"github.com/goccy/go-yaml"
)

// Traefik's configuration has the fields that we know of Traefik's, and no others, and names what it refers to.
func TestTraefikConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../deploy/traefik/check.yaml")
	must(t, err)
	var c struct {
		HTTP struct {
			Middlewares map[string]struct {
				Headers *struct {
					CustomRequestHeaders map[string]string `yaml:"customRequestHeaders"`
				}
				ForwardAuth *struct {
					Address            string
					TrustForwardHeader bool `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			}
			Routers map[string]struct {
				Rule        string
				Middlewares []string
				Service     string
			}
			Services map[string]struct {
				LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
			}
		}
	}
	must(t, yaml.UnmarshalContext(context.Background(), text, &c, yaml.Strict()))
	router := c.HTTP.Routers["all"]
	for _, m := range router.Middlewares {
		if of, there := c.HTTP.Middlewares[m]; !there || of.Headers == nil && of.ForwardAuth == nil {
			t.Errorf("there is no middleware %s", m)
		}
	}
	if a := c.HTTP.Middlewares["sluice"].ForwardAuth; a == nil || a.Address != "http://127.0.0.1:8080/check" || a.TrustForwardHeader {
		t.Errorf("%+v", a)
	}
	if len(c.HTTP.Services[router.Service].LoadBalancer.Servers) != 1 {
		t.Errorf("there is no service %s", router.Service)
	}
}
