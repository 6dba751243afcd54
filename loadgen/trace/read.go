package trace

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

// ReadOptions says which requests of a log make a trace. The zero value takes all of them as they
// are.
type ReadOptions struct {
	From, To time.Time // only requests from From until before To; zero: no bound
	Fold     bool      // lay all days (of UTC) onto one; a source is then file, day and address

	// FoldFrom and FoldTo choose from a folded day, as time since midnight UTC, or, with OneDay,
	// from the only day that the log has: one of several is an error. Zero FoldTo: until midnight.
	FoldFrom, FoldTo time.Duration
	OneDay           bool

	Skip bool // more than 1 % of a file's lines may be no requests
	// Proxies, where a log names them behind the client; none: the first address of a list is the
	// client
	Trust []netip.Prefix

	// Format is one of FormatNames; "": that which reads most of a file's first lines. Fields says
	// where lines in JSON have what, by time, client, host, method, path, request, status and
	// agent; a name has dots where it is in an object of the object.
	Format string
	Fields map[string]string

	Agents bool // read how clients call themselves (Trace.Agents)

	Seed uint64 // where in its second a request with a one-second stamp lies

	// IPv6Prefix is how many bits distinguish IPv6 sources, 0 meaning 64. Addresses of one prefix
	// are one source, with the name and address that came first.
	IPv6Prefix int
}

// Reasons for a line that gives no request, as keys of Trace.Skipped. More than 1 % of a file's
// lines that name no source or time, or are of another format, is an error.
const (
	SkippedEmpty   = "empty line"
	SkippedSource  = "no source"
	SkippedClient  = "client is no address"
	SkippedTime    = "no time"
	SkippedRange   = "outside the chosen time"
	SkippedSyntax  = "not of the file's format"
	SkippedComment = "comment or header"
	SkippedOther   = "another message of the server's"
	// Requests, not lines: an edge's log may hold one refusal in N, or one success, and say so
	// (sample=N).
	SkippedSample = "not in the log, which holds a sample"
)

// Read reads logs into one trace, in the order of time whatever their own order was. A file's
// format follows from its ending and its first lines: .jsonl (one object a line: t, source, host,
// method, path, status, role, reset, user_agent), .csv (the same as columns, named in the first
// line), anything else an access log in common, combined or vhost_combined form, with the prefix of
// whatever carried it before them or none, HAProxy's log of HTTP, or one of FormatNames; and .gz
// after any of them.
//
// A line that names a source and a time is a request, however odd the rest of it. A source is an
// address, or in an access log without a prefix a host name. A file more than 1 % of whose lines
// are none is an error, because its lines have a form that Read does not know, unless Skip is set.
// Stamps of whole seconds are spread evenly over their second, each by a hash of the seed, the
// file's name and the line's number, so that a part of a log is spread as the whole of it would be.
//
// In .jsonl and .csv t is in seconds, since 1970 or (below 1e9) since the trace's start; one
// written without a decimal point is a stamp of a whole second.
//
// Errors name the file and, where one is to blame, the line. No usable line in all files is an
// error.
func Read(o ReadOptions, files ...string) (*Trace, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("loadgen: read trace: no file given")
	}
	if o.IPv6Prefix == 0 {
		o.IPv6Prefix = 64
	}
	if !o.From.IsZero() && !o.To.IsZero() && !o.From.Before(o.To) {
		return nil,
			fmt.Errorf("loadgen: read trace: it starts at %s, which is not before its end at %s",
				o.From.Format(time.RFC3339), o.To.Format(time.RFC3339))
	}
	if o.FoldTo == 0 {
		o.FoldTo = day
	}
	if (o.Fold || o.OneDay) && o.FoldFrom >= o.FoldTo {
		return nil,
			fmt.Errorf("loadgen: read trace: the part of the day starts at %v, which is not before its end at %v", o.FoldFrom, o.FoldTo)
	}
	g := builder{
		options: o,
		trace:   &Trace{Seed: o.Seed, Skipped: make(map[string]int)},
		from:    math.MinInt64, to: math.MaxInt64,
		first: math.MaxInt64, last: math.MinInt64,
		strings: make(map[string]string),
		clients: make(map[string]int32),
		canon:   make(map[netip.Prefix]int32),
		taken:   make(map[netip.Addr]bool),
		folded:  make(map[foldKey]int32),

		examples: make(map[string]example),
	}
	if o.Agents {
		g.trace.Agents, g.agents = []string{""}, map[string]int32{"": 0}
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

// SkippedText lists why lines gave no request (Trace.Skipped), the most frequent reason first.
func SkippedText(skipped map[string]int) string {
	if len(skipped) == 0 {
		return "nothing skipped"
	}
	reasons := byFrequency(skipped)
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%s: %d", r, skipped[r])
	}
	return strings.Join(reasons, ", ")
}

func byFrequency(skipped map[string]int) []string {
	return slices.SortedFunc(maps.Keys(skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(skipped[b], skipped[a]), cmp.Compare(a, b))
	})
}

// form is what lines of an access log were read as, where that is not plain to see.
type form uint8

const (
	_ form = iota // combined or its kin, or Sluice's own
	formPrefixed
	formHAProxy
	formCount
)

func (f form) String() string {
	return [formCount]string{"", "access log behind a prefix", "HAProxy HTTP"}[f]
}

// LinesText says how many lines were read for a trace, and what is odd about them.
func LinesText(skipped map[string]int, hostNames int) string {
	if hostNames == 0 {
		return SkippedText(skipped)
	}
	return SkippedText(skipped) + fmt.Sprintf(", client by host name: %d", hostNames)
}
