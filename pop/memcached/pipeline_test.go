package memcached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// outcomes collects what a pipeline delivers.
type outcomes struct {
	mu  sync.Mutex
	all []wire.Result
}

func (o *outcomes) deliver(rs []wire.Result) {
	o.mu.Lock()
	o.all = append(o.all, rs...)
	o.mu.Unlock()
}

// take returns what was delivered since it was last called.
func (o *outcomes) take() []wire.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// start runs a pipeline until the test ends or stop is called.
func start(dial memcached.Dial, o *outcomes) (p memcached.Pipeline, stop func()) {
	p = memcached.NewPipeline(dial, "node:11211", o.deliver)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return p, func() {
		cancel()
		<-done
	}
}

func incr(key string) wire.Command { return wire.Command{Op: wire.Incr, Key: key, Delta: 1} }

func add(key, value string) wire.Command {
	return wire.Command{Op: wire.Add, Key: key, Value: []byte(value), Expire: 60}
}

func get(keys ...string) wire.Command {
	return wire.Command{Op: wire.Get, Key: strings.Join(keys, " ")}
}

// statuses writes results as "op status op status".
func statuses(rs []wire.Result) string {
	var s []string
	for _, r := range rs {
		s = append(s, r.Op.String()+" "+r.Status.String())
	}
	return strings.Join(s, ", ")
}

func TestPipelineAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var o outcomes
		p, stop := start(n.Dial, &o)
		defer stop()
		const each = 1000
		for i := range each {
			k := fmt.Sprintf("k%d", i)
			if r := p.Send([]wire.Command{
				{Op: wire.Incr, Key: k, Delta: 1, Tag: uint64(i)}, add(k, "5"), {Op: wire.Incr, Key: k, Delta: uint64(i)}, get("none", k),
			}); len(r) > 0 {
				t.Fatalf("%d refused", len(r))
			}
		}
		synctest.Wait()
		rs := o.take()
		if len(rs) != 4*each {
			t.Fatalf("%d results, want %d", len(rs), 4*each)
		}
		for i := range each {
			r := rs[4*i : 4*i+4]
			want := fmt.Sprint(5 + i)
			if got := statuses(r); got != "incr not_there, add done, incr done, get done" || r[0].Tag != uint64(i) ||
				r[2].Number != uint64(5+i) || r[3].Values[0] != nil || string(r[3].Values[1]) != want {
				t.Fatalf("%d: %s, %d, %q; want %s", i, got, r[2].Number, r[3].Values, want)
			}
		}
		if p.Dials() != 1 {
			t.Errorf("%d dials, want 1", p.Dials())
		}
	})
}

// Whatever a node says, there is no panic, every command has an outcome, and the connection is given up when nobody can know
// any more which answer belongs to which command.
func TestPipelineWrongAnswers(t *testing.T) {
	huge := "VALUE k 0 99999999999\r\n"
	for _, c := range []struct {
		name    string
		command wire.Command
		answer  poptest.Reply
		want    string // of the command and the incr behind it
		drops   [3]uint64
	}{
		{"honest", incr("k"), poptest.Reply{Bytes: []byte("7\r\n")}, "incr done, incr done", [3]uint64{}},
		{"spaces behind", incr("k"), poptest.Reply{Bytes: []byte("7   \r\n")}, "incr done, incr done", [3]uint64{}},
		{"not a number there", incr("k"), poptest.Reply{Bytes: []byte("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")}, "incr unsent, incr done", [3]uint64{}},
		{"no memory", add("k", "1"), poptest.Reply{Bytes: []byte("SERVER_ERROR out of memory storing object\r\n")}, "add unsent, incr done", [3]uint64{}},
		{"no memory to read", get("k"), poptest.Reply{Bytes: []byte("SERVER_ERROR out of memory writing get response\r\n")}, "get unsent, incr done", [3]uint64{}},
		{"no memory for the rest", get("j", "k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\nSERVER_ERROR out of memory writing get response\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"empty line", incr("k"), poptest.Reply{Bytes: []byte("\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"bare newline", incr("k"), poptest.Reply{Bytes: []byte("\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"bare newline behind a number", incr("k"), poptest.Reply{Bytes: []byte("7\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"word", incr("k"), poptest.Reply{Bytes: []byte("many\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"negative", incr("k"), poptest.Reply{Bytes: []byte("-1\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"beyond 64 bits", incr("k"), poptest.Reply{Bytes: []byte("18446744073709551616\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"endless number", incr("k"), poptest.Reply{Bytes: []byte(strings.Repeat("0", 5000))}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"server error", incr("k"), poptest.Reply{Bytes: []byte("SERVER_ERROR Connection timed out\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"client error", incr("k"), poptest.Reply{Bytes: []byte("CLIENT_ERROR \r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"client error, cut", incr("k"), poptest.Reply{Bytes: []byte("CLIENT_ERROR \n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"error", incr("k"), poptest.Reply{Bytes: []byte("ERROR\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"answer to add for incr", incr("k"), poptest.Reply{Bytes: []byte("STORED\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"number for add", add("k", "1"), poptest.Reply{Bytes: []byte("12\r\n")}, "add unknown, incr unknown", [3]uint64{2: 1}},
		{"not stored for set", wire.Command{Op: wire.Set, Key: "k", Value: []byte("1")}, poptest.Reply{Bytes: []byte("NOT_STORED\r\n")}, "set unknown, incr unknown", [3]uint64{2: 1}},
		{"number for delete", wire.Command{Op: wire.Delete, Key: "k"}, poptest.Reply{Bytes: []byte("12\r\n")}, "delete unknown, incr unknown", [3]uint64{2: 1}},
		{"unasked value", incr("k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\nEND\r\n")}, "incr unknown, incr unknown", [3]uint64{2: 1}},
		{"cut line", incr("k"), poptest.Reply{Bytes: []byte("12"), Close: true}, "incr unknown, incr unknown", [3]uint64{1, 0, 0}},
		{"closed", incr("k"), poptest.Reply{Close: true}, "incr unknown, incr unknown", [3]uint64{1, 0, 0}},
		{"silence", incr("k"), poptest.Reply{Wait: 1400 * time.Millisecond, Close: true}, "incr unknown, incr unknown", [3]uint64{0, 1, 0}},
		{"one byte a second", incr("k"), poptest.Reply{Bytes: []byte("1234567\r\n"), Each: 999 * time.Millisecond}, "incr unknown, incr unknown", [3]uint64{0, 1, 0}},
		{"slow", incr("k"), poptest.Reply{Bytes: []byte("7\r\n"), Wait: 900 * time.Millisecond}, "incr done, incr done", [3]uint64{}},
		{"value", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\nEND\r\n")}, "get done, incr done", [3]uint64{}},
		{"values in another order", get("j", "k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\nVALUE j 0 1\r\n8\r\nEND\r\n")}, "get done, incr done", [3]uint64{}},
		{"another key", get("k"), poptest.Reply{Bytes: []byte("VALUE j 0 1\r\n7\r\nEND\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"the same value twice", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\nVALUE k 0 1\r\n7\r\nEND\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"huge length", get("k"), poptest.Reply{Bytes: []byte(huge)}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"negative length", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0 -1\r\n7\r\nEND\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"wrong length", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n777\r\nEND\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"no length", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0\r\n7\r\nEND\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"value without end", get("k"), poptest.Reply{Bytes: []byte("VALUE k 0 1\r\n7\r\n")}, "get unknown, incr unknown", [3]uint64{2: 1}},
		{"an answer too many", incr("k"), poptest.Reply{Bytes: []byte("7\r\n8\r\n9\r\n")}, "incr done, incr done", [3]uint64{2: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := poptest.New(0)
				defer n.Close()
				n.Do(time.Now(), add("last", "1"))
				n.Misbehave(func(command string, honest []byte) poptest.Reply {
					if command == "incr last 1" {
						return poptest.Reply{Bytes: honest}
					}
					return c.answer
				})
				var o outcomes
				p, stop := start(n.Dial, &o)
				defer stop()
				p.Send([]wire.Command{c.command, incr("last")})
				time.Sleep(1500 * time.Millisecond) // virtual
				synctest.Wait()
				if got := statuses(o.take()); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				var drops [3]uint64
				drops[0], drops[1], drops[2] = p.Drops()
				if drops != c.drops {
					t.Errorf("dropped (closed, silent, wrong): %v, want %v", drops, c.drops)
				}
				// And the next connection is a good one.
				n.Misbehave(nil)
				p.Send([]wire.Command{incr("last")})
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if got := statuses(o.take()); got != "incr done" {
					t.Errorf("afterwards: %s, want incr done", got)
				}
			})
		})
	}
}

// A node that stopped reading has commands in its connection's buffers of which nobody knows, and none of them is sent again.
func TestPipelineHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		n.Do(time.Now(), add("k", "0"))
		var o outcomes
		p, stop := start(n.Dial, &o)
		defer stop()
		p.Send([]wire.Command{incr("k")})
		synctest.Wait()
		n.Hang()
		p.Send([]wire.Command{incr("k")})
		synctest.Wait()
		p.Send([]wire.Command{incr("k")})
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if got := statuses(o.take()); got != "incr done" {
			t.Errorf("before the deadline: %s", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		// A pipe has no buffer, so the third was certainly not written.
		if got := statuses(o.take()); got != "incr unknown, incr unsent" {
			t.Errorf("after the deadline: %s", got)
		}
		n.Resume()
		synctest.Wait()
		p.Send([]wire.Command{incr("k")})
		time.Sleep(time.Second)
		synctest.Wait()
		rs := o.take()
		if got := statuses(rs); got != "incr done" || rs[0].Number != 3 {
			t.Errorf("after its return: %s, %d", got, rs[0].Number)
		}
	})
}

// What was not written in full is certainly not carried out, and says so.
func TestPipelineCutWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var o outcomes
		p, stop := start(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, &o)
		defer stop()
		p.Send([]wire.Command{incr("a"), incr("b"), incr("c")})
		// The node takes the first command and most of the second: "incr b 1\r" is no command without its newline.
		if n, err := theirs.Read(make([]byte, 19)); n != 19 || err != nil {
			t.Fatal(n, err)
		}
		theirs.Close()
		synctest.Wait()
		if got := statuses(o.take()); got != "incr unknown, incr unsent, incr unsent" {
			t.Error(got)
		}
	})
}

// A dead node is dialled at most once in 100 ms however much is sent to it, and found soon after its return.
func TestPipelineRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var o outcomes
		var dials []time.Time
		p, stop := start(func(ctx context.Context, network, address string) (net.Conn, error) {
			dials = append(dials, time.Now())
			return n.Dial(ctx, network, address)
		}, &o)
		defer stop()
		p.Send([]wire.Command{incr("k")})
		synctest.Wait()
		n.Kill()
		sent := 1
		for range 10_000 {
			p.Send([]wire.Command{incr("k")})
			sent++
			time.Sleep(time.Millisecond)
		}
		rs := o.take()
		if len(rs) < sent-1 {
			t.Errorf("%d results of %d commands", len(rs), sent)
		}
		for i, r := range rs[1:] {
			if r.Status != wire.Unsent && i > 0 {
				t.Fatalf("result %d of a dead node: %v", i, r.Status)
			}
		}
		for i := 2; i < len(dials); i++ {
			if d := dials[i].Sub(dials[i-1]); d < 100*time.Millisecond || d > 500*time.Millisecond {
				t.Fatalf("dials %d and %d are %v apart", i-1, i, d)
			}
		}
		must(t, n.Restart())
		back := time.Now()
		for {
			p.Send([]wire.Command{incr("k")})
			time.Sleep(10 * time.Millisecond)
			rs := o.take()
			if len(rs) > 0 && rs[len(rs)-1].Status == wire.NotThere {
				break
			}
			if time.Since(back) > 500*time.Millisecond {
				t.Fatal("node not found within half a second of its return")
			}
		}
	})
}

func TestPipelineBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		n.Hang()
		var o outcomes
		p, stop := start(n.Dial, &o)
		cmds := make([]wire.Command, memcached.Backlog+5)
		for i := range cmds {
			cmds[i] = incr("k")
		}
		if got := len(p.Send(cmds)); got != 5 {
			t.Errorf("%d refused, want 5", got)
		}
		if got := len(p.Send(cmds[:3])); got != 3 {
			t.Errorf("%d refused when full, want 3", got)
		}
		synctest.Wait()
		stop()
		rs := o.take()
		if len(rs) != memcached.Backlog || p.Backlog() != 0 {
			t.Errorf("%d results when stopped, want %d; %d left", len(rs), memcached.Backlog, p.Backlog())
		}
		for _, r := range rs {
			if !errors.Is(r.Err, memcached.ErrStopped) {
				t.Fatal(r.Err)
			}
		}
	})
}

// Values of up to a megabyte come through, in whatever pieces.
func TestPipelineLargeValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := poptest.New(0)
		defer n.Close()
		var o outcomes
		p, stop := start(n.Dial, &o)
		defer stop()
		want := [][]byte{[]byte(strings.Repeat("ab", 500_000)), nil, []byte("\r\nEND\r\n"), {}, []byte(strings.Repeat("c", 70_000))}
		keys := []string{"a", "b", "c", "d", "e"}
		for i, v := range want {
			if v != nil {
				p.Send([]wire.Command{{Op: wire.Set, Key: keys[i], Value: v, Expire: 60}})
			}
		}
		p.Send([]wire.Command{get(keys...), incr("z")})
		synctest.Wait()
		rs := o.take()
		if len(rs) != 6 || rs[5].Status != wire.NotThere {
			t.Fatal(statuses(rs))
		}
		for i, v := range rs[4].Values {
			if !bytes.Equal(v, want[i]) || (v == nil) != (want[i] == nil) {
				t.Errorf("%s: %.30q (%d bytes), want %.30q (%d)", keys[i], v, len(v), want[i], len(want[i]))
			}
		}
	})
}

// An increment costs no allocation, however it is batched. The node on the other side is the simplest one possible, so
// that what is counted is ours.
func TestPipelineAllocates(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		in, out := make([]byte, 1<<16), bytes.Repeat([]byte("1\r\n"), 1<<12)
		for {
			n, err := theirs.Read(in)
			if err != nil {
				return
			}
			theirs.Write(out[:3*bytes.Count(in[:n], []byte("\n"))])
		}
	}()
	got := make(chan int, 16)
	p := memcached.NewPipeline(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, "", func(rs []wire.Result) { got <- len(rs) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	cmds := make([]wire.Command, 200)
	for i := range cmds {
		cmds[i] = incr("k")
	}
	// A burst may cost a few: an in-memory connection makes a timer for every deadline.
	perBurst := testing.AllocsPerRun(100, func() {
		p.Send(cmds)
		for left := len(cmds); left > 0; {
			left -= <-got
		}
	})
	if perBurst > 20 {
		t.Errorf("%.0f allocations for a burst of %d increments", perBurst, len(cmds))
	}
	cancel()
	<-done
}

func FuzzReadAnswer(f *testing.F) {
	for _, s := range []string{"7\r\n", "NOT_FOUND\r\n", "STORED\r\n", "VALUE a 0 1\r\n7\r\nEND\r\n", "VALUE a 0 1 12\r\n7\r\nEND\r\n",
		"SERVER_ERROR out of memory\r\n", "\n", "CLIENT_ERROR \n", "VALUE a 0 4294967295\r\n", "18446744073709551616\r\n"} {
		for op := range byte(6) {
			f.Add(op, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, op byte, in []byte) {
		c := wire.Command{Op: wire.Op(op % 6), Key: "a"}
		if c.Op == wire.Get {
			c.Key = "a b"
		}
		used, complete, r, err := memcached.ReadAnswer(c, in)
		if used < 0 || used > len(in) || complete && (used == 0 || err != nil) {
			t.Fatalf("used %d of %d, complete %v, error %v", used, len(in), complete, err)
		}
		if complete && r.Status == wire.Unknown || r.Status == wire.Unsent && r.Err == nil {
			t.Fatalf("%v without a reason", r.Status)
		}
		// What is complete stays the same when more follows; what is not is never taken for complete too early.
		if complete {
			_, again, r2, _ := memcached.ReadAnswer(c, append(in[:used:used], "12\r\n"...))
			if !again || !cmp.Equal(r.Values, r2.Values) || r.Number != r2.Number || r.Status != r2.Status {
				t.Fatalf("another answer when more follows: %v, then %v", r, r2)
			}
			for i := range used {
				if _, early, _, _ := memcached.ReadAnswer(c, in[:i]); early {
					t.Fatalf("complete after %d of %d bytes", i, used)
				}
			}
		}
	})
}

// TestLegalKeys: wherever in a key a byte stands that must not be there, it is found.
func TestLegalKeys(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for b := range 256 {
				key := []byte(strings.Repeat("k", length))
				key[at] = byte(b)
				if got, want := memcached.LegalKey(string(key)), b > ' ' && b < 0x7f; got != want {
					t.Fatalf("%q: %v, want %v", key, got, want)
				}
			}
		}
	}
	if memcached.LegalKey("") || memcached.LegalKey(strings.Repeat("k", 251)) || !memcached.LegalKey(strings.Repeat("k", 250)) {
		t.Error("keys have 1 to 250 bytes")
	}
}
