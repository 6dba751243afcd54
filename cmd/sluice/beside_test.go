//go:build system

package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var anotherRelease = flag.String("beside", "", "the `PROGRAM` of another release, which runs beside this one: make beside; none: this one runs twice")

// What goes wrong if two releases do not understand each other: while a PoP is upgraded each source gets its limit on each side, a
// block holds on one, and an operator's order reaches half of the edges. Where a release means that, CHANGELOG says to upgrade all at once.
func TestBesideAnotherRelease(t *testing.T) {
	t.Parallel()
	node, secret, site := startMemcached(t), write(t, popKey), origin(t)
	program := func(path, id string) *process {
		p := launch(t, path, site, "--memcached", node, "--config", write(t, fmt.Sprintf("edge_id: %s\npop: {name: one, secret_file: %s}\n"+
			"source: {trust: [127.0.0.0/8]}\nrules: [{name: all, limit: 10, window: 1h, mitigation_timeout: 1h}]\n", id, secret)))
		return p
	}
	edges := []*process{program(os.Args[0], "this"), program(cmp.Or(*anotherRelease, os.Args[0]), "other")}
	meet(edges...)
	ask := func(p *process, source string) int {
		resp, _ := p.request("GET", p.front, "/", "", "X-Forwarded-For", source)
		return resp.StatusCode
	}
	for i, p := range edges {
		other, counted, blocked := edges[1-i], fmt.Sprintf("192.0.2.%d", 10+i), fmt.Sprintf("192.0.2.%d", 20+i)
		for range 8 {
			if got := ask(p, counted); got != 200 {
				t.Fatalf("%d within the limit", got)
			}
		}
		other.until("knowing what is counted beside it", func() bool {
			_, text := other.admin("GET", "/v1/sources/"+counted)
			return strings.Contains(text, `"remaining": 2`)
		})
		for n, want := range []int{200, 200, 429} {
			if got := ask(other, counted); got != want {
				t.Errorf("request %d of the source at the other edge: %d, want %d", 9+n, got, want)
			}
		}
		p.until("refusing whom the other has blocked", func() bool { return ask(p, counted) == 429 })

		if a := p.api("PUT", "/v1/mitigations/all/"+blocked, `{"for":"1h"}`); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		other.until("refusing whom an operator has blocked beside it", func() bool { return ask(other, blocked) == 429 })
		limit := 20 + i
		if a := p.api("PATCH", "/v1/rules/all", fmt.Sprintf(`{"limit":%d}`, limit)); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		other.until("having the limit that was changed beside it", func() bool { return other.api("GET", "/v1/rules/all", "").Limit == limit })
		if a := p.api("PATCH", "/v1/rules/all", `{"limit":10}`); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		other.until("having the limit again", func() bool { return other.api("GET", "/v1/rules/all", "").Limit == 10 })
		tried := fmt.Sprintf("/v1/tries/beside-%d", i)
		if a := p.api("POST", "/v1/tries", fmt.Sprintf(`{"name":"beside-%d","for":"1h","rule":{"limit":3}}`, i)); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		shows := func(p *process, ended bool) func() bool {
			return func() bool {
				_, text := p.admin("GET", tried)
				return strings.Contains(text, fmt.Sprintf(`"ended": %t`, ended))
			}
		}
		other.until("trying the rule that is tried beside it", shows(other, false))
		if a := other.api("DELETE", tried, ""); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		p.until("ending the try that was stopped beside it", shows(p, true))
	}
	for _, p := range edges {
		if forged := p.metric("sluice_tier_forged_total"); forged != "0" {
			t.Errorf("%s values of the other release were not authentic", forged)
		}
	}
}
