package admin

import (
	_ "embed"
	"net/http"
)

// page is the dashboard: one file that asks the API for everything else. It holds nothing secret, so it is served without a
// token; it asks the operator for one if the API does.
//
//go:embed dashboard.html
var page []byte

func dashboard(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page)
}
