// Package trace is who asks for what and when: requests in the order of time, each of a source. A
// Trace is read from logs (Read: access logs, JSON lines, CSV, gzipped or not), made by a workload,
// merged of several (Merge), sped up, and written again (Write).
//
// It knows nothing of limits or limiters. A Trace is held in memory and, once made, only read.
package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Role says what a trace knows of a source's intentions.
type Role uint8

const (
	Unknown Role = iota // a source of a real log
	Good                // a source that a limiter should leave alone
	Abuser
)

// Source is one who sends. Two sources of a trace never count as one.
type Source struct {
	Name string     // unique in its trace: an address, or file, day and address of a folded log
	Addr netip.Addr // the address it has in the log; several sources of a folded log may share one
	Role Role

	// Spread above 1 says that its requests come from so many addresses, Addr and those after it: a
	// client that rotates through a prefix which counts as one source. See Trace.Addr.
	Spread uint32
}

// Request is one request of a trace.
type Request struct {
	At     time.Duration // since the trace's start
	Source int32         // index into Trace.Sources
	Agent  int32         // index into Trace.Agents
	Status int16         // the origin's answer if the log knows it, else 0
	// Of this request, where its source is shared by good and bad; Unknown: the source's
	Role   Role
	Reset  bool   // its client takes it back as soon as it has made it, as HTTP/2 lets it
	Method string // empty where the log's request line was odd; see Line
	Host   string
	Path   string // with the query
}

// Trace is a stream of requests in the order of At.
type Trace struct {
	Name     string
	Start    time.Time // the instant of At 0; the zero Time for a workload
	Seed     uint64    // of the workload, and of the spread of one-second stamps over their second
	Sources  []Source
	Requests []Request
	// Of clients, as they call themselves, "" first; nil: not read (ReadOptions.Agents)
	Agents  []string
	Lines   int            // lines read, for a trace that came from a log
	Skipped map[string]int // reason to number of lines that gave no request
	// Requests of clients that the log knows by a host name, and by no address
	HostNames int
	Listed    int // requests whose client is one of a list of addresses
	// For each file that is no plain access log: what it was read as, and how many of its lines
	ReadAs []string
	Unread []string // for each file: the first line that gave no request, and why
	Coarse bool     // some stamps were of whole seconds, and were spread
}

// Sort brings requests into the order of time, those of one instant staying in the order they had.
func Sort(t *Trace) {
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

// Addr is the address that request i comes from: its source's, or one of them by a hash of i where
// the source has many.
func (t *Trace) Addr(i int) netip.Addr {
	s := &t.Sources[t.Requests[i].Source]
	if s.Spread <= 1 {
		return s.Addr
	}
	return AddrPlus(s.Addr, uint32(Mix(t.Seed+uint64(i))%uint64(s.Spread)))
}

// Agent is how the client of request i called itself, as logged, escapes and all; "" where that is
// not known.
func (t *Trace) Agent(i int) string {
	if t.Agents == nil {
		return ""
	}
	return t.Agents[t.Requests[i].Agent]
}

// Line is the method and the target to send: those of the log, or "GET" and "/" where its request
// line was odd.
func (r *Request) Line() (method, target string) {
	if r.Method == "" || r.Path == "" {
		return "GET", "/"
	}
	return r.Method, r.Path
}

// Merge lays traces over each other: all start at once, at the instant at which the first one that
// has an instant starts. Sources of one name in two of them stay two, the later one's name getting
// the trace's number.
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
		m.HostNames += t.HostNames
		m.Listed += t.Listed
		m.ReadAs = append(m.ReadAs, t.ReadAs...)
		m.Unread = append(m.Unread, t.Unread...)
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
		agents := int32(len(m.Agents))
		m.Agents = append(m.Agents, t.Agents...)
		for _, r := range t.Requests {
			r.Source += base
			if t.Agents != nil {
				r.Agent += agents
			}
			m.Requests = append(m.Requests, r)
		}
	}
	m.Name = strings.Join(parts, " + ")
	Sort(m)
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

// Mix is the finaliser of SplitMix64: neighbouring inputs give unrelated outputs.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash is FNV-1a, finished by Mix. Nothing depends on an adversary not knowing it.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return Mix(h)
}

// AddrPlus is the address n places after a.
func AddrPlus(a netip.Addr, n uint32) netip.Addr {
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
