// Package history keeps what an edge did in the last week, hour by hour, small and on disk: requests, refusals and blocks by rule, the heaviest sources.
//
//	Snapshot, once a minute ---> what came since the last one ---> the hour ---> state_dir/history/2026-05-04T14.json
//
// Each hour is a file, written anew beside it once a minute and put in its place. So whatever is killed, what is lost is a minute of the hour that runs, and
// no file is ever half. A file has at most AllRules rules and topKept sources of each list, so it has at most 64 KiB, and usually one or two; there
// are Kept of them. No request waits for any of it, and none causes any of it.
//
// Counts of sources are lower bounds: those of the lists that the edge has anyway (edge/top), looked at once a minute.
package history

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge/regular"
	"sluice/edge/top"
)

const (
	// Kept is how many hours there are at most: a week.
	Kept  = 7 * 24
	every = time.Minute
	// AllRules is how many rules an hour tells apart.
	AllRules = 256
	topKept  = 20
	topKnown = 300 // sources of a list that are added up in an hour
	maxFile  = 1 << 20
	layout   = "2006-01-02T15"
	// Others is the rule under which those are added up for which an hour has no room.
	Others = "(others)"
)

// Counts are what a rule did.
type Counts struct {
	Passed  uint64 `json:"passed"`
	Refused uint64 `json:"refused"`
	Shadow  uint64 `json:"shadow,omitempty"` // that a shadow would have refused
	Blocks  uint64 `json:"blocks,omitempty"` // that the edge began
}

func (c *Counts) add(o Counts) {
	c.Passed += o.Passed
	c.Refused += o.Refused
	c.Shadow += o.Shadow
	c.Blocks += o.Blocks
}

// Heavy is a source that asked a lot in an hour: at least so many.
type Heavy struct {
	Source string `json:"source"`
	Count  uint64 `json:"count"`
}

// Hour is what an edge did in an hour, or several edges.
type Hour struct {
	Start    time.Time          `json:"start"`
	Seconds  float64            `json:"seconds"` // of it that were watched; of several edges, added up
	Received uint64             `json:"received"`
	Refused  uint64             `json:"refused"` // answered by a limit
	Rules    map[string]*Counts `json:"rules"`
	Top      map[string][]Heavy `json:"top"` // by what they are heavy in, the heaviest first
}

// Snapshot is what an edge has counted since it began.
type Snapshot struct {
	Received, Refused uint64
	Rules             map[string]Counts
	Tops              map[string]top.List
}

// Keeper keeps the history of one edge. Its exported fields are set before Run.
type Keeper struct {
	Dir  string // "": nothing is kept
	Look func() Snapshot
	Log  *slog.Logger

	mu     sync.Mutex
	hours  map[time.Time]*Hour
	before Snapshot
	at     time.Time // of before
	failed string    // why nothing can be written; "": it can
}

// Open reads what is kept. A file that cannot be read is left out, and a folder that cannot be used is logged: an edge serves without its history.
func (k *Keeper) Open(now time.Time) {
	k.hours = make(map[time.Time]*Hour)
	if k.Dir == "" {
		return
	}
	err := os.Mkdir(k.Dir, 0o700)
	var files []os.DirEntry
	if err == nil || os.IsExist(err) {
		files, err = os.ReadDir(k.Dir)
	}
	if err != nil {
		k.failed = err.Error()
		k.Log.Error("the history cannot be kept in state_dir", "folder", k.Dir, "error", err)
	}
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name(), ".json")
		start, err := time.Parse(layout, name)
		if !is || err != nil || now.Sub(start) > Kept*time.Hour || start.After(now) {
			continue
		}
		h, err := read(filepath.Join(k.Dir, f.Name()))
		if err != nil {
			k.Log.Warn("an hour of the history cannot be read and is left out", "file", filepath.Join(k.Dir, f.Name()), "error", err)
			continue
		}
		h.Start = start
		k.hours[start] = h
	}
}

func read(file string) (*Hour, error) {
	text, err := regular.Read(file, maxFile)
	if err != nil {
		return nil, err
	}
	h := new(Hour)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, err
	}
	maps.DeleteFunc(h.Rules, func(_ string, c *Counts) bool { return c == nil })
	return h, nil
}

// Run keeps the history until ctx is done, and then writes what is left.
func (k *Keeper) Run(ctx context.Context) {
	k.begin(time.Now())
	for {
		next := time.Now().Truncate(every).Add(every)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			k.step(time.Now())
			return
		case <-timer.C:
			k.step(time.Now())
		}
	}
}

func (k *Keeper) begin(now time.Time) {
	s := k.Look()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.before, k.at = s, now
}

// step takes in what came since the last one, which belongs to the hour in which it began, and writes that hour.
func (k *Keeper) step(now time.Time) {
	s := k.Look()
	k.mu.Lock()
	start := k.at.UTC().Truncate(time.Hour)
	h := k.hours[start]
	if h == nil {
		h = &Hour{Start: start}
		k.hours[start] = h
	}
	h.take(&k.before, &s, min(max(now.Sub(k.at), 0), 2*every))
	k.before, k.at = s, now
	text, _ := json.Marshal(h.cut(topKept)) // numbers and texts
	maps.DeleteFunc(k.hours, func(at time.Time, _ *Hour) bool { return now.Sub(at) > Kept*time.Hour })
	k.mu.Unlock()
	if k.Dir == "" {
		return
	}
	err := k.write(start, text, now)
	k.mu.Lock()
	had := k.failed
	if k.failed = ""; err != nil {
		k.failed = err.Error()
	}
	k.mu.Unlock()
	switch {
	case err != nil && had == "":
		k.Log.Error("the history cannot be kept in state_dir", "folder", k.Dir, "error", err)
	case err == nil && had != "":
		k.Log.Info("the history is kept again")
	}
}

// write puts an hour in the place of its file, and removes files of hours that are older than a week.
func (k *Keeper) write(start time.Time, text []byte, now time.Time) error {
	file := filepath.Join(k.Dir, start.Format(layout)+".json")
	draft := filepath.Join(k.Dir, ".draft")
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(draft, file); err != nil {
		return err
	}
	files, err := os.ReadDir(k.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		at, err := time.Parse(layout, strings.TrimSuffix(f.Name(), ".json"))
		if err == nil && now.Sub(at) > Kept*time.Hour {
			if err := os.Remove(filepath.Join(k.Dir, f.Name())); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// rose is how much a count rose, which begins anew where it fell: the rule was removed and came again.
func rose(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// take adds what came between two snapshots.
func (h *Hour) take(before, now *Snapshot, took time.Duration) {
	h.Seconds += took.Seconds()
	h.Received += rose(before.Received, now.Received)
	h.Refused += rose(before.Refused, now.Refused)
	for name, c := range now.Rules {
		b := before.Rules[name]
		h.rule(name).add(Counts{rose(b.Passed, c.Passed), rose(b.Refused, c.Refused), rose(b.Shadow, c.Shadow), rose(b.Blocks, c.Blocks)})
	}
	for by, l := range now.Tops {
		h.heavier(by, before.Tops[by], l)
	}
}

// rule is what a rule did, or, where there is no room for more, what others did.
func (h *Hour) rule(name string) *Counts {
	if h.Rules == nil {
		h.Rules = make(map[string]*Counts)
	}
	if c := h.Rules[name]; c != nil {
		return c
	}
	if len(h.Rules) >= AllRules-1 {
		name = Others
	}
	if h.Rules[name] == nil {
		h.Rules[name] = new(Counts)
	}
	return h.Rules[name]
}

// heavier adds to sources what they asked for at least between two lists. Counts that were halved meanwhile, were halved before as well.
func (h *Hour) heavier(by string, before, now top.List) {
	least := make(map[string]uint64, len(before.Heavy))
	for _, s := range before.Heavy {
		least[s.Source] = (s.Count - min(s.Error, s.Count)) >> min(now.Fades-min(before.Fades, now.Fades), 63)
	}
	more := make(map[string]uint64)
	for _, s := range now.Heavy {
		if n := rose(least[s.Source], s.Count-min(s.Error, s.Count)); n > 0 {
			more[s.Source] = n
		}
	}
	h.addTop(by, more, topKnown)
}

func (h *Hour) addTop(by string, more map[string]uint64, most int) {
	for _, s := range h.Top[by] {
		more[s.Source] += s.Count
	}
	list := make([]Heavy, 0, len(more))
	for source, n := range more {
		list = append(list, Heavy{source, n})
	}
	slices.SortFunc(list, func(a, b Heavy) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Source, b.Source)) })
	if h.Top == nil {
		h.Top = make(map[string][]Heavy)
	}
	h.Top[by] = list[:min(len(list), most)]
}

// cut is the hour with at most n sources of each list. It shares nothing that changes.
func (h *Hour) cut(n int) Hour {
	c := *h
	c.Rules, c.Top = make(map[string]*Counts, len(h.Rules)), make(map[string][]Heavy, len(h.Top))
	for name, r := range h.Rules {
		own := *r
		c.Rules[name] = &own
	}
	for by, list := range h.Top {
		c.Top[by] = slices.Clone(list[:min(len(list), n)])
	}
	return c
}

// History is the last hours, the newest first.
type History struct {
	// Unkept is why the history is not kept on disk, so that it begins with the process; "": it is.
	Unkept string `json:"unkept,omitempty"`
	Hours  []Hour `json:"hours"`
}

// Last are the last n hours, as far as anything is known of them, with at most so many sources of each list.
func (k *Keeper) Last(n, sources int, now time.Time) History {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := History{Unkept: k.failed, Hours: []Hour{}}
	if k.Dir == "" {
		all.Unkept = "there is no state_dir"
	}
	for at, h := range k.hours {
		if now.Sub(at) < time.Duration(n)*time.Hour {
			all.Hours = append(all.Hours, h.cut(sources))
		}
	}
	sortHours(all.Hours)
	return all
}

// LastShort is Last with less detail: of each hour the rules that refused most, and the rest of them under Others.
func (k *Keeper) LastShort(n, sources, rules int, now time.Time) History {
	all := k.Last(n, sources, now)
	for i := range all.Hours {
		all.Hours[i].fold(rules)
	}
	return all
}

// fold leaves the n rules that refused most, and adds up the rest under Others.
func (h *Hour) fold(n int) {
	if len(h.Rules) <= n {
		return
	}
	names := slices.SortedFunc(maps.Keys(h.Rules), func(a, b string) int {
		return cmp.Or(cmp.Compare(h.Rules[b].Refused, h.Rules[a].Refused), cmp.Compare(h.Rules[b].Blocks, h.Rules[a].Blocks), cmp.Compare(a, b))
	})
	var rest Counts
	for _, name := range names[n:] {
		rest.add(*h.Rules[name])
		delete(h.Rules, name)
	}
	if had := h.Rules[Others]; had != nil {
		rest.add(*had)
	}
	h.Rules[Others] = &rest
}

func sortHours(list []Hour) {
	slices.SortFunc(list, func(a, b Hour) int { return b.Start.Compare(a.Start) })
}

// Sum is what several edges did together.
func Sum(all ...History) History {
	sum, hours := History{Hours: []Hour{}}, make(map[time.Time]*Hour)
	for _, one := range all {
		sum.Unkept = cmp.Or(sum.Unkept, one.Unkept)
		for _, h := range one.Hours {
			to := hours[h.Start]
			if to == nil {
				to = &Hour{Start: h.Start}
				hours[h.Start] = to
			}
			to.Seconds += h.Seconds
			to.Received += h.Received
			to.Refused += h.Refused
			for name, c := range h.Rules {
				if c != nil {
					to.rule(name).add(*c)
				}
			}
			for by, list := range h.Top {
				more := make(map[string]uint64, len(list))
				for _, s := range list {
					more[s.Source] = s.Count
				}
				to.addTop(by, more, topKnown)
			}
		}
	}
	for _, h := range hours {
		sum.Hours = append(sum.Hours, h.cut(topKept))
	}
	sortHours(sum.Hours)
	return sum
}
