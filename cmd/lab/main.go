// Sluice-trial tries the product itself: whether edges keep what is promised of them while things
// break, and what requests and attacks cost beside other servers.
package main

import (
	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/live"
)

var program = cli.Program{Name: "sluice-trial", Commands: []cli.Command{
	{Name: "lab", Does: "starts points of presence on this machine and checks a promise (--check)",
		Run: cmdLab},
	{Name: "chaos",
		Does: "tells stories of what breaks, and whether clients notice more than is promised",
		Run:  cmdChaos},
	{Name: "soak", Does: "whether anything is lost, or grows, in hours with a fault a minute",
		Run: cmdSoak},
	{Name: "bench-peers", Does: "what a request costs here, and at nginx and HAProxy",
		Run: cmdBenchPeers},
	{Name: "rest", Does: "what an edge costs that hardly anybody asks, alone and with memcached",
		Run: cmdRest},
	{Name: "http2-attacks", Does: "what attacks on HTTP/2 cost here, and at nginx and HAProxy",
		Run: cmdHTTP2Attacks},
	{Name: "flood",
		Does: "what new connections of blocked sources cost here, in the kernel, and at nginx and HAProxy", Run: cmdFlood},
	{Name: "bench-rls",
		Does: "what a call of Envoy's rate limit service costs here, and at envoyproxy/ratelimit",
		Run:  cmdBenchRLS},
	{Name: "h2spec", Does: "whether the edge passes h2spec, and answers others after each case",
		Run: cmdH2Spec},
	{Name: "pace",
		Does: "how many requests a second the load generator sends on one core, and how late",
		Run:  cmdPace},
	{Name: "ratelimit-proxy",
		Does: "the proxy before envoyproxy/ratelimit of a lab that compares limiters",
		Run:  cmdRatelimitProxy},
	{Name: "bare-proxy", Does: "the least that a proxy made with fasthttp can do, for bench-peers",
		Run: cmdBareProxy},
	{Name: "origin", Does: "the HTTP origin behind the edges of a trial", Run: live.Origin},
}}

func main() { program.Main() }
