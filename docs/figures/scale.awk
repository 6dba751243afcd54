# What a PoP of 64 edges needs at 100,000 requests a second each, from 10,000,000 sources, by what other runs have measured.
function comma(n,  s, i) { s = sprintf("%.0f", n); for (i = length(s) - 3; i > 0; i -= 3) s = substr(s, 1, i) "," substr(s, i + 1); return s }
function up(n) { return n == int(n) ? n : int(n) + 1 }
function row(what, arithmetic, result) { printf "%-52s  %-66s  %s\n", what, arithmetic, result }
function of(unit,  i) { for (i = 2; i <= NF; i++) if ($i == unit) return $(i - 1) + 0 }
/B-at-100%/ { counter = of("B-at-100%") }
/^tier commands per 1,000/ { gsub(",", "", $6); commands = $6 / 1000 }
/B\/bit/ { bit = of("B/bit") > bit ? of("B/bit") : bit }
$1 == "proxy" && $2 == 64 && $3 == 10000 && $4 == "sluice" && $5 == "memcached" { request = $6; memcached = $7 }
/^BenchmarkIncr\/pipeline/ { incr = of("incr/s") }
END {
	edges = 64; rate = 100000; sources = 10000000; group = 120; look = 67; rest = 4; wire = 150
	edge = request - memcached; cores = rate * edge / 1e6; all = edges * rate * commands; nodes = up(2 * all / incr)
	row("what", "arithmetic", "comes to")
	row("processors of an edge", sprintf("%s × %.0f µs (%.1f less memcached's %.1f), half used", comma(rate), edge, request, memcached), up(2 * cores) " cores")
	row("table of an edge", sprintf("%s × %.0f bytes", comma(sources), counter), sprintf("%.0f MB", sources * counter / 1e6))
	row("blocks of 100,000 sources on an edge", sprintf("100,000 × %.0f bytes", bit), sprintf("%.0f MB", bit / 10))
	row("commands", sprintf("%s × %.2f", comma(edges * rate), commands), comma(all) "/s")
	row("memcached nodes", sprintf("%s/s by %s/s each, half used", comma(all), comma(incr)), nodes)
	row("memory of the tier", sprintf("%s × 4 groups × %d bytes", comma(sources), group), sprintf("%.1f GB", sources * 4 * group / 1e9))
	row("network of the tier", sprintf("%s/s × %d bytes, both ways together", comma(all), wire), sprintf("%.1f Gbit/s, %.2f for each node", all * wire * 8 / 1e9, all * wire * 8 / 1e9 / nodes))
	row("connections of a node", sprintf("%d edges × 4", edges), edges * 4)
	row("looks, at rest", sprintf("%d edges × %d nodes × %d/s", edges, nodes, rest), sprintf("%s commands/s, %s for each node", comma(edges * nodes * rest), comma(edges * rest)))
	row("looks, with requests", sprintf("%d edges × %d nodes × %d/s", edges, nodes, look), sprintf("%s commands/s, %s for each node", comma(edges * nodes * look), comma(edges * look)))
	row("log, lively", sprintf("%d edges × 333/s reads", edges), comma(edges * 333) "/s for each node")
	row("log, 1,000 blocks/s", sprintf("2 records of 77 bytes × %d readers", edges), sprintf("%.0f KB/s written, %.1f MB/s read of all nodes together", 154, 0.154 * edges))
}
