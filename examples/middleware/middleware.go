// Middleware limits the clients of a program's own net/http server, together with all others that
// are given the same nodes and secret: 30 requests in ten seconds, over all of them.
//
//	POP_SECRET=hard-to-guess middleware --listen 127.0.0.1:8001 --memcached 127.0.0.1:11211
//
// The module's path, sluice, is not a domain yet: another module's go.mod has to replace it by a
// checkout.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"sluice/edge/embed"
)

func main() {
	listen := pflag.String("listen", "127.0.0.1:8001", "`address` to serve on")
	nodes := pflag.StringSlice("memcached", nil, "`addresses` of the nodes; none: it counts alone")
	pflag.Parse()
	limiter, err := embed.New(embed.Config{
		PoP: "example", Nodes: *nodes, Secret: []byte(os.Getenv("POP_SECRET")),
		Rules: []embed.Rule{{Name: "everything", Limit: 30, Window: 10 * time.Second}},
	})
	if err != nil {
		log.Fatal(err)
	}
	page := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
	go func() { log.Fatal(http.ListenAndServe(*listen, limited(limiter, page))) }()
	ended, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	<-ended.Done()
	_ = limiter.Close() // the hits that it could not report are lost to the others
}

// limited refuses who is over the limit, and passes on all others.
func limited(limiter *embed.Limiter, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, "the client has no address", http.StatusBadRequest)
			return
		}
		verdict := limiter.Decide(client.Addr())
		verdict.Headers(w.Header().Set)
		if verdict.Refused {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next(w, r)
	})
}
