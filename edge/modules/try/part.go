package try

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"sluice/edge/honest"
	"sluice/edge/rules/key"
	"sluice/edge/top"
)

// What an edge says of a try, at most: so many of its sources, of those that would be refused, and
// of the heaviest of these.
const (
	sampled  = 512
	kept     = 1024
	heaviest = 20
)

// Part is what one edge says of a try. Its lists are bounded: of sources there are those with the
// smallest hashes (Bar-Yossef et al., "Counting distinct elements in a data stream", 2002), all
// where they are few. The hashes are under the PoP's secret, so a source has the same at every
// edge.
type Part struct {
	Version uint64    `json:"version"`
	Since   time.Time `json:"since"` // it is observed there
	At      time.Time `json:"at"`
	Ended   bool      `json:"ended,omitempty"`

	Requests uint64 `json:"requests"`
	Refused  uint64 `json:"refused"`
	Moot     uint64 `json:"moot"`
	Known    uint64 `json:"known"`
	Well     uint64 `json:"well"`

	Sources uint64   `json:"sources"`
	Tags    []uint64 `json:"tags"` // of some of them, ascending
	Whom    uint64   `json:"whom"` // would be refused
	// Of some of them, by tag: it, requests, refused, and of those before: answers, answered well
	Sample    [][5]uint64 `json:"sample"`
	Forgotten uint64      `json:"forgotten,omitempty"`
	Unlisted  uint64      `json:"unlisted,omitempty"`
	Heavy     []Heavy     `json:"heavy"`
	// A source that is not among Heavy would have been refused so often at most
	Rest     uint64 `json:"rest"`
	Bytes    int    `json:"bytes"`
	Commands uint64 `json:"commands"` // to the tier, about the try's counters
}

// Heavy is a source that would be refused often.
type Heavy struct {
	top.Heavy
	// The first characters of the key, as far as the rule shows them
	Start    string `json:"key_start,omitempty"`
	Requests uint64 `json:"requests"`
	Answers  uint64 `json:"answers_before"`       // before the first that would have been refused
	Well     uint64 `json:"answered_well_before"` // of these, with 2xx or 3xx
	Honest   bool   `json:"looks_honest"`
	Tag      uint64 `json:"tag,omitempty"` // of a Part: its own in Tags and Sample
}

// Part is what this edge has seen. secret hashes sources as all edges do.
func (r *Run) Part(secret key.Secret, now time.Time) *Part {
	p := &Part{Version: r.Version, Since: r.Since, At: now, Ended: !now.Before(r.End()),
		Requests: r.requests.Load(), Refused: r.refused.Load(), Moot: r.moot.Load(),
		Known: r.known.Load(), Well: r.well.Load(), Forgotten: r.forgotten.Load(),
		Unlisted: r.unlisted.Load(), Bytes: r.bytes(), Commands: r.tally.Commands.Load(),
		Tags: []uint64{}, Sample: [][5]uint64{}, Heavy: []Heavy{}}
	heavy := r.heavy.List(heaviest)
	p.Rest = heavy.Rest
	of := make(map[string]*Heavy)
	for _, h := range heavy.Heavy {
		of[h.Source] = nil
	}
	for i := range r.table {
		h := &r.table[i]
		h.mu.Lock()
		for src, s := range h.sources {
			tag := secret.Tag(r.Rule.Name, src)
			p.Tags = append(p.Tags, tag)
			refused := uint64(s.refused.Load())
			if refused == 0 {
				continue
			}
			answers, well := uint64(s.answers.Load()), uint64(s.well.Load())
			p.Sample = append(p.Sample, [5]uint64{tag, uint64(s.requests), refused, answers, well})
			if len(of) > 0 {
				if name := src.String(); of[name] == nil {
					if _, wanted := of[name]; wanted {
						of[name] = &Heavy{Heavy: top.Heavy{Count: refused}, Start: s.start.String(),
							Requests: uint64(s.requests), Answers: answers, Well: well, Tag: tag}
					}
				}
			}
		}
		h.mu.Unlock()
	}
	p.Sources, p.Whom = uint64(len(p.Tags)), uint64(len(p.Sample))
	slices.Sort(p.Tags)
	slices.SortFunc(p.Sample, func(a, b [5]uint64) int { return cmp.Compare(a[0], b[0]) })
	p.cut(sampled, kept)
	for _, h := range heavy.Heavy {
		one := of[h.Source]
		switch {
		case one == nil:
			one = &Heavy{Heavy: h}
		case p.Unlisted > 0:
			one.Heavy = h
		default: // who would be refused is never forgotten: its count is exact
			one.Source = h.Source
		}
		one.Honest = honest.Looks(one.Answers, one.Well)
		p.Heavy = append(p.Heavy, *one)
	}
	return p
}

func (p *Part) cut(tags, sample int) {
	p.Tags, p.Sample = p.Tags[:min(len(p.Tags), tags)], p.Sample[:min(len(p.Sample), sample)]
}

// Short is the part as JSON with so many sources at most.
func (p *Part) Short(sources int) json.RawMessage {
	short := *p
	short.cut(sources, sources)
	said, _ := json.Marshal(&short) // numbers and texts
	return said
}

// End is when the run ends, or has ended.
func (r *Run) End() time.Time {
	if at := r.ended.Load(); at != 0 && at < r.Until.UnixNano() {
		return time.Unix(0, at).UTC()
	}
	return r.Until
}

// Number is how many sources there are: exactly, or about so many, or at least.
type Number struct {
	N       uint64 `json:"n"`
	AtLeast bool   `json:"at_least,omitempty"` // some found no room, and are not in it
	// The standard error, as a share of N; 0: N is exact
	Error float64 `json:"error,omitempty"`
}

// Result is what a try would have done, at all edges whose parts there are.
type Result struct {
	Requests     uint64  `json:"requests"` // that the rules in force let through
	Refused      uint64  `json:"refused"`  // of these: that it would have refused
	RefusedRatio float64 `json:"refused_ratio"`
	// Further requests that the rules in force refused
	Moot  uint64 `json:"moot"`
	Known uint64 `json:"refused_known"`    // of the refused: that the origin has answered
	Well  uint64 `json:"refused_answered"` // of these: with 2xx or 3xx

	Sources        Number  `json:"sources"`
	RefusedSources Number  `json:"refused_sources"`
	Honest         Number  `json:"honest_sources"` // of these: that look honest
	Forgotten      uint64  `json:"forgotten,omitempty"`
	Heavy          []Heavy `json:"heavy"`
	Commands       uint64  `json:"commands"` // to the tier, about the try's counters
	Bytes          int     `json:"bytes"`    // of memory, on the edge where it takes most
}

// Sum adds the parts of all edges. A source that several edges have seen is one.
func Sum(parts []*Part, n int) *Result {
	sum := &Result{Heavy: []Heavy{}}
	all := sample{lowest: math.MaxUint64}
	whom := sample{lowest: math.MaxUint64}
	seen, refused := make(map[uint64]bool), make(map[uint64]*[5]uint64)
	heavy := make(map[string]*Heavy)
	unlisted := uint64(0)
	for _, p := range parts {
		sum.Requests, sum.Refused, sum.Moot, sum.Known, sum.Well = sum.Requests+p.Requests,
			sum.Refused+p.Refused, sum.Moot+p.Moot, sum.Known+p.Known, sum.Well+p.Well
		sum.Commands += p.Commands
		sum.Forgotten, sum.Bytes, unlisted = sum.Forgotten+p.Forgotten, max(sum.Bytes,
			p.Bytes), unlisted+p.Unlisted
		for _, t := range p.Tags {
			seen[t] = true
		}
		all.bound(p.Sources, len(p.Tags), func() uint64 { return p.Tags[len(p.Tags)-1] })
		whom.bound(p.Whom, len(p.Sample), func() uint64 { return p.Sample[len(p.Sample)-1][0] })
		for _, s := range p.Sample {
			had := refused[s[0]]
			if had == nil {
				had = &[5]uint64{s[0]}
				refused[s[0]] = had
			}
			for i := 1; i < len(s); i++ {
				had[i] += s[i]
			}
		}
		for _, h := range p.Heavy {
			had := heavy[h.Source]
			if had == nil {
				had = &Heavy{Start: h.Start}
				had.Source = h.Source
				heavy[h.Source] = had
			}
			had.Tag = cmp.Or(had.Tag, h.Tag)
		}
	}
	for _, p := range parts {
		p.addTo(heavy)
	}
	if sum.Requests > 0 {
		sum.RefusedRatio = float64(sum.Refused) / float64(sum.Requests)
	}
	good := 0
	for t := range seen {
		all.count(t)
	}
	for t, s := range refused {
		if whom.count(t) && honest.Looks(s[3], s[4]) {
			good++
		}
	}
	sum.Sources, sum.RefusedSources = all.number(sum.Forgotten > 0), whom.number(unlisted > 0)
	sum.Honest = whom.part(good, unlisted > 0 || sum.Forgotten > 0)
	for _, h := range heavy {
		h.Honest, h.Tag = honest.Looks(h.Answers, h.Well), 0
		sum.Heavy = append(sum.Heavy, *h)
	}
	slices.SortFunc(sum.Heavy, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Source, b.Source))
	})
	sum.Heavy = sum.Heavy[:min(n, len(sum.Heavy))]
	return sum
}

// addTo adds what an edge has seen of sources that are heavy at it or others: of one that it does
// not list, what its sample says, and else the most that it can have.
func (p *Part) addTo(heavy map[string]*Heavy) {
	listed := make(map[string]*Heavy, len(p.Heavy))
	for i := range p.Heavy {
		listed[p.Heavy[i].Source] = &p.Heavy[i]
	}
	all := uint64(math.MaxUint64) // its sample has all sources up to this tag that it would refuse
	if n := len(p.Sample); p.Unlisted > 0 || n == 0 && p.Whom > 0 {
		all = 0
	} else if uint64(n) < p.Whom {
		all = p.Sample[n-1][0]
	}
	for name, sum := range heavy {
		if h := listed[name]; h != nil {
			sum.Count, sum.Error, sum.Requests = sum.Count+h.Count, sum.Error+min(h.Error,
				h.Count), sum.Requests+h.Requests
			sum.Answers, sum.Well = sum.Answers+h.Answers, sum.Well+h.Well
			continue
		}
		i, found := slices.BinarySearchFunc(p.Sample, sum.Tag,
			func(s [5]uint64, tag uint64) int { return cmp.Compare(s[0], tag) })
		switch {
		case found && sum.Tag != 0:
			s := &p.Sample[i]
			sum.Count, sum.Requests, sum.Answers, sum.Well = sum.Count+s[2], sum.Requests+s[1],
				sum.Answers+s[3], sum.Well+s[4]
		case sum.Tag == 0 || sum.Tag > all:
			sum.Count, sum.Error = sum.Count+p.Rest, sum.Error+p.Rest
		}
	}
}

// sample is the sources whose hash is at most lowest, of all edges.
type sample struct {
	lowest    uint64
	truncated bool
	n         int
}

// bound takes in that an edge says so many of all of its sources, the largest hash of which is
// last.
func (s *sample) bound(all uint64, said int, last func() uint64) {
	if all > uint64(said) {
		s.truncated = true
		if said == 0 {
			s.lowest = 0
		} else {
			s.lowest = min(s.lowest, last())
		}
	}
}

func (s *sample) count(tag uint64) bool {
	if tag <= s.lowest {
		s.n++
		return true
	}
	return false
}

// scale is how many sources one of the sample stands for.
func (s *sample) scale() float64 {
	if !s.truncated || s.n < 2 || s.lowest == 0 {
		return 1
	}
	return float64(s.n-1) / float64(s.n) / (float64(s.lowest) / math.MaxUint64)
}

func (s *sample) number(least bool) Number { return s.part(s.n, least) }

// part is how many sources some of the sample stand for.
func (s *sample) part(some int, least bool) Number {
	n := Number{N: uint64(math.Round(float64(some) * s.scale())), AtLeast: least}
	if s.truncated && some > 2 {
		n.Error = 1 / math.Sqrt(float64(some-2))
	}
	return n
}
