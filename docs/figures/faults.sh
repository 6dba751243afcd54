#!/bin/sh
# What faults add to a mixed attack: a run with each of four seeds, in virtual time, with its flags above it.
set -e
attack() {
	for seed in 1 2 3 4; do
		echo "flags: ${*:-none}"
		bin/sluice-loadgen simulate --seed $seed --workload mixed --limit 20 --window 10s --mitigation-timeout 10s --duration 60s --edges 8 --memcached 4 "$@" 2>/dev/null
	done
}
attack
attack --fault "20s kill memcached/0"
attack --fault "20s kill memcached/0" --fault "20.5s restart memcached/0"
attack --fault "20s stop memcached/0" --fault "40s cont memcached/0"
attack --fault "20s kill memcached/0" --fault "20s kill memcached/1" --fault "20s kill memcached/2" --fault "20s kill memcached/3"
attack --fault "20s kill edge/0" --fault "21s restart edge/0"
attack --fault "20s term edge/0" --fault "30s term edge/1"
attack --fault "0s kill edge/0" --fault "20s restart edge/0"
attack --pops 2
attack --pops 2 --flap "14s 198.19.0.0/24 0"
attack --pops 2 --flap "14s 198.19.0.0/24 0" --flap "15s 198.19.0.0/24 1"
attack --skew 50ms
attack --skew 500ms
