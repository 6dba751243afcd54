package wall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/wall/record"
)

// A helper is a sluice-wall in memory, with entries that end.
type helper struct {
	mu      sync.Mutex
	ends    map[netip.Prefix]time.Time
	refused map[netip.Prefix]uint64
	total   uint64
	lease   time.Duration
	max     int
	foreign uint16
	wrong   record.Code // what it says to everything
	gone    bool
	hangs   chan struct{} // closed when it goes on; nil: it does not hang
	told    int           // records
	conns   []net.Conn
}

func newHelper() *helper {
	return &helper{ends: make(map[netip.Prefix]time.Time), refused: make(map[netip.Prefix]uint64), lease: 10 * time.Second, max: 100}
}

func (h *helper) dial(context.Context, string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return nil, errors.New("no such file or directory")
	}
	edge, ours := net.Pipe()
	h.conns = append(h.conns, ours)
	go h.serve(ours)
	return edge, nil
}

func (h *helper) serve(c net.Conn) {
	defer c.Close()
	var answers []byte
	for {
		var b [record.Size]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return
		}
		r, err := record.Parse(b[:])
		if err != nil {
			return
		}
		h.mu.Lock()
		hangs := h.hangs
		h.mu.Unlock()
		if hangs != nil {
			<-hangs
		}
		h.mu.Lock()
		h.told++
		for p, end := range h.ends {
			if !time.Now().Before(end) {
				delete(h.ends, p)
				delete(h.refused, p)
			}
		}
		say := func(r record.Record) { answers = r.Append(answers) }
		_, there := h.ends[r.Prefix]
		switch {
		case h.wrong != record.OK:
			say(record.Record{Op: record.Hello, Code: h.wrong})
		case r.Op == record.Hello:
			say(record.Record{Op: record.Hello, A: uint64(h.lease.Milliseconds()), B: uint64(h.max)})
		case r.Op == record.Port && uint16(r.A) == h.foreign:
			say(record.Record{Op: record.Port, Code: record.ForeignPort, A: r.A})
		case r.Op == record.Add && !there && len(h.ends) >= h.max:
			say(record.Record{Op: record.Add, Code: record.Full, Prefix: r.Prefix, B: uint64(h.max)})
		case r.Op == record.Add:
			h.ends[r.Prefix] = time.Now().Add(time.Duration(r.A) * time.Millisecond)
		case r.Op == record.Delete:
			delete(h.ends, r.Prefix)
			delete(h.refused, r.Prefix)
		case r.Op == record.Flush:
			clear(h.ends)
			clear(h.refused)
		case r.Op == record.Commit:
			say(r)
		case r.Op == record.Report:
			for p, n := range h.refused {
				say(record.Record{Op: record.Report, Prefix: p, A: n})
			}
			say(record.Record{Op: record.Report, A: h.total, B: uint64(len(h.ends))})
		}
		h.mu.Unlock()
		if r.Op == record.Commit || r.Op == record.Report {
			if _, err := c.Write(answers); err != nil {
				return
			}
			answers = answers[:0]
		}
	}
}

// syn is what the kernel does with a connection from a source.
func (h *helper) syn(p netip.Prefix, n uint64) (refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if end, there := h.ends[p]; there && time.Now().Before(end) {
		h.refused[p] += n
		h.total += n
		return true
	}
	return false
}

func (h *helper) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	for _, c := range h.conns {
		c.Close()
	}
}

// A world is an edge's blocks, its wall and a helper, in a bubble.
type world struct {
	*Wall
	helper *helper

	mu      sync.Mutex
	blocks  map[netip.Prefix]time.Time
	changed uint64
	socket  string
	leaves  bool
	warned  []string
}

func prefix(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
}

// within runs a test in a bubble with a wall that runs.
func within(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{helper: newHelper(), blocks: make(map[netip.Prefix]time.Time), socket: "wall.sock"}
		ask := func(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }
		w.Wall = New(Options{
			Socket:  func() (s string) { ask(func() { s = w.socket }); return s },
			Ports:   func() []uint16 { return []uint16{80, 443} },
			Changes: func() (n uint64) { ask(func() { n = w.changed }); return n },
			Leaving: func() (is bool) { ask(func() { is = w.leaves }); return is },
			Blocked: func(p netip.Prefix, now time.Time) (until time.Time) {
				ask(func() {
					if end := w.blocks[p]; now.Before(end) {
						until = end
					}
				})
				return until
			},
			Warn: func(message string, args ...any) {
				ask(func() { w.warned = append(w.warned, fmt.Sprint(message, args)) })
			},
			Dial: w.helper.dial,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		time.Sleep(10 * time.Millisecond)
		f(w)
		cancel()
		<-ended
		w.helper.kill()
		synctest.Wait()
	})
}

func (w *world) block(p netip.Prefix, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks[p] = time.Now().Add(d)
}

func (w *world) lift(p netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.blocks, p)
	w.changed++
}

// knocks has a source connect until the kernel refuses it, and returns how long that took.
func (w *world) knocks(t *testing.T, p netip.Prefix) time.Duration {
	t.Helper()
	began := time.Now()
	for !w.helper.syn(p, 1) {
		if time.Since(began) > time.Second {
			t.Fatalf("%v is not refused by the kernel", p)
		}
		w.Knock(p)
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// admitted returns how long a source that goes on knocking is refused from now on.
func (w *world) admitted(t *testing.T, p netip.Prefix) time.Duration {
	t.Helper()
	began := time.Now()
	for w.helper.syn(p, 1) {
		if time.Since(began) > time.Hour {
			t.Fatalf("%v is refused for ever", p)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// TestKnockIsRefused: at once, as long as the block, with leases that are no longer than the helper's; and nobody who is not blocked.
func TestKnockIsRefused(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Minute)
		if took := w.knocks(t, prefix(1)); took > 10*time.Millisecond {
			t.Errorf("refused after %v", took)
		}
		w.Knock(prefix(2))
		time.Sleep(time.Second)
		if w.helper.syn(prefix(2), 1) {
			t.Error("refused, and not blocked")
		}
		began := time.Now()
		if w.admitted(t, prefix(1)); time.Since(began) < 58*time.Second || time.Since(began) > time.Minute {
			t.Errorf("admitted after %v, and the block is of a minute", time.Since(began))
		}
		if s := w.Status(); !s.Up || s.Refused < 1000 || s.Room != 100 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLift: a lifted block is deleted within a second, whatever else is sent.
func TestLift(t *testing.T) {
	within(t, func(w *world) {
		for n := range 50 {
			w.block(prefix(n), time.Hour)
			w.knocks(t, prefix(n))
		}
		for n := range 50 {
			w.lift(prefix(n))
			if took := w.admitted(t, prefix(n)); took > 500*time.Millisecond {
				t.Errorf("admitted %v after the lift", took)
			}
		}
	})
}

// TestShortenedBlock: what is blocked for less long than it was is admitted then.
func TestShortenedBlock(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		w.block(prefix(1), 2*time.Second)
		w.mu.Lock()
		w.changed++
		w.mu.Unlock()
		if took := w.admitted(t, prefix(1)); took > 2100*time.Millisecond || took < 1900*time.Millisecond {
			t.Errorf("admitted after %v", took)
		}
	})
}

// TestQuietLeaves: a source that knocks no more loses its entry, which is renewed no more.
func TestQuietLeaves(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		time.Sleep(25 * time.Second)
		if s := w.Status(); s.Entries != 0 || w.helper.syn(prefix(1), 1) {
			t.Errorf("%+v", s)
		}
		if took := w.knocks(t, prefix(1)); took > 10*time.Millisecond {
			t.Errorf("refused again after %v", took)
		}
		if e, in := w.Of(prefix(1)); !in || time.Since(e.Since) > time.Second {
			t.Errorf("%+v %t", e, in)
		}
	})
}

// TestAttempts: the refusals of an entry, and of all, over renewals.
func TestAttempts(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		for range 60 {
			time.Sleep(time.Second)
			w.helper.syn(prefix(1), 100)
		}
		time.Sleep(12 * time.Second)
		e, in := w.Of(prefix(1))
		if s := w.Status(); !in || e.Attempts != 6001 || s.Refused != 6001 {
			t.Errorf("%+v %t, %+v", e, in, s)
		}
	})
}

// TestCountOfAHelper: an edge that connects again does not count once more what the helper has refused before, nor what it refused meanwhile.
func TestCountOfAHelper(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		w.helper.syn(prefix(1), 100)
		time.Sleep(12 * time.Second)
		w.helper.kill()
		time.Sleep(time.Minute)
		w.helper.mu.Lock()
		w.helper.gone = false
		w.helper.total += 1000
		w.helper.mu.Unlock()
		time.Sleep(12 * time.Second)
		w.knocks(t, prefix(1))
		w.helper.syn(prefix(1), 10)
		time.Sleep(12 * time.Second)
		if s := w.Status(); !s.Up || s.Refused != 112 {
			t.Errorf("%+v, want 112 refused", s)
		}
	})
}

// TestHelperIsKilled: what was refused is admitted within a lease, an operator is warned once, and the next helper gets the sources that knock.
func TestHelperIsKilled(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		first := w.helper
		first.kill()
		if took := w.admitted(t, prefix(1)); took > 10*time.Second {
			t.Errorf("admitted after %v", took)
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		warned := slices.Clone(w.warned)
		w.mu.Unlock()
		if s := w.Status(); s.Up || s.Entries != 0 || len(warned) > 2 || !strings.Contains(warned[len(warned)-1], "no such file") {
			t.Errorf("%+v %q", s, warned)
		}
		first.mu.Lock()
		first.gone = false
		first.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.knocks(t, prefix(1))
		if s := w.Status(); !s.Up {
			t.Errorf("%+v", s)
		}
	})
}

// TestHelperGoes: an edge that has nothing to say knows at once that the helper has gone, and says so.
func TestHelperGoes(t *testing.T) {
	within(t, func(w *world) {
		if !w.Status().Up {
			t.Fatalf("%+v", w.Status())
		}
		w.helper.kill()
		synctest.Wait()
		s := w.Status()
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.Up || len(w.warned) != 1 || !strings.Contains(w.warned[0], "sluice-wall has gone") {
			t.Errorf("%+v %q", s, w.warned)
		}
	})
}

// TestHelperHangs: what it holds ends by itself, and the edge does not wait for it.
func TestHelperHangs(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		goes := make(chan struct{})
		w.helper.mu.Lock()
		w.helper.hangs = goes
		w.helper.mu.Unlock()
		for range 3 * knocksWaiting {
			w.Knock(prefix(2))
		}
		if took := w.admitted(t, prefix(1)); took > 10*time.Second {
			t.Errorf("admitted after %v", took)
		}
		time.Sleep(10 * time.Second)
		if w.Status().Up {
			t.Error("a helper that hangs is up")
		}
		w.helper.mu.Lock()
		w.helper.hangs = nil
		w.helper.mu.Unlock()
		close(goes)
		time.Sleep(5 * time.Second)
		w.knocks(t, prefix(1))
	})
}

// TestEdgeIsKilled: nothing is renewed, and the next edge begins with an empty set.
func TestEdgeIsKilled(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		w.mu.Lock()
		w.leaves = true
		w.mu.Unlock()
		if took := w.admitted(t, prefix(1)); took > 10*time.Second {
			t.Errorf("admitted after %v", took)
		}
	})
}

// TestWantedNoMore: a configuration without shed: kernel admits everybody at once.
func TestWantedNoMore(t *testing.T) {
	within(t, func(w *world) {
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		w.mu.Lock()
		w.socket = ""
		w.mu.Unlock()
		if took := w.admitted(t, prefix(1)); took > time.Second {
			t.Errorf("admitted after %v", took)
		}
		if s := w.Status(); s.Up || s.Error != "" {
			t.Errorf("%+v", s)
		}
	})
}

// TestRefusingHelper: what the helper finds wrong is in the status and in the warning.
func TestRefusingHelper(t *testing.T) {
	for code, want := range map[record.Code]string{record.WrongUser: "--user", record.Crowded: "takes no more", record.Kernel: "the kernel refused", record.Malformed: "same release"} {
		within(t, func(w *world) {
			w.helper.mu.Lock()
			w.helper.wrong = code
			w.helper.mu.Unlock()
			w.block(prefix(1), time.Hour)
			w.Knock(prefix(1))
			time.Sleep(time.Minute)
			s := w.Status()
			w.mu.Lock()
			defer w.mu.Unlock()
			if s.Up || !strings.Contains(s.Error, want) || len(w.warned) != 1 {
				t.Errorf("%d: %+v %q", code, s, w.warned)
			}
		})
	}
}

// TestForeignPort: the other ports are guarded, and an operator is warned.
func TestForeignPort(t *testing.T) {
	within(t, func(w *world) {
		w.helper.mu.Lock()
		w.helper.foreign = 443
		for _, c := range w.helper.conns {
			c.Close()
		}
		w.helper.mu.Unlock()
		time.Sleep(3 * time.Second)
		w.block(prefix(1), time.Hour)
		w.knocks(t, prefix(1))
		w.mu.Lock()
		defer w.mu.Unlock()
		if last := w.warned[len(w.warned)-1]; !strings.Contains(last, "port 443") {
			t.Errorf("%q", w.warned)
		}
	})
}

// TestFull: the set holds those that knock most, and the rest costs the edge what it did.
func TestFull(t *testing.T) {
	within(t, func(w *world) {
		w.helper.mu.Lock()
		w.helper.max = 10
		for _, c := range w.helper.conns {
			c.Close()
		}
		w.helper.mu.Unlock()
		time.Sleep(3 * time.Second)
		for n := range 30 {
			w.block(prefix(n), time.Hour)
		}
		for range 150 { // the later a source, the heavier
			for n := range 30 {
				if !w.helper.syn(prefix(n), uint64(1+n*n/8)) {
					for range 1 + n*n/8 {
						w.Knock(prefix(n))
					}
					synctest.Wait()
				}
			}
			time.Sleep(300 * time.Millisecond)
		}
		heavy := 0
		for n := 20; n < 30; n++ {
			if _, in := w.Of(prefix(n)); in {
				heavy++
			}
		}
		if s := w.Status(); s.Entries != 10 || s.Turned == 0 || heavy < 8 {
			t.Errorf("%+v, of which %d are the heaviest", s, heavy)
		}
	})
}

// TestManyWait: who knocks often is known by it, however many others knock.
func TestManyWait(t *testing.T) {
	var s set
	now := time.Unix(1_700_000_000, 0)
	s.init(func(netip.Prefix, time.Time) time.Time { return now.Add(time.Hour) })
	s.start(10*time.Second, 1)
	for n := range 40_000 {
		s.knock(prefix(n), now)
		if s.knock(prefix(1<<16-1), now); len(s.waiting) > 1+moreWaiting {
			t.Fatalf("%d wait", len(s.waiting))
		}
	}
	s.tidy(now.Add(time.Second))
	if s.entries[prefix(1<<16-1)] == nil || len(s.entries) != 1 {
		t.Errorf("the heaviest is not among %d", len(s.entries))
	}
}
