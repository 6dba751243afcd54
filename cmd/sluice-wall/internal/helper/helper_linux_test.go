package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/sluice-wall/internal/nft"
	"sluice/edge/wall/record"
)

// A fake is a kernel that records its calls.
type fake struct {
	entries map[netip.Prefix]time.Duration
	calls   []string
	fails   bool
}

func (f *fake) kernel() Kernel {
	f.entries = make(map[netip.Prefix]time.Duration)
	fail := func() error {
		if f.fails {
			return errors.New("no buffer space available")
		}
		return nil
	}
	return Kernel{
		Apply: func(adds []nft.Lease, deletes []netip.Prefix) error {
			f.calls = append(f.calls, fmt.Sprintf("+%d -%d", len(adds), len(deletes)))
			for _, a := range adds {
				f.entries[a.Prefix] = a.For
			}
			for _, p := range deletes {
				delete(f.entries, p)
			}
			return fail()
		},
		Flush: func() error {
			f.calls = append(f.calls, "flush")
			clear(f.entries)
			return fail()
		},
		Counts: func() (list []nft.Count, refused uint64, err error) {
			for p, left := range f.entries {
				list = append(list, nft.Count{Prefix: p, Left: left, Refused: uint64(p.Bits() % 32)})
			}
			slices.SortFunc(list, func(a, b nft.Count) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
			return list, 77, fail()
		},
	}
}

func config(f *fake) Config {
	return Config{Kernel: f.kernel(), Ports: []uint16{8080, 8443}, User: uint32(os.Getuid()), Max: 3, Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)}
}

// start serves a helper, and returns where.
func start(t *testing.T, c Config) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "wall.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- New(c).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// ask sends records, and returns n answers.
func ask(t *testing.T, c net.Conn, n int, requests ...record.Record) (answers []record.Record) {
	t.Helper()
	var b []byte
	for _, r := range requests {
		b = r.Append(b)
	}
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	for range n {
		var buf [record.Size]byte
		if _, err := io.ReadFull(c, buf[:]); err != nil {
			t.Fatal(err)
		}
		r, err := record.Parse(buf[:])
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, r)
	}
	return answers
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func add(prefix string, lease time.Duration) record.Record {
	return record.Record{Op: record.Add, Prefix: netip.MustParsePrefix(prefix), A: uint64(lease.Milliseconds())}
}

func remove(prefix string) record.Record {
	return record.Record{Op: record.Delete, Prefix: netip.MustParsePrefix(prefix)}
}

var commit = record.Record{Op: record.Commit}

// TestAnswers: what may be requested is done, and the answer to anything else is what is wrong with it.
func TestAnswers(t *testing.T) {
	var f fake
	c := dial(t, start(t, config(&f)))
	no := func(r record.Record, code record.Code, b uint64) record.Record {
		r.Code, r.B = code, b
		return r
	}
	for _, step := range []struct {
		name  string
		ask   []record.Record
		want  []record.Record
		calls string
	}{
		{"hello", []record.Record{{Op: record.Hello}}, []record.Record{{Op: record.Hello, A: 10_000, B: 3}}, ""},
		{"ports", []record.Record{{Op: record.Port, A: 8080}, {Op: record.Port, A: 22}, {Op: record.Port, A: 1 << 40}, commit},
			[]record.Record{{Op: record.Port, Code: record.ForeignPort, A: 22}, {Op: record.Port, Code: record.ForeignPort, A: 1 << 40}, commit}, ""},
		{"two, and one of them twice", []record.Record{add("192.0.2.1/32", time.Second), add("2001:db8::/64", time.Second), add("192.0.2.1/32", 10*time.Second), commit},
			[]record.Record{commit}, "+2 -0"},
		{"too long, and no time", []record.Record{add("192.0.2.9/32", 10*time.Second+time.Millisecond), add("192.0.2.9/32", 0), commit},
			[]record.Record{{Op: record.Add, Code: record.LongLease, Prefix: netip.MustParsePrefix("192.0.2.9/32"), A: 10_001, B: 10_000}, no(add("192.0.2.9/32", 0), record.Malformed, 0), commit}, ""},
		{"what is not there is not deleted", []record.Record{remove("192.0.2.9/32"), commit}, []record.Record{commit}, ""},
		{"one too many", []record.Record{add("192.0.2.3/32", time.Second), add("192.0.2.4/32", time.Second), add("192.0.2.1/32", time.Second), commit},
			[]record.Record{{Op: record.Add, Code: record.Full, Prefix: netip.MustParsePrefix("192.0.2.4/32"), B: 3}, commit}, "+2 -0"},
		{"in the place of another", []record.Record{remove("2001:db8::/64"), add("192.0.2.4/32", time.Second), commit}, []record.Record{commit}, "+1 -1"},
		{"a report", []record.Record{{Op: record.Report}}, []record.Record{{Op: record.Report, A: 77, B: 3}}, ""},
		{"nobody any more", []record.Record{{Op: record.Flush}, commit}, []record.Record{commit}, "flush"},
		{"room again", []record.Record{add("10.0.0.0/8", time.Second), commit, {Op: record.Report}},
			[]record.Record{commit, {Op: record.Report, Prefix: netip.MustParsePrefix("10.0.0.0/8"), A: 8}, {Op: record.Report, A: 77, B: 1}}, "+1 -0"},
	} {
		f.calls = nil
		if got := ask(t, c, len(step.want), step.ask...); !slices.Equal(got, step.want) {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
		if got := strings.Join(f.calls, " "); got != step.calls {
			t.Errorf("%s: the kernel's calls are %q, want %q", step.name, got, step.calls)
		}
	}
}

// TestKernelRefuses: the answer to the commit is that the kernel refused it, and the next commit succeeds.
func TestKernelRefuses(t *testing.T) {
	f := fake{}
	c := dial(t, start(t, config(&f)))
	f.fails = true
	want := []record.Record{{Op: record.Commit, Code: record.Kernel}, {Op: record.Report, Code: record.Kernel}}
	if got := ask(t, c, 2, add("192.0.2.1/32", time.Second), commit, record.Record{Op: record.Report}); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	f.fails = false
	if got := ask(t, c, 1, add("192.0.2.1/32", time.Second), commit); got[0] != commit {
		t.Errorf("%+v", got)
	}
}

// TestUserAndConnections: one user is served, on a bounded number of connections.
func TestUserAndConnections(t *testing.T) {
	var f fake
	other := config(&f)
	other.User++
	c := dial(t, start(t, other))
	if got := ask(t, c, 1, record.Record{Op: record.Hello}, add("192.0.2.1/32", time.Second), commit); got[0].Code != record.WrongUser || got[0].B != uint64(other.User) {
		t.Errorf("%+v", got)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the connection of another user stays open")
	}
	path := start(t, config(&f))
	for range mostConnections {
		ask(t, dial(t, path), 1, record.Record{Op: record.Hello})
	}
	if got := ask(t, dial(t, path), 1, record.Record{Op: record.Hello}); got[0].Code != record.Crowded {
		t.Errorf("%+v", got)
	}
	if len(f.calls) != 0 {
		t.Errorf("the kernel was called: %q", f.calls)
	}
}

// A lines counts what is logged.
type lines struct{ atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) { l.Add(1); return len(b), nil }

// TestStrangers: connections of other users, however many stay open, keep few of the helper's descriptors and write few lines to its log.
func TestStrangers(t *testing.T) {
	var f fake
	var log lines
	c := config(&f)
	c.User++
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	path := start(t, c)
	const strangers = 100
	var conns []net.Conn
	began, told := time.Now(), 0
	for range strangers {
		conns = append(conns, dial(t, path))
	}
	for _, c := range conns { // all of them stay
		if n, _ := c.Read(make([]byte, record.Size)); n > 0 {
			told++
		}
	}
	took := time.Since(began)
	if most := mostConnections * (1 + int(took/writeTime)); told == 0 || told > most {
		t.Errorf("%d were answered, want 1 to %d", told, most)
	}
	if n, most := log.Load(), int64(1+took/logTime); n == 0 || n > most {
		t.Errorf("%d lines of log, want 1 to %d", n, most)
	}
}

// TestMalformed: what is no record ends the connection, after an answer.
func TestMalformed(t *testing.T) {
	var f fake
	path := start(t, config(&f))
	c := dial(t, path)
	if _, err := c.Write(append(add("192.0.2.1/32", time.Second).Append(nil), bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 3)...)); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(c)
	if r, err := record.Parse(all); err != nil || r.Code != record.Malformed {
		t.Errorf("%x %+v %v", all, r, err)
	}
	if got := ask(t, dial(t, path), 1, record.Record{Op: record.Hello}); got[0].Code != record.OK {
		t.Error("the helper serves nobody any more")
	}
}

// TestFullOfEnded: entries that have ended make room.
func TestFullOfEnded(t *testing.T) {
	var f fake
	h, now := New(config(&f)), time.Unix(1_700_000_000, 0)
	wishes := func(from int, lease time.Duration) (list []change) {
		for i := range 3 {
			list = append(list, change{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(from + i)}), 32), lease})
		}
		return list
	}
	for _, step := range []struct {
		at   time.Duration
		from int
		full int
	}{{0, 0, 0}, {500 * time.Millisecond, 3, 3}, {time.Second, 3, 0}, {time.Second, 0, 3}} {
		if full, err := h.apply(wishes(step.from, time.Second), now.Add(step.at)); len(full) != step.full || err != nil {
			t.Errorf("at %v: no room for %v, %v", step.at, full, err)
		}
	}
}

// FuzzSession: whatever an edge sends, the helper stays up, and asks the kernel for no more than it may.
func FuzzSession(f *testing.F) {
	var good []byte
	for _, r := range []record.Record{{Op: record.Hello}, {Op: record.Port, A: 1}, add("192.0.2.0/24", time.Second), remove("192.0.2.0/24"), {Op: record.Flush}, commit, {Op: record.Report}} {
		good = r.Append(good)
	}
	f.Add(good)
	f.Add(good[:len(good)-7])
	f.Fuzz(func(t *testing.T, sent []byte) { try(t, sent) })
}

// TestSessions is FuzzSession with records in any order.
func TestSessions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var sent []byte
		for range random.IntN(100) {
			r := record.Record{Op: record.Op(1 + random.IntN(7)), A: random.Uint64N(12_000)}
			if r.Op == record.Add || r.Op == record.Delete {
				r.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(8))}), 32)
			}
			sent = r.Append(sent)
		}
		try(t, sent)
	}
}

func try(t *testing.T, sent []byte) {
	var f fake
	c := config(&f)
	h := New(c)
	apply := h.Kernel.Apply
	h.Kernel.Apply = func(adds []nft.Lease, deletes []netip.Prefix) error {
		for _, a := range adds {
			if a.For <= 0 || a.For > c.Lease || slices.Contains(deletes, a.Prefix) {
				t.Errorf("the kernel is asked for %+v", a)
			}
		}
		defer func() {
			if len(f.entries) > c.Max {
				t.Errorf("%d entries in the kernel", len(f.entries))
			}
		}()
		return apply(adds, deletes)
	}
	edge, ours := net.Pipe()
	go func() {
		_, _ = edge.Write(sent)
		edge.Close()
	}()
	s := &session{Helper: h, conn: discarding{ours}, places: make(map[netip.Prefix]int)}
	_ = s.serve()
}

// discarding is an edge that reads nothing, and keeps nobody waiting.
type discarding struct{ net.Conn }

func (discarding) Write(b []byte) (int, error)      { return len(b), nil }
func (discarding) SetWriteDeadline(time.Time) error { return nil }
