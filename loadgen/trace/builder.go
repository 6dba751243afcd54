package trace

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
)

const day = 24 * time.Hour

// record is what a line says. Its slices live until the next line.
type record struct {
	client, host, method, path []byte
	agent                      []byte // as logged, escapes and all
	at                         int64  // ns since 1970, or since the trace's start where relative
	status                     int16
	role                       Role
	reset                      bool
	coarse                     bool // a stamp of one second
	relative                   bool
	sample                     int64 // requests that the line stands for; 0: one
	listed                     bool  // the client is one of several addresses
	form                       form  // what the line was read as, where its parser knows several
}

type foldKey struct {
	file, day, client int32
}

// builder makes one trace of the records of several files.
type builder struct {
	options  ReadOptions
	trace    *Trace
	from, to int64
	relative int8 // 0: not known yet, 1: times since the start, -1: instants

	file32      int32 // which file is being read
	name        string
	seed        uint64
	first, last int64 // of all requests read, chosen or not

	strings  map[string]string
	clients  map[string]int32       // a client as the log writes it, to its index in names
	canon    map[netip.Prefix]int32 // to the same
	taken    map[netip.Addr]bool    // addresses that stand for host names
	names    []Source               // clients, one for each that counts as one
	folded   map[foldKey]int32      // to the index of a source
	examples map[string]example     // of a file, the first line that gave no request, by the reason
	forms    [formCount]int         // lines of each
	agents   map[string]int32       // to the index in Trace.Agents; nil: they are not read
}

// add takes one record of the line with that number.
func (g *builder) add(r *record, line int) (skipped string, err error) {
	if len(r.client) == 0 || len(r.client) == 1 && r.client[0] == '-' {
		return SkippedSource, nil
	}
	kind := int8(-1)
	if r.relative {
		kind = 1
	}
	if g.relative == 0 {
		g.relative = kind
	}
	if g.relative != kind {
		return "",
			fmt.Errorf("line %d: its time is since %s, that of the lines before is not: convert one of them", line, sinceWhat(r.relative))
	}
	if r.relative && (g.from != math.MinInt64 || g.to != math.MaxInt64 || g.options.OneDay) {
		return "",
			fmt.Errorf("line %d: a part was chosen by instants, but the trace has times since its start", line)
	}
	at := r.at
	g.first, g.last = min(g.first, at), max(g.last, at)
	if at < g.from || at >= g.to {
		g.forms[r.form]++
		return SkippedRange, nil
	}
	if _, ok := g.clients[string(r.client)]; !ok && !isClient(r.client) {
		return SkippedClient, nil
	}
	days := floorDiv(at, int64(day))
	if g.options.Fold || g.options.OneDay {
		if of := time.Duration(at - days*int64(day)); of < g.options.FoldFrom ||
			of >= g.options.FoldTo {
			return SkippedRange, nil
		}
	}
	if r.coarse {
		g.trace.Coarse = true
		at += int64(Mix(g.seed+uint64(line)) % uint64(time.Second))
	}
	if r.sample > 1 {
		g.trace.Skipped[SkippedSample] += int(r.sample - 1)
	}
	g.forms[r.form]++
	if r.listed {
		g.trace.Listed++
	}
	client := g.client(r.client, r.role)
	if a := g.names[client].Addr; isStandIn(a) && isHostName(r.client) {
		g.trace.HostNames++
	}
	if g.names[client].Role != r.role {
		g.names[client].Role = Unknown // shared by good and bad
	}
	source := client
	if g.options.Fold {
		at -= days * int64(day)
		source = g.fold(int32(days), client)
	}
	g.trace.Requests = append(g.trace.Requests, Request{
		At: time.Duration(at), Source: source, Agent: g.agent(r.agent), Status: r.status,
		Role: r.role, Reset: r.reset,
		Method: g.intern(r.method), Host: g.intern(r.host), Path: g.intern(r.path),
	})
	return "", nil
}

func sinceWhat(relative bool) string {
	if relative {
		return "the trace's start"
	}
	return "1970"
}

// agent is the index of how a client calls itself.
func (g *builder) agent(b []byte) int32 {
	if g.agents == nil {
		return 0
	}
	i, ok := g.agents[string(b)]
	if !ok {
		i = int32(len(g.trace.Agents))
		g.agents[string(b)] = i
		g.trace.Agents = append(g.trace.Agents, string(b))
	}
	return i
}

// intern keeps one copy of each string.
func (g *builder) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := g.strings[string(b)]; ok {
		return s
	}
	s := string(b)
	g.strings[s] = s
	return s
}

// client is the index in g.names of who the log calls b.
func (g *builder) client(b []byte, role Role) int32 {
	if i, ok := g.clients[string(b)]; ok {
		return i
	}
	name := string(b)
	s := Source{Name: name, Role: role}
	addr, ok := parseClient(name)
	if ok {
		bits := addr.BitLen()
		if addr.Is6() {
			bits = g.options.IPv6Prefix
		}
		p, _ := addr.Prefix(bits)
		if i, ok := g.canon[p]; ok {
			g.clients[name] = i
			return i
		}
		g.canon[p] = int32(len(g.names))
		s.Name, s.Addr = addr.String(), addr
	} else {
		s.Addr = g.standIn(name)
	}
	g.names = append(g.names, s)
	g.clients[name] = int32(len(g.names) - 1)
	return int32(len(g.names) - 1)
}

// isClient reports whether a log may call a client so: an address, a host name, or, in a trace that
// was folded and written again, a file, a day and an address.
func isClient(b []byte) bool {
	if _, ok := parseClient(string(b)); ok || isHostName(b) {
		return true
	}
	words := strings.Fields(string(b))
	if len(words) < 3 {
		return false
	}
	_, err := time.Parse(time.DateOnly, words[len(words)-2])
	return err == nil && isClient([]byte(words[len(words)-1]))
}

func isStandIn(a netip.Addr) bool { return a.Is4() && a.As4()[0] >= 0xf0 }

// standIn is an address for a client that a log knows by its host name only: one out of
// 240.0.0.0/4, which no real client has, by the name's hash, and the next one where another name
// has that already.
func (g *builder) standIn(name string) netip.Addr {
	h := Hash(name)
	for ; ; h++ {
		a := netip.AddrFrom4([4]byte{0xf0 | byte(h>>24)&0x0f, byte(h >> 16), byte(h >> 8), byte(h)})
		if !g.taken[a] {
			g.taken[a] = true
			return a
		}
	}
}

// fold is the source that a client is on one day in one file.
func (g *builder) fold(days, client int32) int32 {
	k := foldKey{g.file32, days, client}
	if i, ok := g.folded[k]; ok {
		return i
	}
	s := g.names[client]
	s.Name = g.name + " " + time.Unix(int64(days)*86400, 0).UTC().Format(time.DateOnly) + " " +
		s.Name
	i := int32(len(g.trace.Sources))
	g.trace.Sources = append(g.trace.Sources, s)
	g.folded[k] = i
	return i
}

// finish sorts what was read and counts it from the trace's start.
func (g *builder) finish(files []string) (*Trace, error) {
	t := g.trace
	bases := make([]string, len(files))
	for i, f := range files {
		bases[i] = filepath.Base(f)
	}
	t.Name = strings.Join(bases, " ")
	if g.options.OneDay && g.first <= g.last && floorDiv(g.first, int64(day)) != floorDiv(g.last,
		int64(day)) {
		return nil,
			fmt.Errorf("loadgen: read trace %s: a time of day alone is for a log of one day (of UTC), and this has requests from %s to %s: give a date",
				strings.Join(files, " "), time.Unix(0, g.first).UTC().
					Format(time.RFC3339), time.Unix(0, g.last).UTC().Format(time.RFC3339))
	}
	if len(t.Requests) == 0 {
		if g.first > g.last {
			return nil, fmt.Errorf("loadgen: read trace %s: none of its %d lines is a request (%s)",
				strings.Join(files, " "), t.Lines, SkippedText(t.Skipped))
		}
		if g.relative > 0 {
			return nil, fmt.Errorf("loadgen: read trace %s: no request in the chosen part",
				strings.Join(files, " "))
		}
		return nil,
			fmt.Errorf("loadgen: read trace %s: no request in the chosen time; it has them from %s to %s", strings.Join(files, " "),
				time.Unix(0, g.first).UTC().Format(time.RFC3339), time.Unix(0, g.last).UTC().
					Format(time.RFC3339))
	}
	if !g.options.Fold {
		t.Sources = g.names // clients outside the chosen time never got here
	}
	Sort(t)

	first := int64(t.Requests[0].At)
	start := first - floorMod(first, int64(time.Second))
	switch {
	case g.options.Fold:
		if g.options.FoldFrom > 0 {
			start = int64(g.options.FoldFrom)
		}
	case g.relative > 0:
		start = 0
	case g.options.OneDay && g.options.FoldFrom > 0:
		start = floorDiv(first, int64(day))*int64(day) + int64(g.options.FoldFrom)
	case !g.options.From.IsZero():
		start = g.from
	}
	for i := range t.Requests {
		t.Requests[i].At -= time.Duration(start)
	}
	if g.relative < 0 {
		if g.options.Fold {
			// The log's first day is as good as any
			start += floorDiv(g.first, int64(day)) * int64(day)
		}
		t.Start = time.Unix(0, start).UTC()
	}
	return t, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
