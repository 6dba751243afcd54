#!/bin/sh
# A source just above its limit under a rule that throttles, a connection for each request: a run for each number of edges and each of four seeds.
set -e
for edges in 3 8 64; do
	for seed in 1 2 3 4; do
		bin/sluice-loadgen simulate --seed $seed --workload just-above --limit 100 --mitigation-timeout 0s --per-connection 1 --memcached 4 --edges $edges 2>/dev/null
	done
done
