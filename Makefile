# The habits of this repository, each one command. They need Go alone, unless they say what else; that they install, and say so.

GO ?= go
FUZZTIME ?= 200000x
BENCH ?= .
BENCHTIME ?= 1s
LOGS ?=
LONG ?=
FLAGS ?=
SEED ?= 1
SPELLINGS ?= 8000
D ?= 1h
EVERY ?= 1m
REV ?= $(or $(shell git describe --tags --abbrev=0 2>/dev/null),HEAD~20)

export GO LOGS
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: build lab demo test test-system beside nightly properties traps needs spellings race fuzz bench lint accuracy accuracy-short breaks bench-peers bench-rls chaos soak ratelimit http2-attacks h2spec figures release

build: # bin/sluice, bin/sluice-wall and bin/sluice-loadgen
	$(GO) build -o bin/ ./cmd/...

lab: build # the laboratory beside them, bin/sluice-trial: what tries the product
	cd cmd/lab && $(GO) build -o ../../bin/sluice-trial .

# With -tags minimal the two programs link a third of what those of make build do, which is what compiling for the first time
# takes. The settings that need the rest they refuse by name (TestMinimal).
demo: # a PoP, an origin and an attack, on this machine
	$(GO) build -tags minimal -ldflags='-s -w' -o bin/demo/ ./cmd/sluice ./cmd/sluice-loadgen
	@bin/demo/sluice-loadgen lab --demo || { code=$$?; [ $$code -eq 3 ] || exit $$code; }

# Properties are held against the same inputs each time; make race takes others. make lint vets.
test test-system: export RAPID_SEED ?= 1
# A program with the race detector sleeps for a second before it ends, unless told otherwise.
race: export GORACE ?= atexit_sleep_ms=10

test: # the tests that need Go alone: they start no other program, and wait for nothing but themselves
	$(GO) test -vet=off -shuffle=on -timeout 15m ./...
	$(GO) test -vet=off -tags minimal -shuffle=on ./cmd/sluice/...
	$(GO) test -vet=off -tags minimal -run '^TestMinimal' ./cmd/sluice-loadgen/internal/whatif

test-system: needs # those that start processes and other programs (files with the tag "system"), and the chart's; NO_INSTALL=1 installs nothing and fails if something is missing
	$(GO) test -tags system -vet=off -shuffle=on -timeout 30m $$(grep -rl --include='*_test.go' '^//go:build system' cmd/sluice* edge pop | sed 's,/[^/]*$$,,; s,^,./,' | sort -u)
	cd deploy/helm && $(GO) test -vet=off -shuffle=on ./...

beside: needs # runs the edge of another release, REV (a tag; the newest, and while there is none twenty commits ago), beside this one in a PoP
	rm -rf bin/beside && mkdir -p bin/beside && git archive $(REV) | tar -x -C bin/beside
	cd bin/beside && $(GO) build -buildvcs=false -o ../sluice-beside ./cmd/sluice
	$(GO) test -tags system -vet=off -count=1 -timeout 10m -v ./cmd/sluice -run '^TestBesideAnotherRelease$$' -beside $(CURDIR)/bin/sluice-beside
	rm -rf bin/beside

traps: # for an upgrade of fasthttp: does a plain proxy made of it still fall into the traps that the edge is tested with?
	$(GO) test -run '^TestTrap' ./edge/front -traps

needs:
	@.ci/needs

spellings: # ask the parsers of other servers how they read SPELLINGS spellings, by SEED, of what rules look at; FLAGS=-record keeps what they say for make test
	@.ci/needs node npm ruby python3-django python3-werkzeug ruby-rack
	mkdir -p bin/parsers && cp edge/rules/testdata/parsers/package*.json bin/parsers && npm ci --silent --no-audit --no-fund --prefix bin/parsers
	$(GO) test -count=1 -timeout 1h -v -run '^TestSpellings$$' ./edge/rules -parsers $(CURDIR)/bin/parsers -seed $(SEED) -spellings $(SPELLINGS) $(FLAGS)

# In pop and pop/sim one goroutine does everything: the race detector would find nothing there. It has edge/socket make other
# system calls, and leaves out the guards of figures.
race: # the tests with the race detector, other inputs and interleavings; SHORT=1 only what has goroutines that share memory
ifdef SHORT
	$(GO) test -race -vet=off -shuffle=on -timeout 15m ./counter/... ./mitigation ./edge/limiter ./edge/front ./edge/http2 ./pop/memcached
else
	@.ci/needs
	$(GO) test -tags system -race -vet=off -shuffle=on -timeout 60m -count=1 -cpu=1,2,4 ./...
endif

nightly: # everything long, one after the other; .ci/nightly.md has the last result of each. ONLY="fuzz soak" runs these alone
	@.ci/nightly $(ONLY)

# Of what is drawn at random make test takes little, by one seed, and of the guards those that are cheap.
properties: # random properties with ten times the cases of make test, by seeds of their own, and the guards of every size and seed
	$(GO) test -vet=off -count=1 -timeout 1h ./cmd/sluice-loadgen/internal/simulate ./pop/memcached -all
	$(GO) test -vet=off -count=1 -timeout 2h ./pop -histories 10
	RAPID_CHECKS=1000 $(GO) test -vet=off -count=1 -timeout 2h $$(grep -rl --include='*_test.go' 'rapid\.Check' counter edge loadgen | sed 's,/[^/]*$$,,; s,^,./,' | sort -u)

fuzz: # every fuzz target with FUZZTIME inputs
	@.ci/fuzz $(FUZZTIME)

bench: needs # benchmarks, those that match BENCH
	$(GO) test -tags system -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $$(grep -rl --include='*_test.go' '^func Benchmark' . | sed 's,/[^/]*$$,,' | sort -u)

lint: # format, vet, staticcheck, who imports whom, and whether all of .ci/breaks still apply; reports hard sentences of the documents; the linter, which vets too, is pinned in tools.mod and built the first time
	@test -z "$$(gofmt -l .)" || { gofmt -l . | sed 's/$$/: not formatted; run gofmt -w/' >&2; exit 1; }
	$(GO) tool -modfile=tools.mod golangci-lint run ./...
	$(GO) run ./.ci/breaks -apply
	$(GO) run ./.ci/prose
	cd cmd/lab && $(GO) tool -modfile=../../tools.mod golangci-lint run -c ../../.golangci.yml ./...

accuracy: build # everything by which accuracy is judged, on the access logs in LOGS and on made traffic: two hours
	@test -n "$(LOGS)" || { echo 'accuracy: say where the access logs are: make accuracy LOGS=DIR' >&2; exit 1; }
	bin/sluice-loadgen accuracy --logs "$(LOGS)"

accuracy-short: build # the same on small made traffic, and some of it over 1 to 64 edges: a minute or two; fails where a promise is broken
	bin/sluice-loadgen accuracy --short
	bin/sluice-loadgen accuracy --short --sizes --seeds 1

breaks: # breaks the limiter in each way of .ci/breaks, and holds the short run of accuracy to seeing it; ten seeds unbroken must stay green
	$(GO) run ./.ci/breaks $(FLAGS)

PEERS = --work rest,seldom,proxy,refuse --connections 64 --rounds 5 --time 1s
bench-peers: lab # at rest, at 20 requests a second, busy and behind a balancer, beside nginx, HAProxy, Caddy and bare fasthttp: six minutes; PEERS= for all else
	@.ci/needs nginx haproxy caddy memcached
	bin/sluice-trial bench-peers $(PEERS) $(FLAGS)

bench-rls: lab ratelimit # cost per call of Envoy's rate limit service beside envoyproxy/ratelimit, which peers.mod pins; FLAGS=--short for one quick round
	@.ci/needs memcached
	bin/sluice-trial bench-rls $(FLAGS)

chaos: lab # what must happen when things break, story by story, with real edges: ten minutes; FLAGS=--short for some of it
	@.ci/needs memcached nutcracker
	bin/sluice-trial chaos $(FLAGS)

soak: lab # D, an hour unless set otherwise, with a fault of tier, edge, clock or origin in each EVERY: nothing is lost, nothing grows
	@.ci/needs memcached
	bin/sluice-trial soak --for $(D) --every $(EVERY) $(FLAGS)

ratelimit: # bin/ratelimit, envoyproxy/ratelimit as peers.mod pins it, for bench-rls and for sluice-loadgen lab --limiter
	$(GO) build -modfile=peers.mod -o bin/ratelimit github.com/envoyproxy/ratelimit/src/service_cmd

http2-attacks: lab # what attacks on HTTP/2 cost beside nginx and HAProxy, and another client; FLAGS=--short for one quick round, FLAGS="--json FILE"
	@.ci/needs nginx haproxy
	bin/sluice-trial http2-attacks $(FLAGS)

h2spec: lab # every case of h2spec on the edge, which peers.mod pins, and a request after each; FLAGS="--servers nginx,haproxy" for others
	$(GO) build -modfile=peers.mod -o bin/h2spec github.com/summerwind/h2spec/cmd/h2spec
	bin/sluice-trial h2spec $(FLAGS)

release: # archives, Debian packages and lists of modules (SBOM) of the commit that is checked out, in dist/, built twice and compared; needs Go and git. It refuses figures older than the code, a CHANGELOG without a version, a commit without its tag (and says which), and contacts that nobody reads; SNAPSHOT=1 does not
ifndef SNAPSHOT
	cd cmd/lab && $(GO) run ./figures --fresh
endif
	cd cmd/lab && $(GO) run ./release $(if $(SNAPSHOT),--snapshot) $(FLAGS)

figures: lab # write the tables of the documents from their runs (docs/figures); LONG=1 LOGS=DIR runs the long ones anew; FLAGS=--check fails where something would change
	cd cmd/lab && $(GO) run ./figures $(if $(LONG),--long) $(FLAGS)
