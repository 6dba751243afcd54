package edge_test

import (
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// A client that says it would rather have a problem gets one, with the type that says why; others get the usual JSON.
func TestProblem(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1, window: 1h, response: {status: 420}}]\n")
	e.Get("/")
	for accept, want := range map[string]bool{"application/problem+json": true, "application/json;q=0.5, application/problem+json": true,
		"application/problem+json;q=0.5, application/json": false, "application/json, application/problem+json": false, "*/*": false, "": false, "text/html": false} {
		lines := []string{"Accept: " + accept}
		if accept == "" {
			lines = nil
		}
		resp, body := e.Get("/", lines...)
		h := resp.Header
		if resp.StatusCode != 420 || h.Get("Retry-After") == "" || h.Get("RateLimit") == "" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", accept, resp.StatusCode, h)
		}
		const problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":420,"violated-policies":["r"],"retry_after":`
		is := h.Get("Content-Type") == "application/problem+json" && h.Get("Vary") == "Accept" && strings.HasPrefix(body, problem)
		if is != want || !want && !strings.HasPrefix(body, `{"error":{"code":"rate_limited"`) {
			t.Errorf("%s: %v %s", accept, h, body)
		}
	}
}
