package main

import (
	"testing"

	"sluice/cmd/internal/labtest"
)

func TestCommandLines(t *testing.T) {
	f := labtest.CommandLine(t, &program)
	f("", 2, "Usage", "replay", "lab", "origin")
	f("help", 0, "Usage")
	f("explode", 2, `"explode"`, "help")

	f("compare", 2, "--trace FILE")
	f("compare --workload steady --edges 0", 2, "--edges 0")
	f("compare --workload steady --edges 65", 2, "--edges 65", "1 to 64")
	f("compare --workload steady --rtt -1ms", 2, "--rtt -1ms")
	f("compare --workload steady --sync 0", 2, "--sync 0s")
	f("compare --workload steady --lease 101", 2, "--lease 101", "100")
	f("compare --workload steady --mode dreaming", 2, "dreaming")
	f("compare --workload steady --limit 0", 2, "limit 0")
	f("compare --workload steady --estimate perhaps", 2, "perhaps")
	f("compare --trace /no/such/file.log", 1, "/no/such/file.log")

	f("accuracy --seeds 0", 2, "--seeds 0")
	f("simulate --workload steady --in-order", 2, "--in-order", "published-bursty")

	f("what-if", 2, "--trace FILE")
	f("what-if --trace /no/such/file.log", 1, "/no/such/file.log")
	f("what-if --workload steady --fold", 2, "--fold", "addresses")
	f("what-if --workload steady --limit 0", 2, "--limit 0")
	f("what-if --workload steady --window 10ms", 2, "--window 10ms")
	f("what-if --workload steady --sub-windows 5", 2, "--sub-windows 5")
	f("what-if --workload steady --mitigation-timeout 25h", 2, "--mitigation-timeout 25h")
	f("what-if --workload steady --estimate perhaps", 2, "perhaps")
	f("what-if --workload steady --good 300.1.2.3", 2, "300.1.2.3", "192.0.2.0/24")
	f("what-if --workload steady --curve login", 2, "--curve login", "default")
	f("what-if --workload steady --top 0", 2, "--top 0")
	f("what-if --workload steady --config /no/such/file.yaml", 1, "/no/such/file.yaml", "no such file")

	f("origin --listen", 2, "--listen", "--help")
	f("origin --status 99", 2, "--status 99", "200 to 599")
	f("origin --size -1", 2, "--size -1")
	f("origin --delay 2h", 2, "--delay")
	f("origin extra", 2, `"extra"`)
	f("origin --listen 127.0.0.1:99999", 1, "127.0.0.1:99999", "--listen")

	f("replay", 2, "--pop HOST:PORT")
	f("replay --pop nonsense --workload steady", 2, "nonsense", "HOST:PORT")
	f("replay --pop 127.0.0.1:1", 2, "--trace FILE", "--workload NAME")
	f("replay --pop 127.0.0.1:1 --workload none-such", 2, "none-such")
	f("replay --pop 127.0.0.1:1 --trace /no/such/file.log", 1, "/no/such/file.log")
	f("replay --pop 127.0.0.1:1 --workload steady --speed 0", 2, "--speed 0")
	f("replay --pop 127.0.0.1:1 --workload steady --per-connection 0", 2, "--per-connection 0")
	f("replay --pop 127.0.0.1:1 --workload steady --source pigeon", 2, "pigeon", "loopback, xff or proxy")
	f("replay --pop 127.0.0.1:1 --workload steady --limit 0", 2, "limit 0")
	f("replay --pop 127.0.0.1:1 --workload steady --limit 1,2", 2, "one each")
	f("replay --pop 127.0.0.1:1 --workload steady --http2 --streams 0", 2, "--streams 0")
	f("replay --pop https://127.0.0.1:1 --workload steady", 2, "--http2")
	f("replay --pop https://127.0.0.1:1,127.0.0.1:2 --http2 --workload steady", 2, "of all edges, or of none")
	f("replay --pop 127.0.0.1:1 --ca /no/such/file --http2 --workload steady", 2, "--ca /no/such/file")
	f("replay --pop https://127.0.0.1:1 --ca /no/such/file --http2 --workload steady", 1, "/no/such/file")
	f("replay --pop https://127.0.0.1:1 --http2 --workload steady --rate 50 --duration 100ms", 1, "no answer from https://127.0.0.1:1", "connection refused")
	f("replay --pop 127.0.0.1:1 --workload steady --rate 50 --duration 100ms", 1, "no answer from 127.0.0.1:1", "connection refused")

	f("lab --edges 0 --workload steady", 2, "--edges 0")
	f("lab --pops 0 --workload steady", 2, "--pops 0")
	f("lab --memcached -1 --workload steady", 2, "--memcached -1")
	f("lab --on-store-failure maybe --workload steady", 2, "maybe", "closed")
	f("lab --workload steady --mode dreaming", 2, "dreaming")
	f("lab --workload steady --window 10ms", 2, "window 10ms")
	f("lab --workload steady --estimate perhaps", 2, "perhaps")
	f("lab --workload steady --fault explode", 2, "explode", "20s kill memcached/0")
	f("lab --sluice /no/such/sluice --workload steady", 1, "/no/such/sluice", "make build")
	f("lab", 2, "--trace FILE")
	f("lab --wall --workload flood --pops 2", 2, "--wall, --pops 2", "one PoP")
	f("lab --wall --workload flood --edges 9", 2, "--wall, --edges 9", "at most 8")
	f("lab --wall --workload flood --source xff", 2, "--wall, --source xff", "peers alone")
	f("lab --wall --workload flood --source proxy", 2, "--wall, --source proxy", "peers alone")
	f("lab --wall --workload flood --http2", 2, "--wall, --http2", "new ones alone")
	f("lab --wall --workload flood --mode estimator", 2, "--wall, --mode estimator", "nobody is blocked")
	f("lab --wall --workload flood --mitigation-timeout 0", 2, "--wall, --mitigation-timeout 0", "throttled")
	f("lab --wall --workload flood --limiter nginx", 2, "--wall", "sluice alone")
	f("lab --workload steady --limiter apache", 2, "--limiter apache", "nginx, haproxy, envoy-ratelimit")
	f("lab --workload steady --limiter nginx --fault 1s,kill,edge/0", 2, "--fault", "20s kill memcached/0")
	f("lab --workload steady --limiter nginx,sluice --pops 2", 2, "--pops", "sluice alone")
	f("lab --workload steady --limiter nginx --http2", 2, "--http2", "sluice alone")
	f("lab --workload steady --limiter nginx --source xff", 2, "--source xff", "loopback")
	f("lab --workload steady --limiter nginx --mode estimator", 2, "--mode estimator", "no estimates")
	f("lab --workload steady --limiter envoy-ratelimit --ratelimit /no/such/ratelimit", 1, "/no/such/ratelimit", "make ratelimit")
	f("lab --workload steady --limiter envoy-ratelimit --window 10s", 1, "10s", "--window 1m")
	f("lab --pops 2 --workload steady --flap nonsense", 2, "--flap", "nonsense")

	f("simulate --workload steady --edges 2 --fault explode", 2, "explode")
	f("simulate --workload steady --edges 2 --fault 1s,kill,memcached/0", 2, "20s kill memcached/0")
	f("simulate --workload steady --edges 40 --pops 2", 2, "--pops 2", "at most 64")
}

func TestHelpOfEach(t *testing.T) { labtest.HelpOfEach(t, &program) }

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
