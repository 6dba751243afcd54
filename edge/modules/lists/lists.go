// Package lists keeps named lists of addresses: those of partners, of a search engine's robots, of
// a public blocklist. A list is in a file or at a URL, in one of the forms that lists have (parse).
//
// A Store has the lists of a configuration. Each is read before it is in force, and looked at again
// every Config.Refresh. What is read replaces the content at once and whole; whoever looks an
// address up takes no lock (address.List). What cannot be had, or has a bad line, changes nothing:
// the last good content stays in force, which is an event and a metric. That of a URL is also kept
// in a folder, so that a process starts without the network.
package lists

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge/address"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/edge/regular"
)

// Where names the place that a list is read from, without a password.
func (c *Config) Where() string {
	if c.File != "" {
		return string(c.File)
	}
	return redacted(string(c.URL))
}

// A Store keeps lists. Its fields are set before Prepare; all may be left out. It is safe for
// concurrent use.
type Store struct {
	// Dir is where the contents of URLs are kept for the next start; "": nowhere.
	Dir string
	// Events is told what changes, and what cannot be read.
	Events *events.Log
	// Offline has no URL asked: what Dir has of it is in force, else nothing.
	Offline bool

	first sync.Once // sets Dir and Events of a module
	mu    sync.Mutex
	ready map[Config]*list // what Fetch has read for Prepare
	lists map[string]*list // in force, by name
	woken chan struct{}    // closed when the lists are others
}

// A list is one of a Store.
type list struct {
	Config
	content *address.List

	failed  error             // why it could not be begun
	looking sync.Mutex        // one look at a time
	digest  [sha256.Size]byte // of what is in force
	tags    validators        // of a URL's answer, as the next request sends them
	unkept  bool              // its copy could not be written, which has been told

	mu     sync.Mutex
	status Status
	next   time.Time // when to look again
	fresh  *answer   // what a URL has answered and Dir has not; nil: nothing
}

// Status is how a list stands.
type Status struct {
	Name    string `json:"name"`
	From    string `json:"from"` // its file or URL
	URL     bool   `json:"-"`
	Entries int    `json:"entries"`
	// When its content was last found to be what the file or the URL has
	Read     time.Time `json:"read,omitzero"`
	Changed  time.Time `json:"changed,omitzero"` // when it came into force
	Failures uint64    `json:"failures"`         // looks that have failed
	Error    string    `json:"error,omitempty"`  // of the last look; "": it was good
	// FailingSince is when the first look failed of those since the last good one; zero: the last
	// was good.
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// Prepare reads those of the lists that are not in force as they are configured, and returns all of
// them by name. None is in force before use is called, and those that were stay in force. It is an
// error if a file cannot be read, or a URL that Dir has nothing of: a list that is empty by
// accident would refuse, or admit, whom nobody meant.
func (b *Store) Prepare(configs []Config) (all map[string]*address.List, use func(), err error) {
	// What Fetch has not read: at a start, which a signal ends
	next := b.read(context.Background(), configs)
	all = make(map[string]*address.List, len(next))
	var errs []error
	for _, c := range configs {
		all[c.Name] = next[c.Name].content
		errs = append(errs, next[c.Name].failed)
	}
	use = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lists = next
		if b.woken != nil {
			close(b.woken)
			b.woken = nil
		}
	}
	return all, use, errors.Join(errs...)
}

// Fetch reads what Prepare of the same lists would have to read, for it, and until forget is
// called. Who calls Prepare under a lock calls Fetch before: a URL may take its time, which ends
// with ctx.
func (b *Store) Fetch(ctx context.Context, configs []Config) (forget func()) {
	read := b.read(ctx, configs)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready == nil {
		b.ready = make(map[Config]*list)
	}
	for name, l := range read {
		if b.lists[name] != l {
			b.ready[l.Config] = l
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range read {
			if b.ready[l.Config] == l {
				delete(b.ready, l.Config)
			}
		}
	}
}

// read returns lists by name: those in force that stay as they are configured, and the others,
// begun.
func (b *Store) read(ctx context.Context, configs []Config) map[string]*list {
	b.mu.Lock()
	before, ready := maps.Clone(b.lists), maps.Clone(b.ready)
	b.mu.Unlock()
	next := make(map[string]*list, len(configs))
	var reading sync.WaitGroup
	for _, c := range configs {
		l := before[c.Name]
		switch {
		case l != nil && l.Config == c:
		case ready[c] != nil:
			l = ready[c]
		default:
			had := l
			l = &list{Config: c, content: new(address.List)}
			if l.status = (Status{Name: c.Name, From: c.Where(), URL: c.URL != ""}); had != nil {
				l.status.Failures = had.Status().Failures
			}
			reading.Go(func() { l.failed = b.begin(ctx, l) })
		}
		next[c.Name] = l
	}
	reading.Wait()
	return next
}

// begin reads a list for the first time.
func (b *Store) begin(ctx context.Context, l *list) error {
	now := time.Now()
	if l.File == "" {
		restored := b.restore(l)
		if restored || b.Offline {
			l.next = now // at once, but nobody waits for it
			return nil
		}
	}
	err := b.look(ctx, l)
	l.next = now.Add(l.Refresh)
	switch {
	case err == nil:
		return nil
	case l.File != "":
		return fmt.Errorf("lists: %s: %w", l.Name, err)
	case b.Dir == "":
		return fmt.Errorf("lists: %s: %w; with state_dir, what was read last would be kept for such a start", l.Name, err)
	}
	return fmt.Errorf("lists: %s: %w; and %s has no good copy of an earlier answer", l.Name, err,
		b.Dir)
}

// Run looks at each list again when it is due, whatever the others do, until ctx is done. It alone
// writes into Dir.
func (b *Store) Run(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	looked, busy := make(chan *list), make(map[*list]bool)
	var kept map[string]*list
	for {
		b.mu.Lock()
		if b.woken == nil {
			b.woken = make(chan struct{})
		}
		woken, all := b.woken, b.lists
		b.mu.Unlock()
		for _, l := range all {
			b.keep(l)
		}
		if !maps.Equal(kept, all) {
			kept = all
			b.dropCopies(all)
		}
		wait := time.Hour
		for _, l := range all {
			switch left := time.Until(l.due()); {
			case busy[l]:
			case left <= 0:
				busy[l] = true
				looking.Go(func() {
					b.again(ctx, l)
					select {
					case looked <- l:
					case <-ctx.Done():
					}
				})
			default:
				wait = min(wait, left)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-woken:
		case l := <-looked:
			delete(busy, l)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ReadFiles looks at all files again, and returns when that is done, or ctx. Run looks at URLs
// soon.
func (b *Store) ReadFiles(ctx context.Context) {
	b.mu.Lock()
	all := b.lists
	if b.woken != nil {
		close(b.woken)
		b.woken = nil
	}
	for _, l := range all {
		l.mu.Lock()
		if l.File == "" {
			l.next = time.Now()
		}
		l.mu.Unlock()
	}
	b.mu.Unlock()
	var looking sync.WaitGroup
	for _, l := range all {
		if l.File != "" {
			looking.Go(func() { b.again(ctx, l) })
		}
	}
	looking.Wait()
}

func (b *Store) inForce(l *list) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lists[l.Name] == l
}

func (l *list) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// retry is how soon a list that could not be read is looked at again, unless its Refresh is sooner.
const retry = time.Minute

// again looks at a list, and tells what has changed. The same failure is told once.
func (b *Store) again(ctx context.Context, l *list) {
	l.looking.Lock()
	defer l.looking.Unlock()
	before := l.Status()
	err := b.look(ctx, l)
	if ctx.Err() != nil || !b.inForce(l) {
		return
	}
	now := l.Status()
	l.mu.Lock()
	if l.next = time.Now().Add(l.Refresh); err != nil {
		l.next = time.Now().Add(min(l.Refresh, retry))
	}
	l.mu.Unlock()
	e := events.Event{Time: time.Now(), Kind: events.List}
	switch {
	case err != nil && now.Error != before.Error:
		e.Level, e.Text = slog.LevelError,
			fmt.Sprintf("list %s cannot be read: its last good content stays in force: %s", l.Name,
				now.Error)
	case err == nil && now.Changed != before.Changed:
		e.Text, e.Old, e.New = "list "+l.Name+" has changed", Entries(before.Entries),
			Entries(now.Entries)
	case err == nil && before.Error != "":
		e.Text = "list " + l.Name + " can be read again, and has not changed"
	default:
		return
	}
	b.Events.Add(e)
}

// Entries is a number of them in words.
func Entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprint(n, " entries")
}

// look reads a list, and has it in force if it is good.
func (b *Store) look(ctx context.Context, l *list) error {
	var text []byte
	var tags validators
	var same bool
	var err error
	var fresh *answer
	if l.File != "" {
		text, err = readFile(ctx, l)
	} else {
		text, tags, same, err = fetch(ctx, l)
	}
	if err == nil && !same {
		before, had := l.digest, l.tags
		err = l.put(text, tags)
		if err == nil && l.URL != "" && b.Dir != "" && (l.digest != before || l.tags != had) {
			fresh = &answer{text, tags}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if fresh != nil {
		l.fresh = fresh
	}
	if l.status.Error = ""; err != nil {
		l.status.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
		if l.status.FailingSince.IsZero() {
			l.status.FailingSince = time.Now()
		}
		l.status.Failures++
		return err
	}
	l.status.Read, l.status.FailingSince = time.Now(), time.Time{}
	return nil
}

// put has what was read in force, if it is a list and another than before.
func (l *list) put(text []byte, tags validators) error {
	digest := sha256.Sum256(text)
	l.mu.Lock()
	same := digest == l.digest && !l.status.Changed.IsZero()
	l.mu.Unlock()
	if !same {
		prefixes, n, err := parse(&l.Config, text)
		if err != nil {
			return err
		}
		if n == 0 && l.URL != "" {
			return fmt.Errorf("%s: the answer has no entry: a list that is to be empty is a file",
				l.Where())
		}
		l.content.Set(prefixes)
		l.mu.Lock()
		l.digest, l.status.Entries, l.status.Changed = digest, n, time.Now()
		l.mu.Unlock()
	}
	l.tags = tags
	return nil
}

// Status may be called from anywhere.
func (l *list) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Status is how all lists stand, by name.
func (b *Store) Status() []Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []Status{}
	for _, name := range slices.Sorted(maps.Keys(b.lists)) {
		all = append(all, b.lists[name].Status())
	}
	return all
}

// Collect gives the metrics of all lists.
func (b *Store) Collect(to metric.Sink) {
	for _, s := range b.Status() {
		failing := 0.0
		if s.Error != "" {
			failing = 1
		}
		read := 0.0
		if !s.Read.IsZero() {
			read = float64(s.Read.UnixNano()) / 1e9
		}
		to.Gauge(float64(s.Entries), "sluice_list_entries",
			"Addresses and prefixes in a named list.", "list", s.Name)
		to.Gauge(read, "sluice_list_read_timestamp_seconds",
			"When a named list was last found to be what its file or URL has; 0: not since the start, which has used the copy in state_dir.", "list", s.Name)
		to.Count(s.Failures, "sluice_list_failures_total",
			"Looks at the file or the URL of a named list that have failed: its last good content stays in force.", "list", s.Name)
		to.Gauge(failing, "sluice_list_failing",
			"1: the latest look at the file or the URL of a named list has failed.", "list", s.Name)
	}
}

// settle is how long a file is left alone before what it has become is read: an editor writes it in
// pieces.
const settle = 200 * time.Millisecond

// readFile reads a file, which must be the same in two looks if it is another than before.
func readFile(ctx context.Context, l *list) ([]byte, error) {
	before := l.digest
	for range 5 {
		text, err := readBounded(l)
		if err != nil {
			return nil, err
		}
		now := sha256.Sum256(text)
		if now == before || l.Status().Changed.IsZero() {
			return text, nil
		}
		before = now
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%s: it is being written all the time", l.File)
}

func readBounded(l *list) ([]byte, error) {
	f, _, err := regular.Open(string(l.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := bounded(l, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", l.File, err)
	}
	return text, err
}

func validatorsOf(h http.Header) validators {
	return validators{h.Get("ETag"), h.Get("Last-Modified")}
}
