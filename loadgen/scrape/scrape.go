// Package scrape reads what running servers report about themselves: Prometheus metrics and JSON of
// edges and origins, statistics of memcached.
package scrape

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Metrics is what a Prometheus endpoint said: the value of each series, by its name with its labels
// as written. Those of several processes may be added up.
type Metrics map[string]float64

// Parse reads the text format, adding to m. Comments, timestamps and lines that make no sense are
// left out.
func (m Metrics) Parse(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, '}') + 1 // a label's value may hold blanks
		if i := strings.IndexByte(line[end:], ' '); i >= 0 {
			end += i
			number, _, _ := strings.Cut(strings.TrimSpace(line[end:]), " ")
			if v, err := strconv.ParseFloat(number, 64); err == nil {
				m[line[:end]] += v
			}
		}
	}
	return lines.Err()
}

// Sum adds up the series of that name which have all those labels, each given as name and value.
func (m Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
	for series, v := range m {
		family, rest, _ := strings.Cut(series, "{")
		if family != name {
			continue
		}
		rest = "," + strings.TrimSuffix(rest, "}") + ","
		has := true
		for i := 0; i < len(labels); i += 2 {
			has = has && strings.Contains(rest, fmt.Sprintf(",%s=%q,", labels[i], labels[i+1]))
		}
		if has {
			total += v
		}
	}
	return total
}

// By adds up the series of a name by one of their labels.
func (m Metrics) By(name, label string) map[string]float64 {
	out := make(map[string]float64)
	for series, v := range m {
		family, rest, _ := strings.Cut(series, "{")
		if family != name {
			continue
		}
		_, value, ok := strings.Cut(","+rest, ","+label+`="`)
		if ok {
			value, _, _ = strings.Cut(value, `"`)
			out[value] += v
		}
	}
	return out
}

// Minus is what was added since earlier.
func (m Metrics) Minus(earlier Metrics) Metrics {
	out := make(Metrics, len(m))
	for series, v := range m {
		out[series] = v - earlier[series]
	}
	return out
}

const timeout = 20 * time.Second

// Get reads a page of a member's, within its timeout.
func Get(ctx context.Context, client *http.Client, addr netip.AddrPort, path string,
	read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	url := "http://" + addr.String() + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	if err := read(answer.Body); err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// MetricsOf reads the metrics of an edge.
func MetricsOf(ctx context.Context, client *http.Client, addr netip.AddrPort) (Metrics, error) {
	m := make(Metrics)
	return m, Get(ctx, client, addr, "/metrics", m.Parse)
}

// OK is nil if an address answers a path with 200.
func OK(addr netip.AddrPort, path string) error {
	transport := &http.Transport{DisableKeepAlives: true}
	return Get(context.Background(), &http.Client{Transport: transport}, addr, path,
		func(io.Reader) error { return nil })
}

// JSON reads a page into v.
func JSON(v any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(v) }
}

// NodeStats is what a memcached node counts, by its own names: cmd_get, cmd_set, incr_hits and so
// on.
type NodeStats map[string]uint64

// Memcached asks a node for its statistics.
func Memcached(addr netip.AddrPort) (NodeStats, error) {
	out := make(NodeStats)
	err := speakMemcached(addr, "stats\r\n", func(line string) bool {
		if line == "END" {
			return true
		}
		if words := strings.Fields(line); len(words) == 3 && words[0] == "STAT" {
			if v, err := strconv.ParseUint(words[2], 10, 64); err == nil {
				out[words[1]] = v
			}
		}
		return false
	})
	return out, err
}

// MemcachedAnswers proves that a node or a proxy before it makes a round trip: a process that hangs
// still accepts.
func MemcachedAnswers(addr netip.AddrPort) error {
	return speakMemcached(addr, "get sluice-lab-ready\r\n",
		func(line string) bool { return line == "END" })
}

// speakMemcached sends a command and hands on lines until last says that one was the last.
func speakMemcached(addr netip.AddrPort, command string, last func(string) bool) error {
	c, err := net.DialTimeout("tcp", addr.String(), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, command); err != nil {
		return err
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if last(lines.Text()) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("memcached at %s closed the connection", addr)
}

// Commands adds up the commands that clients sent to a node, so far as they touch its data: what a
// limiter causes there.
func (n NodeStats) Commands() uint64 {
	total := uint64(0)
	for _, name := range []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "incr_hits",
		"incr_misses",
		"decr_hits", "decr_misses", "delete_hits", "delete_misses", "cas_hits", "cas_misses",
		"cas_badval"} {
		total += n[name]
	}
	return total
}

// Increments is how many of the commands counted hits.
func (n NodeStats) Increments() uint64 { return n["incr_hits"] + n["incr_misses"] }
