package bench

import (
	"net"

	"github.com/valyala/fasthttp"
)

// ServeBaselineProxy is the least that a reverse proxy made with fasthttp can do, to compare edges
// with: no limit, no header rules, no timeouts. If refuse, it answers 429 to every request, always
// the same and as much as the edge says: what a refusal costs where fasthttp serves and nothing is
// checked, counted or judged.
func ServeBaselineProxy(ln net.Listener, origin string, refuse bool) error {
	client := &fasthttp.HostClient{Addr: origin, MaxConns: 4096}
	body := []byte(`{"error":{"code":"rate_limited","rule":"sources","message":"Too many requests. Try again in 60 seconds.","retry_after":60}}` + "\n")
	s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		if refuse {
			h := &ctx.Response.Header
			h.DisableNormalizing()
			h.SetStatusCode(fasthttp.StatusTooManyRequests)
			h.SetContentType("application/json")
			h.Add("RateLimit-Policy", `"sources";q=1;w=60`)
			h.Add("RateLimit", `"sources";r=0;t=60`)
			h.Add("X-RateLimit-Limit", "1")
			h.Add("X-RateLimit-Remaining", "0")
			h.Add("X-RateLimit-Reset", "1800000000")
			h.Add("Cache-Control", "no-store")
			h.Add("Retry-After", "60")
			ctx.Response.SetBodyRaw(body)
			return
		}
		if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
			ctx.SetStatusCode(fasthttp.StatusBadGateway)
		}
	}}
	return s.Serve(ln)
}
