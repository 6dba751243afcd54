// Package wall has the kernel refuse new connections of sources that knock, which is to connect
// while they are blocked. It keeps the set of these sources, and sends its changes to a helper,
// sluice-wall.
//
// The edge closes the first connection of such a source itself, and calls Knock. From then on the
// kernel refuses the source's connections, which cost the edge nothing. Each entry in the kernel's
// set has a lease of seconds, which is renewed while the block holds; so the effect of anything
// that is lost between the edge and the helper, or with one of them, is over within a lease. The
// entry of a block that is lifted is deleted at once.
//
//	knock ──▶ wanted set ──▶ Add   ──▶ sluice-wall ──▶ set in the kernel
//	 blocks that ended ──▶ Delete            │
//	 lease half over   ──▶ Add               ▼
//	 what is quiet     ◀── Report: SYNs refused, by entry
//
// The package decides nothing: Options.Blocked says whether every request from a prefix is refused.
// module.go plugs it in.
// No request waits for it. Without the helper the set is empty, and the edge closes such
// connections itself.
package wall

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/edge/beat"
	"sluice/edge/wall/record"
)

const (
	// knocksWaiting is how many knocks may wait to be looked at. Those beyond are lost: a source in
	// a flood soon knocks again.
	knocksWaiting = 4096
	// lookTime is how often the blocks are checked for one that was lifted.
	lookTime = 100 * time.Millisecond
	// reconcileTime is the shortest time between two looks at all entries.
	reconcileTime = 250 * time.Millisecond
	// answerTime is how long the helper may take.
	answerTime = 2 * time.Second
	// retryTime is how long a helper that is gone is left alone.
	retryTime = time.Second
	// atOnce is how many records are sent before an answer is read.
	atOnce = 1024
)

// Options is what a Wall works with.
type Options struct {
	Socket func() string   // of sluice-wall; "": the configuration has no wall
	Ports  func() []uint16 // that the edge listens on; none: not yet
	// Blocked returns until when every request from every address of a prefix is refused, or the
	// zero Time.
	Blocked func(p netip.Prefix, now time.Time) time.Time
	// Changes is another number whenever Blocked may return an earlier time than before, or none.
	Changes func() uint64
	Leaving func() bool // the edge accepts no more connections
	Warn    func(message string, args ...any)
	// Dial connects to the helper; nil: over a Unix socket.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
}

// Wall is one edge's part of the kernel's set. It is safe for concurrent use.
type Wall struct {
	Options
	knocks chan netip.Prefix

	mu     sync.Mutex
	set    set
	state  state
	buf    []byte
	warned string // the last warning, while it holds; "": none
}

// state is the state of the helper.
type state struct {
	up      bool
	since   time.Time // when up changed last
	err     string
	refused uint64 // SYNs in all, by all helpers while this edge was connected
	counted uint64 // the helper's own count at the last report: it began before this edge connected
}

// New makes a wall without entries.
func New(o Options) *Wall {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
			return (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "unix", socket)
		}
	}
	w := &Wall{Options: o, knocks: make(chan netip.Prefix, knocksWaiting)}
	w.set.init(o.Blocked)
	return w
}

// Knock notes that a client has connected from a prefix that is blocked. It never waits.
func (w *Wall) Knock(p netip.Prefix) {
	select {
	case w.knocks <- p:
	default:
	}
}

// Run keeps the kernel's set until ctx is done, or the edge leaves. It connects again when the
// helper has gone.
func (w *Wall) Run(ctx context.Context) {
	for ctx.Err() == nil && !w.Leaving() {
		pause := beat.In(time.Now(), beat.Period)
		if socket := w.Socket(); socket != "" && len(w.Ports()) > 0 {
			err := w.session(ctx, socket)
			w.down(err)
			if pause = retryTime; err == nil {
				pause = lookTime
			}
		} else {
			w.down(nil)
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// down notes that there is no helper, and why; nil: the configuration has none, or another.
func (w *Wall) down(err error) {
	w.mu.Lock()
	if w.state.up || w.state.since.IsZero() {
		w.set.clear()
		w.state.since = time.Now()
	}
	w.state.up, w.state.err = false, ""
	if err != nil {
		w.state.err = err.Error()
	}
	wrong := w.state.err
	w.mu.Unlock()
	w.warn(wrong,
		"sluice-wall cannot be used: the edge closes connections of blocked sources itself")
}

// warn warns of an error once, until there is another or none.
func (w *Wall) warn(wrong, message string) {
	if wrong != "" && wrong != w.warned {
		w.Warn(message, "error", wrong)
	}
	w.warned = wrong
}

// session keeps the set over one connection. The error is nil if the configuration has no wall any
// more, or another socket.
func (w *Wall) session(ctx context.Context, socket string) error {
	conn, err := w.Dial(ctx, socket)
	if err != nil {
		return fmt.Errorf("wall: connect to %s: %w", socket, err)
	}
	s := &session{Wall: w, conn: conn, answers: make(chan record.Record, 64),
		ended: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(s.read)
	defer reader.Wait()
	defer conn.Close()
	defer close(s.ended)
	if err := s.greet(); err != nil {
		return err
	}
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case r, ok := <-s.answers: // without a request: the helper has gone, or is broken
			if err = s.lost; ok {
				err = fmt.Errorf("wall: sluice-wall sent a record without a request: %w", r)
			}
		case p := <-w.knocks:
			err = s.knocked(p, time.Now())
		case <-tick.C:
			if w.Leaving() || w.Socket() != socket {
				return s.leave()
			}
			err = s.look(time.Now())
		}
		if err != nil {
			return err
		}
	}
}

// A session is one connection to the helper.
type session struct {
	*Wall
	conn     net.Conn
	answers  chan record.Record // closed when no more will come
	lost     error              // why, then
	ended    chan struct{}      // closed when no one reads answers any more
	ports    []uint16           // that the helper was asked about
	changes  uint64             // Changes when the entries were looked at last,
	looked   time.Time          // and when that was
	reported time.Time
}

// greet finds out what the helper grants, and begins with an empty set, whatever an edge before
// this one has left there. It notes the helper's count of refused SYNs, because this edge has
// counted those before already, or was not connected.
func (s *session) greet() error {
	now := time.Now()
	var lease time.Duration
	var room int
	var total uint64 // refused by the helper until now
	err := s.exchange([]record.Record{{Op: record.Hello}, {Op: record.Flush}}, record.Commit,
		func(r record.Record) {
			if r.Op == record.Hello {
				lease, room = time.Duration(r.A)*time.Millisecond, int(min(r.B, 1<<30))
			}
		})
	if err == nil {
		err = s.exchange(nil, record.Report, func(r record.Record) { total = r.A })
	}
	if err != nil {
		return err
	}
	if lease < time.Second || room == 0 {
		return fmt.Errorf("wall: sluice-wall grants leases of %v for %d entries, which is of no use", lease, room)
	}
	s.mu.Lock()
	s.set.start(lease, room)
	s.state.up, s.state.since, s.state.err, s.state.counted = true, now, "", total
	s.mu.Unlock()
	s.changes, s.looked, s.reported = s.Changes(), now, now
	return s.announce()
}

// announce asks whether the helper guards the ports that the edge listens on. At a port that it
// does not guard the edge closes connections itself.
func (s *session) announce() error {
	ports := s.Ports()
	if slices.Equal(ports, s.ports) {
		return nil
	}
	s.ports = ports
	var ask []record.Record
	for _, p := range ports {
		ask = append(ask, record.Record{Op: record.Port, A: uint64(p)})
	}
	wrong := ""
	err := s.exchange(ask, record.Commit, func(r record.Record) {
		if r.Code != record.OK {
			wrong = r.Error()
		}
	})
	if err == nil {
		s.warn(wrong, "sluice-wall does not guard all ports of the edge")
	}
	return err
}

// knocked takes in a knock, and those that wait behind it.
func (s *session) knocked(p netip.Prefix, now time.Time) error {
	s.mu.Lock()
	s.set.knock(p, now)
	for range atOnce {
		select {
		case p = <-s.knocks:
			s.set.knock(p, now)
			continue
		default:
		}
		break
	}
	s.mu.Unlock()
	return s.send(now)
}

// look does what is due.
func (s *session) look(now time.Time) error {
	changes := s.Changes()
	s.mu.Lock()
	if changes != s.changes && now.Sub(s.looked) >= reconcileTime {
		s.changes, s.looked = changes, now
		s.set.reconcile(now)
	}
	s.set.renew(now)
	due := now.Sub(s.reported) >= s.set.lease
	s.mu.Unlock()
	if err := s.send(now); err != nil || !due {
		return err
	}
	s.reported = now
	if err := s.report(now); err != nil {
		return err
	}
	return s.announce()
}

// send sends the changes of the set to the helper.
func (s *session) send(now time.Time) error {
	s.mu.Lock()
	list := s.set.take()
	s.mu.Unlock()
	for part := range slices.Chunk(list, atOnce) {
		err := s.exchange(part, record.Commit, func(r record.Record) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case r.Op == record.Add && r.Code == record.Full:
				s.set.full(r.Prefix)
			case r.Op == record.Add && r.Code != record.OK:
				s.set.drop(r.Prefix)
				s.state.err = r.Error()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// report asks what the kernel has refused, and gives up sources that have stopped, so that there is
// room for others.
func (s *session) report(now time.Time) error {
	err := s.exchange(nil, record.Report, func(r record.Record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Prefix.IsValid() {
			s.set.counted(r.Prefix, r.A, now)
			return
		}
		if r.A < s.state.counted {
			s.state.counted = 0 // the helper has begun anew
		}
		s.state.refused += r.A - s.state.counted
		s.state.counted = r.A
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.set.tidy(now)
	s.mu.Unlock()
	return s.send(now)
}

// leave empties the set, because this edge will renew no entry any more.
func (s *session) leave() error {
	return s.exchange([]record.Record{{Op: record.Flush}}, record.Commit, func(record.Record) {})
}

// exchange sends records and one of the kind last, and calls each for every answer up to that
// one's.
func (s *session) exchange(list []record.Record, last record.Op, each func(record.Record)) error {
	s.buf = s.buf[:0]
	for _, r := range list {
		s.buf = r.Append(s.buf)
	}
	s.buf = record.Record{Op: last}.Append(s.buf)
	if err := s.conn.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := s.conn.Write(s.buf); err != nil {
		return fmt.Errorf("wall: ask sluice-wall: %w", err)
	}
	patience := time.NewTimer(answerTime)
	defer patience.Stop()
	for {
		var r record.Record
		var ok bool
		select {
		case r, ok = <-s.answers:
		case <-patience.C:
			return fmt.Errorf("wall: sluice-wall has not answered within %v", answerTime)
		}
		if !ok {
			return s.lost
		}
		switch r.Code {
		case record.WrongUser, record.Crowded, record.Kernel, record.Malformed:
			return fmt.Errorf("wall: %w", r)
		}
		each(r)
		if r.Op == last && !r.Prefix.IsValid() {
			return nil
		}
	}
}

// read receives answers until the helper disconnects. It reads all the time, so that an edge
// without anything to send notices that as well.
func (s *session) read() {
	defer close(s.answers)
	in := bufio.NewReaderSize(s.conn, 256*record.Size)
	for {
		var b [record.Size]byte
		if _, err := io.ReadFull(in, b[:]); err != nil {
			s.lost = fmt.Errorf("wall: sluice-wall has gone: %w", err)
			return
		}
		r, err := record.Parse(b[:])
		if err != nil {
			s.lost = err
			return
		}
		select {
		case s.answers <- r:
		case <-s.ended:
			return
		}
	}
}
