#!/bin/sh
# Four limiters, one of them in two ways, three instances of each, under five kinds of traffic: each gets the same trace, one after the other. The window is a second because
# envoyproxy/ratelimit knows seconds, minutes and longer ones alone, and because twenty-five runs of some windows each shall end within ten minutes.
set -e
for workload in mixed constant onoff just-above stuffing; do
	rate=0
	[ $workload != mixed ] || rate=1200 # what follows from the limit would be more than two processors do beside the load
	echo "workload $workload"
	bin/sluice-loadgen lab --limiter sluice,sluice-throttle,nginx,haproxy,envoy-ratelimit --workload $workload --rate $rate --duration 12s --limit 20 --window 1s --mitigation-timeout 1s --edges 3 --memcached 1 2>/dev/null ||
		[ $? -eq 3 ] # sent late, which the table says
	echo
done
