#!/bin/sh
# Sources that all move to another PoP, and back, with peers and without, under a rule that throttles and one that blocks, for each of four seeds.
set -e
for workload in mixed constant just-above; do
	for timeout in 0s 10s; do
		for peers in "" --peers; do
			for seed in 1 2 3 4; do
				echo "moves: $workload, $timeout, ${peers:-alone}"
				bin/sluice-loadgen simulate --seed $seed --workload $workload --limit 60 --window 10s --mitigation-timeout $timeout --duration 60s \
					--pops 2 --edges 2 --memcached 2 --flap "25s 0.0.0.0/0 1" --flap "40s 0.0.0.0/0 0" $peers 2>/dev/null
			done
		done
	done
done
