package bench

import (
	"net"

	"github.com/valyala/fasthttp"
)

// ServeBaselineProxy is the least that a reverse proxy made with fasthttp can do, to compare edges with: no limit, no header rules, no
// timeouts. If refuse, it answers 429 to every request.
func ServeBaselineProxy(ln net.Listener, origin string, refuse bool) error {
	client := &fasthttp.HostClient{Addr: origin, MaxConns: 4096}
	body := []byte(`{"error":{"code":"rate_limited"}}` + "\n")
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		if refuse {
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			ctx.Response.Header.Set("Retry-After", "60")
			ctx.SetContentType("application/json")
			ctx.SetBody(body)
			return
		}
		if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
			ctx.SetStatusCode(fasthttp.StatusBadGateway)
		}
	}}
	return s.Serve(ln)
}
