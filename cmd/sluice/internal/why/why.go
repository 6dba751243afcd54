// Package why reads from access logs in JSON what became of a source around a time: when it came,
// how many requests it sent, which rule blocked it at what estimate, until when, what was refused
// meanwhile, and what happened then.
//
// Logs of several edges may be given, in any order: lines are put in order by their time. A block
// is known by its rule and its end, which are the same on all edges; it began with the first line
// with "limited", and lines with "mitigated" were refused under it.
package why

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// Question is which source, time and detail a story is about.
type Question struct {
	Source netip.Prefix // the source
	Key    string       // in its place the # and digest of a key
	// Around this time; zero: the latest refusal, or the latest request if there was none
	At     time.Time
	Clock  bool          // At is a time of day, of the latest day that has one in these logs
	Around time.Duration // so long before and after; 0: ten minutes
}

// Story is the answer. Requests are those of the source; where the log holds one refusal or success
// in N, each stands for N.
type Story struct {
	Source netip.Prefix `json:"source,omitzero"`
	Key    string       `json:"key,omitempty"`
	From   time.Time    `json:"from"` // of what is shown in detail
	To     time.Time    `json:"to"`
	Lines  int          `json:"lines"` // that were read
	// Of them, those that are no line of an access log in JSON
	Bad int `json:"bad,omitempty"`
	// Of those, the ones with a source that is no address, or with something before them
	Strange  int    `json:"strange,omitempty"`
	Requests uint64 `json:"requests"`        // in all of the logs
	Refused  uint64 `json:"refused"`         // of them, by a rule or a list
	HTTP2    uint64 `json:"http2,omitempty"` // of them, by HTTP/2
	// Of them, those of which the log has no line, because it holds a sample
	Unwritten uint64     `json:"unwritten,omitempty"`
	First     time.Time  `json:"first,omitzero"`
	Last      time.Time  `json:"last,omitzero"`
	Minutes   []Minute   `json:"minutes"`
	Blocks    []Block    `json:"blocks"`
	Others    []Refusals `json:"others"` // refusals under no block
}

// Minute is a source's requests of a minute.
type Minute struct {
	At       time.Time `json:"at"`
	Requests uint64    `json:"requests"`
	Refused  uint64    `json:"refused"`
}

// Block is a time in which a rule refused the source.
type Block struct {
	Rule     string    `json:"rule"`
	Began    time.Time `json:"began"`
	Until    time.Time `json:"until"`
	Shadow   bool      `json:"shadow,omitempty"` // nothing was refused
	Tagged   bool      `json:"tagged,omitempty"` // nothing was refused, and the origin was notified
	Known    bool      `json:"known"`            // its beginning is in these logs: what follows
	Estimate float64   `json:"estimate,omitempty"`
	Limit    uint32    `json:"limit,omitempty"`
	Window   float64   `json:"window,omitempty"` // seconds
	Edge     string    `json:"edge,omitempty"`
	ID       string    `json:"id,omitempty"`
	Refused  uint64    `json:"refused"`          // requests under it, the first included
	Action   string    `json:"action,omitempty"` // how, if not by a refusal
	Last     time.Time `json:"last"`             // of those
	// The first request that was admitted after its end
	Then   time.Time `json:"then,omitzero"`
	By     string    `json:"by,omitempty"`     // admin: an operator has ordered it
	Who    string    `json:"who,omitempty"`    // he
	Reason string    `json:"reason,omitempty"` // and why
	// Which of the rule's limits, where it has several; none: the first
	Policy string `json:"policy,omitempty"`
}

// Refusals are those of a rule that throttles, or fails closed, or of a list.
type Refusals struct {
	Rule     string    `json:"rule,omitempty"` // "": the list
	Verdict  string    `json:"verdict"`
	Requests uint64    `json:"requests"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// A line is a request, as a line of the log has it.
type line struct {
	Request
	T        float64 // its time in Unix seconds, where a log has no other
	Sample   uint64
	Protocol string
}

func (l *line) refused() bool {
	switch l.Verdict {
	case "limited", "mitigated", "closed", "denied":
		return true
	}
	return false
}

// maxLines bounds the lines of a source that are kept.
const maxLines = 1 << 20

// Explain reads logs and answers. Lines are read as they come; those of the source alone are kept.
func Explain(q Question, logs ...io.Reader) (*Story, error) {
	s := &Story{Source: q.Source, Key: q.Key, Minutes: []Minute{}, Blocks: []Block{},
		Others: []Refusals{}}
	var list []line
	var bad, strange string // the first of those lines
	err := scan(logs, func(n int, text []byte) error {
		s.Lines = n
		l, is, ok := read(text, &q)
		switch {
		case !ok:
			s.Bad++
			if bad == "" {
				bad = example(n, text)
			}
			if bytes.Contains(text, []byte(sourceField)) {
				if s.Strange++; strange == "" {
					strange = example(n, text)
				}
			}
		case is && len(list) == maxLines:
			return fmt.Errorf("why: more than %d requests of %s: give less of the logs",
				maxLines, name(s))
		case is:
			list = append(list, l)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch {
	case s.Strange*100 > s.Lines:
		return nil,
			fmt.Errorf("why: %s: its source is no address, or something stands before its object; so it is in %d of %d lines, "+
				"and more than 1 %% is an error: cut off what a program has put before the lines, such as the prefix of syslog", strange, s.Strange, s.Lines)
	case s.Bad > 0 && s.Bad == s.Lines:
		return nil,
			fmt.Errorf("why: %s: no access log in JSON, as no line of %d is: want one that access_log.format: json has written", bad, s.Lines)
	}
	slices.SortStableFunc(list, func(a, b line) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.T, b.T), cmp.Compare(a.ID, b.ID))
	})
	s.span(q, list)
	for i := range list {
		s.add(&list[i])
	}
	return s, nil
}

// scan reads the lines of logs, which are numbered through.
func scan(logs []io.Reader, each func(n int, text []byte) error) error {
	n := 0
	for _, r := range logs {
		in := bufio.NewScanner(r)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			n++
			if err := each(n, in.Bytes()); err != nil {
				return err
			}
		}
		if err := in.Err(); err != nil {
			return fmt.Errorf("why: line %d: %w", n+1, err)
		}
	}
	return nil
}

// sourceField is what a line's source stands behind.
const sourceField = `"source":"`

// example is a line as an error shows it, with its number among all that were read.
func example(n int, text []byte) string { return fmt.Sprintf("line %d: %.160q", n, text) }

// read reads a line, if it is about who is asked about.
func read(text []byte, q *Question) (l line, is, ok bool) {
	_, rest, found := bytes.Cut(text, []byte(sourceField))
	who, _, closed := bytes.Cut(rest, []byte{'"'})
	if !found || !closed || text[0] != '{' {
		return l, false, false
	}
	addr, err := netip.ParseAddr(string(who))
	about := q.Key == "" && q.Source.Contains(addr) || q.Key != "" &&
		bytes.Contains(rest, []byte(`"key":"`+q.Key+`"`))
	if err != nil || !about {
		return l, false, err == nil
	}
	if json.Unmarshal(text, &l) != nil || q.Key != "" && l.Key != q.Key || l.Time.IsZero() &&
		l.T == 0 {
		return l, false, false
	}
	if l.Time.IsZero() {
		l.Time = time.UnixMicro(int64(l.T * 1e6))
	}
	l.Time, l.Until, l.Sample = l.Time.UTC(), l.Until.UTC(), max(l.Sample, 1)
	return l, true, true
}

// span decides which time is shown in detail.
func (s *Story) span(q Question, list []line) {
	around := q.Around
	if around == 0 {
		around = 10 * time.Minute
	}
	at := q.At.UTC()
	switch {
	case len(list) == 0:
	case q.Clock:
		last := list[len(list)-1].Time
		at = time.Date(last.Year(), last.Month(), last.Day(), at.Hour(), at.Minute(), at.Second(),
			0, time.UTC)
		if at.After(last.Add(around)) {
			at = at.AddDate(0, 0, -1)
		}
	case q.At.IsZero():
		at = list[len(list)-1].Time
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].refused() {
				at = list[i].Time
				break
			}
		}
	}
	s.From, s.To = at.Add(-around), at.Add(around)
}

// add takes in the next request.
func (s *Story) add(l *line) {
	if s.First.IsZero() {
		s.First = l.Time
	}
	s.Last = l.Time
	s.Requests += l.Sample
	s.Unwritten += l.Sample - 1
	if l.Protocol == "HTTP/2.0" {
		s.HTTP2 += l.Sample
	}
	if l.refused() {
		s.Refused += l.Sample
	}
	if !l.refused() {
		for i := range s.Blocks {
			if b := &s.Blocks[i]; b.Then.IsZero() && !b.Shadow && !b.Tagged &&
				!l.Time.Before(b.Until) {
				b.Then = l.Time
			}
		}
	}
	if l.Time.Before(s.From) || l.Time.After(s.To) {
		return
	}
	minute := l.Time.Truncate(time.Minute)
	if n := len(s.Minutes); n == 0 || s.Minutes[n-1].At != minute {
		s.Minutes = append(s.Minutes, Minute{At: minute})
	}
	m := &s.Minutes[len(s.Minutes)-1]
	m.Requests += l.Sample
	switch {
	case l.refused():
		m.Refused += l.Sample
	case l.Verdict != "shadow" && l.Verdict != "tagged":
		return
	}
	if l.Until.IsZero() {
		s.other(l)
	} else {
		s.block(l)
	}
}

// block takes in a request under a block, or the one that began it.
func (s *Story) block(l *line) {
	i := slices.IndexFunc(s.Blocks, func(b Block) bool {
		return b.Rule == l.Rule && b.Policy == l.Policy && b.Until.Sub(l.Until).Abs() < time.Second
	})
	if i < 0 {
		i = len(s.Blocks)
		s.Blocks = append(s.Blocks, Block{Rule: l.Rule, Policy: l.Policy, Until: l.Until,
			Began: l.Time, Shadow: l.Verdict == "shadow", Tagged: l.Verdict == "tagged"})
	}
	b := &s.Blocks[i]
	// By the clock of another edge, or within the grain of the log's time, it may come behind
	// requests that were refused under it. A shadow's block has the verdict shadow to its end
	if !b.Known && l.Verdict != "mitigated" && l.Estimate > float64(l.Limit) {
		b.Known, b.Estimate, b.Limit, b.Window, b.Edge, b.ID = true, l.Estimate, l.Limit, l.Window,
			l.Edge, l.ID
	}
	if l.By != "" {
		b.By, b.Who, b.Reason = l.By, l.Who, l.Reason
	}
	b.Refused += l.Sample
	b.Action = cmp.Or(l.Action, b.Action)
	b.Last = l.Time
}

func (s *Story) other(l *line) {
	i := slices.IndexFunc(s.Others, func(r Refusals) bool {
		return r.Rule == l.Rule && r.Verdict == l.Verdict
	})
	if i < 0 {
		i = len(s.Others)
		s.Others = append(s.Others, Refusals{Rule: l.Rule, Verdict: l.Verdict, First: l.Time})
	}
	r := &s.Others[i]
	r.Requests += l.Sample
	r.Last = l.Time
}
