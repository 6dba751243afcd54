package plans

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

// A Change is a quota in a store, or that it is gone.
type Change struct {
	Key     string // of the client, as the store has it
	Quota   Quota
	Removed bool
}

// A Mark is up to where a store has been read.
type Mark struct {
	Store  string `json:"store"`  // which one it is: another begins at its own beginning
	Change int64  `json:"change"` // the number of its last change
}

// A Store keeps quotas for all edges. Each change has a number, one above the last, and is seen by
// every later read. It is safe for concurrent use.
type Store interface {
	// Changes hands over what has changed since a mark, the oldest first. Where the mark is not one
	// of this store, or too old, it hands over all that there is, and calls begin with true before.
	// It returns the mark for the next time.
	Changes(ctx context.Context, since Mark, begin func(all bool), each func(Change)) (Mark, error)
	// Put keeps a quota of a client under the first of the keys, replacing one under any of them
	// that begins with it. One that has begun by now and has no end replaces all that have begun.
	// One with an end replaces only those that end by then, and equal ones: others that have begun
	// are in force again afterwards.
	Put(ctx context.Context, keys []string, q Quota, by Author, now time.Time) error
	// Delete takes the quotas of a client away, under one rule or, where rule is nil, all of them,
	// and returns how many those are.
	Delete(ctx context.Context, keys []string, rule *string, by Author, now time.Time) (int, error)
	// History is the changes of a client and their authors, the newest first: the last ones, and
	// those that made what is in force now.
	History(ctx context.Context, keys []string) ([]Entry, error)
	// List is the clients of whom something is said, as the store has them and in its order: at
	// most n of those after one ("": the first). With a plan they are those with a quota of that
	// plan that is not over.
	List(ctx context.Context, after, plan string, n int, now time.Time) ([]string, error)
	Close() error
}

// An Author is the author of a change, as far as known.
type Author struct {
	Who  string // as the operator calls himself
	From string // the address that he came from
	Edge string // the edge that he spoke to
}

// An Entry is a change that an operator made.
type Entry struct {
	Change  int64 // its number
	At      int64 // Unix milliseconds
	Does    Does
	Quota   Quota // of DeleteUnder the rule alone; of DeleteAll nothing
	By      Author
	Current bool // the quota stands as this change made it
}

// Does is what a change did.
type Does string

const (
	Set         Does = "set"
	DeleteUnder Does = "deleted"     // all under Quota.Rule
	DeleteAll   Does = "deleted all" // whatever the rule
)

// A Loader keeps a store's content in memory, and reads what changes. Its fields are set before
// Load.
type Loader struct {
	Store   Store
	Refresh time.Duration
	// Source is the client that a store's key stands for. It reports false for what is no key.
	Source func(key string) (counter.Source, bool)
	// Edge is what operators call this edge.
	Edge string
	// Publish is called with every Snapshot that comes into force, one at a time.
	Publish func(*Snapshot)
	// Copy is a file that has what was read last, for a start while the store is away; "": there is
	// none. It holds no keys but digests, which mean nothing without the PoP's secret. Check stands
	// for that secret.
	Copy, Check string
	// Warn is called when the store goes away, and when it is back. It must not block.
	Warn func(message string, args ...any)

	wake chan struct{} // holds one where Run should look at the time again
	// Holds one while the store is read, which may take long: mu is held only after it
	reading chan struct{}
	mu      sync.Mutex
	book    *Builder
	snap    *Snapshot
	mark    Mark
	saved   Mark
	down    bool
	unkept  error // why the copy was not written last
	read    time.Time
}

// How long the store may take: to hand over a million quotas, and for what has changed.
const (
	loadTime = time.Minute
	readTime = 5 * time.Second
	saveTime = time.Minute // between two copies
)

var errSlow = errors.New("no answer in time")

// Load reads all that there is. While the store is away, an edge starts with its copy; without one
// that is the error, because clients that pay for more would be held to the limits of those that do
// not.
func (k *Loader) Load(ctx context.Context) error {
	k.book, k.wake, k.reading = new(Builder), make(chan struct{}, 1), make(chan struct{}, 1)
	copied := false
	if k.Copy != "" {
		switch err := k.restore(); {
		case err == nil:
			copied = true
		case !errors.Is(err, fs.ErrNotExist):
			k.Warn("the copy of the plans cannot be used: the store is read instead", "file",
				k.Copy, "error", err)
		}
	}
	err := k.update(ctx)
	if err != nil && !copied {
		return fmt.Errorf("plans.store: %w: without it, and without a copy in state_dir, no client's plan is known; start the store first", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.away(err)
	}
	k.publish(time.Now())
	return nil
}

// Run reads what changes, and has quotas begin and end, until ctx is done. A store that takes its
// time does not hold up the latter.
func (k *Loader) Run(ctx context.Context) {
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() { k.follow(ctx) })
	for {
		timer := time.NewTimer(k.due())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-k.wake:
			timer.Stop()
		}
	}
}

// due publishes what is in force since a quota began or ended, and returns when to look at the
// clock again: it may step.
func (k *Loader) due() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if next := k.snap.Next(); now.UnixMilli() < k.book.now || !next.IsZero() && !next.After(now) {
		k.publish(now)
	}
	wait := k.Refresh
	if next := k.snap.Next(); !next.IsZero() {
		wait = min(wait, max(0, next.Sub(now)))
	}
	return wait
}

// follow reads the store again and again.
func (k *Loader) follow(ctx context.Context) {
	defer k.save()
	tick, saved := time.NewTicker(k.Refresh), time.Now()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := k.update(ctx)
		k.mu.Lock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			k.away(err)
		case k.down:
			k.down = false
			k.Warn("the store of the plans is back")
		}
		k.mu.Unlock()
		if time.Since(saved) >= saveTime {
			k.save()
			saved = time.Now()
		}
	}
}

func (k *Loader) away(err error) {
	k.read = time.Now()
	if !k.down {
		k.down = true
		k.Warn("the store of the plans does not answer: what was read last stays in force", "error",
			err)
	}
}

// update reads what has changed, and has it in force.
func (k *Loader) update(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(readTime, func() { cancel(errSlow) })
	defer patience.Stop()
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var all *Builder // nil: only what has changed is read
	var changed []Change
	now, odd := time.Now(), 0
	mark, err := k.Store.Changes(ctx, k.mark, func(is bool) {
		if is {
			all = &Builder{now: now.UnixMilli()}
			patience.Reset(loadTime)
		}
	}, func(c Change) {
		if all == nil {
			changed = append(changed, c)
		} else if !k.say(all, c) {
			odd++
		}
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if all != nil {
		k.book = all
	}
	for _, c := range changed {
		if !k.say(k.book, c) {
			odd++
		}
	}
	if odd > 0 {
		k.Warn("the store of the plans has what no edge has written: it is passed over", "quotas",
			odd)
	}
	before := k.mark
	k.mark, k.read = mark, now
	if mark != before {
		k.publish(time.Now())
		select {
		case k.wake <- struct{}{}: // it may begin or end before the next look at the clock
		default:
		}
	}
	return nil
}

// say has a book take in a change. It reports false for one that cannot be: then nothing is said.
func (k *Loader) say(book *Builder, c Change) bool {
	client, ok := k.Source(c.Key)
	if !ok {
		return false
	}
	can := c.Removed || c.Quota.Limit <= algorithm.MaxLimit
	book.Put(client, c.Quota, c.Removed || !can)
	return can
}

func (k *Loader) publish(now time.Time) {
	k.snap = k.book.Snapshot(now)
	k.Publish(k.snap)
}

// ErrKey says that a key cannot be a client's.
var ErrKey = errors.New("plans: that is no key: want 1 to 256 visible characters, as a client sends them")

// Put keeps a quota of a client, and has it in force here at once. Of its keys the first is the one
// that it is kept under, and the others are those that it may have been kept under before.
func (k *Loader) Put(ctx context.Context, keys []string, q Quota, by Author) error {
	by.Edge = k.Edge
	return k.change(ctx, func(ctx context.Context) error {
		return k.Store.Put(ctx, keys, q, by, time.Now())
	})
}

// Delete takes quotas of a client away, under one rule or all of them (nil), and returns how many.
func (k *Loader) Delete(ctx context.Context, keys []string, rule *string,
	by Author) (n int, err error) {
	by.Edge = k.Edge
	err = k.change(ctx, func(ctx context.Context) (err error) {
		n, err = k.Store.Delete(ctx, keys, rule, by, time.Now())
		return err
	})
	return n, err
}

// History is the changes of a client and their authors, the newest first. It reads the store.
func (k *Loader) History(ctx context.Context, keys []string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	list, err := k.Store.History(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrSilent, err)
	}
	return list, nil
}

// List is clients of whom something is said, as the store has them: the next n after one, those
// with a quota of a plan or all (""). It reads the store, and has in force here what others have
// changed there.
func (k *Loader) List(ctx context.Context, after, plan string, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	err := k.update(ctx)
	var list []string
	if err == nil {
		list, err = k.Store.List(ctx, after, plan, n, time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrSilent, err)
	}
	return list, nil
}

// ErrSilent says that the store cannot be read.
var ErrSilent = errors.New("plans: the store cannot be read")

// ErrAway says that the store does not take a change.
var ErrAway = errors.New("plans: the store does not take it, and nothing is changed")

// Look reads what has changed in the store by now, so that a change is not reported together with
// others' earlier ones.
func (k *Loader) Look(ctx context.Context) error {
	if err := k.update(ctx); err != nil {
		return fmt.Errorf("%w: %v", ErrAway, err)
	}
	return nil
}

func (k *Loader) change(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%w: %v", ErrAway, err)
	}
	_ = k.update(ctx) // if not, it is kept, and will be read
	return nil
}

// Status is how the store is.
type Status struct {
	Up      bool
	Read    time.Time // when it was read last
	Clients int
	Unkept  error // why the copy cannot be written; nil: it can, or there is none
}

// Status may be called from anywhere.
func (k *Loader) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Status{Up: !k.down, Read: k.read, Clients: k.snap.Clients(), Unkept: k.unkept}
}
