#!/bin/sh
# Announces the service's prefixes while the edge is ready, and withdraws them as soon as /readyz says otherwise or nothing: two refusals
# in a row withdraw, five answers in a row announce. It ends with the routes withdrawn. sluice-announce.service runs it.
#
# Let the edge drain for longer than routes take to move: sluice --notice 15s.
set -u
READYZ=${READYZ:-http://127.0.0.1:8081/readyz}
BIRDC=${BIRDC:-birdc}
PROTOCOLS=${PROTOCOLS:-sluice4 sluice6}
INTERVAL=${INTERVAL:-1}

say() {
	echo "$1 $PROTOCOLS"
	for protocol in $PROTOCOLS; do
		$BIRDC "$1" "$protocol" >/dev/null || echo "BIRD does not answer: $BIRDC $1 $protocol" >&2
	done
}
trap 'say disable; exit 0' INT TERM
say disable
announced=no good=0 bad=0
while :; do
	if curl -fsS -o /dev/null --max-time 1 "$READYZ" 2>/dev/null; then
		good=$((good + 1)) bad=0
	else
		bad=$((bad + 1)) good=0
	fi
	if [ $announced = no ] && [ $good -ge 5 ]; then
		announced=yes
		say enable
	elif [ $announced = yes ] && [ $bad -ge 2 ]; then
		announced=no
		say disable
	fi
	sleep "$INTERVAL" & # so that a signal does not wait for it
	wait $!
done
