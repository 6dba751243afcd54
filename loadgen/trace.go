package loadgen

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ReadOptions says which requests of a log make a trace. The zero value takes all of them as they are.
type ReadOptions struct {
	From, To time.Time // only requests from From until before To; zero: no bound
	Fold     bool      // lay all days (of UTC) onto one; a source is then file, day and address

	// FoldFrom and FoldTo choose from a folded day, as time since midnight UTC. Zero FoldTo: until midnight.
	FoldFrom, FoldTo time.Duration

	Seed uint64 // where in its second a request with a one-second stamp lies

	// IPv6Prefix is how many bits tell IPv6 sources apart, 0 meaning 64. Addresses of one prefix are one source, with the
	// name and address that came first.
	IPv6Prefix int
}

// Reasons for a line that gives no request, as keys of Trace.Skipped.
const (
	SkippedEmpty   = "empty line"
	SkippedSource  = "no source"
	SkippedTime    = "no time"
	SkippedRange   = "outside the chosen time"
	SkippedSyntax  = "not of the file's format"
	SkippedComment = "comment or header"
	// Requests, not lines: an edge's log may hold one refusal in N, and say so (sample=N).
	SkippedSample = "refused and not in the log, which holds a sample"
)

// ReadTrace reads logs into one trace, in the order of time whatever their own order was. A file's format follows from its
// ending: .jsonl (one object a line: t, source, host, method, path, status, role), .csv (the same as columns, named in the
// first line), anything else an access log in common, combined or vhost_combined form; and .gz after any of them.
//
// A line that names a source and a time is a request, however odd the rest of it. Stamps of whole seconds are spread
// evenly over their second, each by a hash of the seed, the file's name and the line's number, so that a part of a log
// is spread as the whole of it would be.
//
// In .jsonl and .csv t is in seconds, since 1970 or (below 1e9) since the trace's start; one written without a decimal point is
// a stamp of a whole second.
//
// Errors name the file and, where one is to blame, the line. No usable line in all files is an error.
func ReadTrace(o ReadOptions, files ...string) (*Trace, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("loadgen: read trace: no file given")
	}
	if o.IPv6Prefix == 0 {
		o.IPv6Prefix = 64
	}
	if !o.From.IsZero() && !o.To.IsZero() && !o.From.Before(o.To) {
		return nil, fmt.Errorf("loadgen: read trace: it starts at %s, which is not before its end at %s",
			o.From.Format(time.RFC3339), o.To.Format(time.RFC3339))
	}
	if o.FoldTo == 0 {
		o.FoldTo = day
	}
	if o.Fold && o.FoldFrom >= o.FoldTo {
		return nil, fmt.Errorf("loadgen: read trace: the part of the day starts at %v, which is not before its end at %v", o.FoldFrom, o.FoldTo)
	}
	g := gatherer{
		options: o,
		trace:   &Trace{Seed: o.Seed, Skipped: make(map[string]int)},
		from:    math.MinInt64, to: math.MaxInt64,
		first: math.MaxInt64, last: math.MinInt64,
		strings: make(map[string]string),
		clients: make(map[string]int32),
		canon:   make(map[netip.Prefix]int32),
		taken:   make(map[netip.Addr]bool),
		folded:  make(map[foldKey]int32),
	}
	if !o.From.IsZero() {
		g.from = o.From.UnixNano()
	}
	if !o.To.IsZero() {
		g.to = o.To.UnixNano()
	}
	for i, name := range files {
		if err := g.file(int32(i), name); err != nil {
			return nil, fmt.Errorf("loadgen: read trace %s: %w", name, err)
		}
	}
	return g.finish(files)
}

// sortRequests brings requests into the order of time, those of one instant staying in the order they had.
func sortRequests(t *Trace) {
	type key struct {
		at time.Duration
		i  int32
	}
	inOrder := true
	keys := make([]key, len(t.Requests))
	for i := range t.Requests {
		keys[i] = key{t.Requests[i].At, int32(i)}
		inOrder = inOrder && (i == 0 || keys[i-1].at <= keys[i].at)
	}
	if inOrder {
		return
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.i, b.i))
	})
	sorted := make([]Request, len(keys))
	for i, k := range keys {
		sorted[i] = t.Requests[k.i]
	}
	t.Requests = sorted
}

// skippedText lists the reasons for which lines gave no request, most frequent first.
func (t *Trace) skippedText() string {
	if len(t.Skipped) == 0 {
		return "nothing skipped"
	}
	reasons := slices.SortedFunc(maps.Keys(t.Skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.Skipped[b], t.Skipped[a]), cmp.Compare(a, b))
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%s: %d", r, t.Skipped[r])
	}
	return strings.Join(reasons, ", ")
}

// Duration is the time from the trace's start to its last request.
func (t *Trace) Duration() time.Duration {
	if len(t.Requests) == 0 {
		return 0
	}
	return t.Requests[len(t.Requests)-1].At
}

// Role is the role of request i: its own, or else its source's.
func (t *Trace) Role(i int) Role {
	r := &t.Requests[i]
	if r.Role != Unknown {
		return r.Role
	}
	return t.Sources[r.Source].Role
}

// Addr is the address that request i comes from: its source's, or one of them by a hash of i where the source has many.
func (t *Trace) Addr(i int) netip.Addr {
	s := &t.Sources[t.Requests[i].Source]
	if s.Spread <= 1 {
		return s.Addr
	}
	return addrPlus(s.Addr, uint32(mix(t.Seed+uint64(i))%uint64(s.Spread)))
}

// Line is the method and the target to send: those of the log, or "GET" and "/" where its request line was odd.
func (r *Request) Line() (method, target string) {
	if r.Method == "" || r.Path == "" {
		return "GET", "/"
	}
	return r.Method, r.Path
}

// Merge lays traces over each other: all start at once, at the instant at which the first one that has an instant starts. Sources
// of one name in two of them stay two, the later one's name getting the trace's number.
func Merge(traces ...*Trace) *Trace {
	m := &Trace{Skipped: make(map[string]int)}
	names := make(map[string]bool)
	var parts []string
	for n, t := range traces {
		parts = append(parts, t.Name)
		if m.Start.IsZero() {
			m.Start = t.Start
		}
		if m.Seed == 0 {
			m.Seed = t.Seed
		}
		m.Lines += t.Lines
		m.Coarse = m.Coarse || t.Coarse
		for r, count := range t.Skipped {
			m.Skipped[r] += count
		}
		base := int32(len(m.Sources))
		for _, s := range t.Sources {
			if names[s.Name] {
				s.Name = fmt.Sprintf("%s (%d)", s.Name, n+1)
			}
			names[s.Name] = true
			m.Sources = append(m.Sources, s)
		}
		for _, r := range t.Requests {
			r.Source += base
			m.Requests = append(m.Requests, r)
		}
	}
	m.Name = strings.Join(parts, " + ")
	sortRequests(m)
	return m
}

// Speed is the trace so many times as fast: the same requests in a shorter time.
func (t *Trace) Speed(times float64) *Trace {
	if times == 1 {
		return t
	}
	fast := *t
	fast.Requests = slices.Clone(t.Requests)
	for i := range fast.Requests {
		fast.Requests[i].At = time.Duration(float64(fast.Requests[i].At) / times)
	}
	return &fast
}

// mix is the finaliser of SplitMix64: neighbouring inputs give unrelated outputs.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashString is FNV-1a, finished by mix. Nothing depends on an adversary not knowing it.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

func addrPlus(a netip.Addr, n uint32) netip.Addr {
	b := a.As16()
	for i, carry := 15, uint64(n); carry > 0 && i >= 0; i-- {
		carry += uint64(b[i])
		b[i] = byte(carry)
		carry >>= 8
	}
	if a.Is4() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}
