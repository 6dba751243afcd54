package rival

import (
	"debug/buildinfo"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// Domain and Descriptor are what a proxy asks the service about a request.
const (
	Domain     = "lab"
	Descriptor = "remote_address"
)

// units are the windows that envoyproxy/ratelimit knows.
var units = map[time.Duration]string{time.Second: "second", time.Minute: "minute",
	time.Hour: "hour", 24 * time.Hour: "day"}

// envoy starts a proxy and a rate limit service for each instance, all services over the same
// memcached nodes. A service reads a counter, answers, and increments in the background; a proxy
// waits for the answer, and lets pass where there is none, as Envoy does unless told otherwise.
func (s *starter) envoy() error {
	unit, ok := units[s.Window]
	if !ok {
		return fmt.Errorf("loadgen: envoy-ratelimit: it has no window of %v: give a second, a minute, an hour or a day (--window 1m)", s.Window)
	}
	program, err := process.Find(s.RateLimit,
		"build it with make ratelimit, name it with --ratelimit, or leave envoy-ratelimit out of --limiter")
	if err != nil {
		return err
	}
	memcached, err := process.Find("memcached",
		"install it (apt-get install memcached), or leave envoy-ratelimit out of --limiter")
	if err != nil {
		return err
	}
	env, err := process.Find("env", "it comes with coreutils")
	if err != nil {
		return err
	}
	if _, err := process.Find(s.Proxy[0], "build it with make build"); err != nil {
		return err
	}
	proxies, services, tier := Part{Name: "proxy"}, Part{Name: "envoyproxy/ratelimit",
		Version: moduleVersion(program)}, Part{Name: "memcached"}
	if tier.Version, err = process.Version(s.ctx, memcached, "-V"); err != nil {
		return err
	}
	if err := s.serveOrigin(); err != nil {
		return err
	}
	var nodes []string
	for i := range s.Memcached {
		at := s.next()
		p := &process.Process{Name: fmt.Sprint("memcached/", i), Path: memcached, AsNobody: true,
			Args: []string{"-l", at.Addr().String(), "-p", fmt.Sprint(at.Port()), "-U", "0", "-m",
				"64"}}
		if err := s.launch(p, func() error { return scrape.MemcachedAnswers(at) }); err != nil {
			return err
		}
		nodes, tier.PIDs = append(nodes, at.String()), append(tier.PIDs, p.PID())
	}
	config, err := s.file(filepath.Join("ratelimit", "config", "config.yaml"),
		ratelimitConfig(unit, s.Limit))
	if err != nil {
		return err
	}
	for i, at := range s.targets() {
		service, http, debug := s.next(), s.next(), s.next()
		p := &process.Process{Name: fmt.Sprint("ratelimit/", i), Path: env,
			Args: append(ratelimitEnvironment(filepath.Dir(filepath.Dir(config)), nodes, service,
				http, debug), program)}
		if err := s.launch(p, listens(service)); err != nil {
			return err
		}
		services.PIDs = append(services.PIDs, p.PID())
		p = &process.Process{Name: fmt.Sprint("proxy/", i), Path: s.Proxy[0],
			Args: append(slices.Clone(s.Proxy[1:]), "--listen", at.String(), "--service",
				service.String(), "--origin", s.origin.String())}
		if err := s.launch(p, listens(at)); err != nil {
			return err
		}
		proxies.PIDs = append(proxies.PIDs, p.PID())
	}
	s.site.Parts = []Part{services, tier, proxies}
	s.site.Configured = fmt.Sprintf("%d requests per %s and %s, in windows of the clock, a service for each proxy, over %d memcached; the proxies are ours, in Envoy's place",
		s.Limit, unit, Descriptor, s.Memcached)
	return nil
}

func ratelimitConfig(unit string, limit uint32) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n  - key: %s\n    rate_limit: {unit: %s, requests_per_unit: %d}\n", Domain, Descriptor, unit, limit)
}

// ratelimitEnvironment configures a service as its documentation says, for memcached: an idle
// connection for each call of a busy moment, and no statsd.
func ratelimitEnvironment(root string, nodes []string, service, http,
	debug netip.AddrPort) []string {
	return []string{
		"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" +
			strings.Join(nodes, ","), "MEMCACHE_MAX_IDLE_CONNS=64",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR", "RUNTIME_ROOT=" +
			root, "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false",
		"HOST=" + http.Addr().String(), fmt.Sprint("PORT=", http.Port()), "DEBUG_HOST=" +
			debug.Addr().String(), fmt.Sprint("DEBUG_PORT=", debug.Port()),
		"GRPC_HOST=" + service.Addr().String(), fmt.Sprint("GRPC_PORT=", service.Port()),
	}
}

// moduleVersion is the version of envoyproxy/ratelimit that an executable was built from, as Go
// wrote it there.
func moduleVersion(path string) string {
	const module = "github.com/envoyproxy/ratelimit"
	f, err := os.Open(path)
	if err != nil {
		return "of unknown version"
	}
	defer f.Close()
	info, err := buildinfo.Read(f)
	if err != nil {
		return "of unknown version"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return "of unknown version"
}
