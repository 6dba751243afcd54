package upgrade

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

// The counters of an edge that counts alone go to the process that replaces it as values of gob: a
// countersHead, a handedCounter for each, and one of no rule, without which nothing is taken.
//
// They go twice: before the new process serves, and when the old one has answered its last request;
// then the larger number counts, so of a source that made requests to both meanwhile, those are
// forgotten of which there were fewer. Not in it is when within a sub-window a hit came: for the
// rest of the window the new process takes them to be spread evenly, as it does with the hits of
// other edges.
type countersHead struct {
	Form  int
	Rules []string // their identities
}

type handedCounter struct {
	Rule   int // of the head's, from 1; 0: there is no more
	Source []byte
	Newest uint32 // the number of the newest group
	Groups []uint64
}

// countersForm is the form of these.
const countersForm = 2

// inheritTime is how long handing counters over may take.
const inheritTime = 20 * time.Second

// writeCounters writes the counters of rules, and returns how many there are.
func writeCounters(w io.Writer, table *counter.Table, rules []*algorithm.Spec,
	now time.Time) (n int, err error) {
	buffered := bufio.NewWriterSize(w, 64<<10)
	out := gob.NewEncoder(buffered)
	head, number := countersHead{Form: countersForm}, make(map[*algorithm.Spec]int, len(rules))
	for i, r := range rules {
		number[r], head.Rules = i+1, append(head.Rules, r.Identity())
	}
	if err := out.Encode(head); err != nil {
		return 0, err
	}
	for c := range table.All(rules, now) {
		if err := out.Encode(handedCounter{number[c.Rule], c.Source.AppendBinary(nil), c.Newest,
			c.Groups}); err != nil {
			return n, err
		}
		n++
	}
	if err := out.Encode(handedCounter{}); err != nil {
		return n, err
	}
	return n, buffered.Flush()
}

// readCounters reads what writeCounters wrote and has the table learn it: all, or nothing and an
// error. Counters of rules that are no longer there are left out, and so is what is more than most,
// the table's capacity. Until it is done it takes as much memory again as the counters do.
func readCounters(r *bufio.Reader, table *counter.Table, rules []*algorithm.Spec, most int,
	now time.Time) (taken int, err error) {
	in := gob.NewDecoder(r)
	var head countersHead
	if err := in.Decode(&head); err != nil {
		return 0, err
	}
	if head.Form != countersForm {
		return 0, fmt.Errorf("counters come in the form %d, this version reads %d", head.Form,
			countersForm)
	}
	ours := make(map[string]*algorithm.Spec, len(rules))
	for _, r := range rules {
		ours[r.Identity()] = r
	}
	type known struct {
		counter.Counter
		newest uint32
		groups []uint64
	}
	var list []known
	for {
		var c handedCounter
		if err := in.Decode(&c); err != nil {
			return 0, err
		}
		if c.Rule == 0 {
			break
		}
		source, good := counter.Source{}, len(c.Source) == counter.SourceSize && c.Rule > 0 &&
			c.Rule <= len(head.Rules)
		if good {
			source, good = counter.SourceFromBinary(c.Source)
		}
		if !good {
			return 0, errors.New("a counter without a source")
		}
		if rule := ours[head.Rules[c.Rule-1]]; rule != nil && len(list) < most {
			list = append(list, known{counter.Counter{Rule: rule, Source: source}, c.Newest,
				c.Groups})
		}
	}
	for _, k := range list {
		table.Reports().Apply(k.Counter, k.newest, k.groups, 0, now)
	}
	return len(list), nil
}
