package memcached_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/poptest"
	"sluice/pop/wire"
)

// TestOperatorsHaveTheirOwnWay: however many commands wait for a slow node, one of the operators' list does not wait for them.
func TestOperatorsHaveTheirOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, names := newPipes(1)
		defer nodes.close()
		nodes[names[0]].Misbehave(func(command string, answer []byte) poptest.Reply {
			if strings.HasPrefix(command, "add") {
				return poptest.Reply{Bytes: answer, Wait: 50 * time.Millisecond}
			}
			return poptest.Reply{Bytes: answer}
		})
		var sent, took time.Time
		slow := 0
		tier, err := memcached.NewScriptedTier(func(now time.Time, e pop.Event) (cmds []wire.Command) {
			for i := range e.Results {
				switch r := &e.Results[i]; {
				case r.Way == wire.List && r.Status == wire.Done:
					took = now
				case r.Way == wire.List:
					t.Errorf("%v", r.Err)
				default:
					slow++
				}
			}
			if sent.IsZero() {
				for i := range 2000 {
					cmds = append(cmds, wire.Command{Op: wire.Add, Key: fmt.Sprint("b", i), Value: []byte("x"), Expire: 10})
				}
				sent = now
				cmds = append(cmds, wire.Command{Op: wire.Set, Way: wire.List, Key: "w", Value: []byte("x"), Expire: 10})
			}
			return cmds
		}, func(time.Time) []wire.Command { return nil }, func() (hits, lost uint64) { return 0, 0 }, names)
		must(t, err)
		tier.Dial = nodes.dial
		ctx, stop := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- tier.Sync(ctx) }()
		time.Sleep(500 * time.Millisecond)
		stop()
		<-result
		if took.IsZero() || took.Sub(sent) > 150*time.Millisecond {
			t.Errorf("answered after %v, and %d others before", took.Sub(sent), slow)
		}
	})
}

// TestDo: what is asked beside the machine is answered to who asks, and counted as the machine's is; before Sync nobody can be asked.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, names := newPipes(1)
		defer nodes.close()
		tier, err := memcached.NewScriptedTier(func(_ time.Time, e pop.Event) []wire.Command {
			for i := range e.Results {
				t.Errorf("the machine gets %+v", e.Results[i])
			}
			return nil
		}, func(time.Time) []wire.Command { return nil }, func() (hits, lost uint64) { return 0, 0 }, names)
		must(t, err)
		tier.Dial = nodes.dial
		ctx, stop := context.WithCancel(context.Background())
		set := wire.Command{Op: wire.Set, Way: wire.List, Key: "k", Value: []byte("x"), Expire: 10}
		if r := tier.Do(ctx, set); r.Status != wire.Unsent {
			t.Errorf("before Sync: %+v", r)
		}
		result := make(chan error, 1)
		go func() { result <- tier.Sync(ctx) }()
		time.Sleep(time.Second)
		if r := tier.Do(ctx, set); r.Status != wire.Done {
			t.Errorf("%+v", r)
		}
		if r := tier.Do(ctx, wire.Command{Op: wire.Get, Way: wire.List, Key: "k none"}); r.Status != wire.Done || string(r.Values[0]) != "x" || r.Values[1] != nil {
			t.Errorf("%+v", r)
		}
		if r := tier.Do(ctx, wire.Command{Op: wire.Get, Way: wire.List, Key: "a\r\nb"}); r.Status != wire.Unsent || r.Err == nil {
			t.Errorf("%+v", r)
		}
		if r := tier.Do(ctx, wire.Command{Op: wire.Get, Node: 1, Key: "k"}); r.Status != wire.Unsent {
			t.Errorf("no such node: %+v", r)
		}
		if n := tier.Stats().Nodes[0].Operations; n[wire.Set][wire.Done] != 1 || n[wire.Get][wire.Done] != 1 || n[wire.Get][wire.Unsent] != 1 {
			t.Errorf("%v", n)
		}
		stop()
		<-result
		if r := tier.Do(ctx, set); r.Status == wire.Done {
			t.Errorf("after Sync: %+v", r)
		}
	})
}

// TestPollsWakeNobody: an answer that says what the last to the same question said waits for the next step, and says how long it took;
// another has a step of its own.
func TestPollsWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := poptest.New(0)
		defer node.Close()
		s := &script{}
		tier, stop := s.run(t, node)
		steps := func(cmds ...wire.Command) (taken []time.Duration, rs []wire.Result) {
			began := time.Now()
			s.say(cmds...)
			tier.Wake()
			time.Sleep(3 * pop.Tick / 2)
			rs, received := s.take()
			for _, at := range received {
				taken = append(taken, at.Sub(began))
			}
			return taken, rs
		}
		poll := wire.Command{Op: wire.Get, Key: "head other"}
		set := wire.Command{Op: wire.Set, Key: "head", Value: []byte("1"), Expire: 100, Report: true}
		for i, step := range []struct {
			cmds  []wire.Command
			waits bool
		}{
			{[]wire.Command{poll}, false}, // the first of its kind
			{[]wire.Command{poll}, true},
			{[]wire.Command{set}, false},
			{[]wire.Command{poll}, false},
			{[]wire.Command{poll}, true},
			{[]wire.Command{poll, {Op: wire.Get, Key: "third"}}, false}, // one that is new takes the other with it
			{[]wire.Command{{Op: wire.Get, Key: "third"}, poll}, true},
		} {
			taken, rs := steps(step.cmds...)
			if len(rs) != len(step.cmds) {
				t.Fatalf("step %d: %d results of %d", i, len(rs), len(step.cmds))
			}
			for k, at := range taken {
				if waits := at >= pop.Tick/2; waits != step.waits {
					t.Errorf("step %d: an answer is taken in after %v", i, at)
				}
				if rs[k].Status != wire.Done || rs[k].Took > at {
					t.Errorf("step %d: %+v", i, rs[k])
				}
			}
		}
		must(t, stop())
	})
}
