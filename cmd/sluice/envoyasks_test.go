//go:build system

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	actions "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc/credentials/insecure"
)

// What Envoy sends under its half in deploy is what the rules of the example are about: the requests are made of the actions there, as Envoy's documentation
// has it, and not by Envoy.
func TestEnvoyAsksWhatTheExampleKnows(t *testing.T) {
	t.Parallel()
	half, err := os.ReadFile("../../deploy/envoy/rate-limit-service.yaml")
	must(t, err)
	envoy, err := readEnvoy(half)
	must(t, err)
	front := new(manager.HttpConnectionManager)
	must(t, envoy.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(front))
	filter := new(ratelimit.RateLimit)
	must(t, front.HttpFilters[0].GetTypedConfig().UnmarshalTo(filter))

	example, err := os.ReadFile("../../examples/envoy-rate-limit-service.yaml")
	must(t, err)
	_, rules, _ := strings.Cut(string(example), "\nrules:")
	addr := freePort(t)
	start(t, origin(t), "--config", write(t, "rate_limit_service: {listen: "+addr+"}\nrules:"+rules))
	p := dialService(t, addr, insecure.NewCredentials())
	for _, test := range []struct {
		headers map[string]string
		want    string // the limits, by descriptor
	}{
		{map[string]string{":path": "/"}, "600 none"},
		{map[string]string{":path": "/login?next=a"}, "600 10"},
		{map[string]string{":path": "/login", "x-plan": "free", "x-api-key": "k"}, "600 10 1000"},
		{map[string]string{":path": "/", "x-plan": "gold", "x-api-key": "k"}, "600 none 20000"},
	} {
		var texts []string
		for _, limit := range front.GetRouteConfig().VirtualHosts[0].RateLimits {
			if text, whole := described(t, limit.Actions, "192.0.2.1", test.headers); whole {
				texts = append(texts, text)
			}
		}
		a, err := p.ask(describe(filter.Domain, texts...))
		must(t, err)
		var got []string
		for _, s := range a.Statuses {
			if s.CurrentLimit == nil {
				got = append(got, "none")
			} else {
				got = append(got, fmt.Sprint(s.CurrentLimit.RequestsPerUnit))
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v, sent as %q: limits %v, want %s", test.headers, texts, got, test.want)
		}
	}
}

// described is the descriptor that Envoy makes by some actions; none if a header is missing.
func described(t *testing.T, list []*actions.RateLimit_Action, client string, headers map[string]string) (text string, whole bool) {
	var entries []string
	for _, a := range list {
		switch h := a.GetRequestHeaders(); {
		case a.GetRemoteAddress() != nil:
			entries = append(entries, "remote_address="+client)
		case h == nil:
			t.Fatalf("%v: an action that this test does not know", a)
		case headers[h.HeaderName] == "":
			return "", false
		default:
			entries = append(entries, h.DescriptorKey+"="+headers[h.HeaderName])
		}
	}
	return strings.Join(entries, " "), true
}
