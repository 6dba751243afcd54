package viewer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/view"
	"sluice/pop/poptest"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// A site is edges that share a node.
type site struct {
	t    *testing.T
	node *poptest.Node
	key  secret.Secret

	mu     sync.Mutex
	there  []presence.Edge // as presence tells of them
	silent []string
	sent   map[string]int // by op and edge
}

// edge is a Viewer whose machine reads the notice once a second.
type edge struct {
	*Viewer
	cancel context.CancelFunc
}

func (s *site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *site) start(id uint64, phase time.Duration) *edge {
	name := fmt.Sprint("edge", id)
	e := &edge{Viewer: New()}
	e.ID, e.Name = id, name
	e.Own = func(asked []string, now time.Time) *view.Part {
		p := &view.Part{At: now, Load: view.Load{Received: float64(id)}}
		for _, q := range asked {
			p.Answer(q, json.RawMessage(fmt.Sprintf("%q", name+" says of "+q)))
		}
		return p
	}
	e.Tier = &Tier{Secret: s.key, Silent: func() (list []string) { s.change(func() { list = slices.Clone(s.silent) }); return list },
		Do: func(_ context.Context, c wire.Command) wire.Result {
			s.change(func() { s.sent[c.Op.String()+" "+name]++ })
			return s.node.Do(time.Now(), c)
		},
		Edges: func() (list []presence.Edge) { s.change(func() { list = slices.Clone(s.there) }); return list }}
	s.change(func() { s.there = append(s.there, presence.Edge{ID: id, Name: name}) })
	ctx, cancel := context.WithCancel(s.t.Context())
	e.cancel = cancel
	go e.Run(ctx)
	go func() {
		for at := time.NewTicker(time.Second); ; {
			r := s.node.Do(time.Now(), wire.Command{Op: wire.Get, Key: s.key.ViewKey()})
			if r.Status == wire.Done {
				e.Notice(0, r.Values[0])
			}
			select {
			case <-ctx.Done():
				at.Stop()
				return
			case <-at.C:
			}
		}
	}()
	time.Sleep(phase)
	return e
}

func newSite(t *testing.T) *site {
	return &site{t: t, node: poptest.New(0), key: secret.Of([]byte("k")), sent: make(map[string]int)}
}

// take returns what was sent since it was last asked.
func (s *site) take() (sent map[string]int) {
	s.change(func() { sent, s.sent = s.sent, make(map[string]int) })
	return sent
}

func describe(p *view.PoP) string {
	var list []string
	for _, s := range p.Parts {
		text := fmt.Sprintf("%s %.1fs", s.Name, s.Age)
		if s.Part == nil {
			text = s.Name + " missing: " + strings.SplitN(s.Missing, ":", 2)[0]
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// Nobody looks, and nothing is sent. Who looks sees all edges within a second and a half, then at once; each shows itself once a second, and no
// more once nobody looks.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		edges := []*edge{s.start(1, 300*time.Millisecond), s.start(2, 300*time.Millisecond), s.start(3, 100*time.Millisecond)}
		time.Sleep(time.Minute)
		if sent := s.take(); len(sent) != 0 {
			t.Errorf("nobody looks, and there is sent: %v", sent)
		}
		began := time.Now()
		p := edges[0].Look(t.Context(), "")
		if took := time.Since(began); took > 1500*time.Millisecond || p.Load().Received != 6 || p.Parts[0].Name != "edge1" {
			t.Errorf("after %v: %s", took, describe(p))
		}
		s.take()
		for range 30 { // two dashboards
			began := time.Now()
			for range 2 {
				if p = edges[0].Look(t.Context(), ""); p.Load().Received != 6 || p.Parts[1].Age > 2 || p.Parts[2].Age > 2 {
					t.Errorf("then: %s", describe(p))
				}
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("it took %v", took)
			}
			time.Sleep(2 * time.Second)
		}
		sent := s.take()
		if n := sent["set edge2"]; n < 58 || n > 62 || sent["set edge3"] < 58 || sent["set edge3"] > 62 {
			t.Errorf("shown in a minute: %v", sent)
		}
		if sent["cas edge1"] > 21 || sent["gets edge1"] > 21 || sent["get edge1"] > 31 || len(sent) != 5 {
			t.Errorf("who looks sends %v", sent)
		}
		time.Sleep(2 * looks)
		s.take()
		time.Sleep(time.Minute)
		if sent := s.take(); len(sent) != 0 {
			t.Errorf("nobody looks any more, and there is sent: %v", sent)
		}
		for _, e := range edges {
			e.cancel()
		}
	})
}

// One edge is killed, one hangs: both are missing within seconds, the others are not, and who looks waits for neither more than once.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		edges := []*edge{s.start(1, 0), s.start(2, 300*time.Millisecond), s.start(3, 500*time.Millisecond), s.start(4, 100*time.Millisecond)}
		if got := describe(edges[0].Look(t.Context(), "")); strings.Contains(got, "missing") {
			t.Error(got)
		}
		edges[1].cancel() // it is killed: presence goes after a while
		edges[2].cancel() // it hangs
		time.AfterFunc(4*time.Second, func() {
			s.change(func() {
				s.there, s.silent = slices.DeleteFunc(s.there, func(e presence.Edge) bool { return e.ID == 2 }), []string{"edge2"}
			})
		})
		for range 4 {
			time.Sleep(2 * time.Second)
			edges[0].Look(t.Context(), "")
		}
		began := time.Now()
		p := edges[0].Look(t.Context(), "")
		if took := time.Since(began); took > 0 {
			t.Errorf("it takes %v", took)
		}
		got := describe(p)
		if !strings.HasSuffix(got, "edge3 missing: it shows nothing any more, edge4 0.0s, edge2 missing: it ended without notice") || p.Load().Received != 5 {
			t.Error(got)
		}
		if e := p.Parts[3].Edge; e.ID != "0000000000000002" || e.Age < 5 {
			t.Errorf("of the one that is gone: %+v", e)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		got = describe(edges[0].Look(t.Context(), ""))
		if took := time.Since(began); took > awaited+200*time.Millisecond || !strings.Contains(got, "edge3 missing: it shows nothing any more") || !strings.Contains(got, "edge4 0") {
			t.Errorf("a minute later, in %v: %s", took, got)
		}
		for _, e := range edges {
			e.cancel()
		}
	})
}

// What is asked at two edges at once, all answer to both.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		edges := []*edge{s.start(1, 300*time.Millisecond), s.start(2, 300*time.Millisecond), s.start(3, 100*time.Millisecond)}
		var both sync.WaitGroup
		for _, e := range edges[:2] {
			both.Go(func() {
				for _, question := range []string{"source 192.0.2.1", "source 192.0.2.2"} {
					question += fmt.Sprint(e.ID)
					said := view.Answers[string](e.Look(t.Context(), question), question)
					if len(said) != 3 || !slices.ContainsFunc(said, func(a view.Answered[string]) bool { return a.Edge == "edge3" && a.Answer == "edge3 says of "+question }) {
						t.Errorf("%s: %v", question, said)
					}
				}
			})
		}
		both.Wait()
		for _, e := range edges {
			e.cancel()
		}
	})
}

// What is not authentic, another edge's, from another time or older than what is known is not shown; and a notice that somebody has kept asks nothing.
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		e, other := s.start(1, 0), s.start(2, 100*time.Millisecond)
		e.Look(t.Context(), "")
		put := func(key string, value []byte) {
			s.node.Do(time.Now(), wire.Command{Op: wire.Set, Key: key, Value: value})
		}
		read := func(key string) []byte { return s.node.Do(time.Now(), wire.Command{Op: wire.Get, Key: key}).Values[0] }
		kept, notice := slices.Clone(read(s.key.PartKey(2))), slices.Clone(read(s.key.ViewKey()))
		other.cancel()
		part := func(edge uint64, at time.Time) []byte {
			b, _ := (&view.Part{Edge: edge, Name: "forged", At: at}).Pack()
			return b
		}
		key := s.key.PartKey(2)
		for name, value := range map[string][]byte{
			"noise": []byte("noise"), "none": nil, "kept": kept,
			"of another secret":  secret.Of([]byte("x")).SealAt(secret.View, key, part(2, time.Now())),
			"from another place": s.key.SealAt(secret.View, s.key.PartKey(3), part(2, time.Now())),
			"of another use":     s.key.SealAt(secret.Presence, key, part(2, time.Now())),
			"of another edge":    s.key.SealAt(secret.View, key, part(3, time.Now())),
			"of another time":    s.key.SealAt(secret.View, key, part(2, time.Now().Add(time.Hour))),
			"sealed noise":       s.key.SealAt(secret.View, key, []byte("noise")),
		} {
			put(key, value)
			time.Sleep(10 * time.Second)
			if got := describe(e.Look(t.Context(), "")); !strings.HasSuffix(got, "edge2 missing: it shows nothing any more") {
				t.Errorf("%s: %s", name, got)
			}
		}
		time.Sleep(2 * keeps)
		put(s.key.ViewKey(), notice)
		third := s.start(3, 0)
		time.Sleep(10 * time.Second)
		if got := read(s.key.PartKey(3)); got != nil {
			t.Error("an edge shows itself to nobody")
		}
		e.cancel()
		third.cancel()
	})
}

// An edge that takes long to make its part makes it in a twentieth of its time, whatever new questions come, and of those it answers few.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		e := s.start(1, 0)
		var most, spent int
		e.Own = func(asked []string, now time.Time) *view.Part {
			most, spent = max(most, len(asked)), spent+1
			time.Sleep(200 * time.Millisecond)
			return &view.Part{At: now}
		}
		for n := range 60 {
			var all notice
			for i := range uint64(maxEdges) {
				l := looker{Edge: 2 + i, At: time.Now()}
				for q := range askedFor {
					l.Asked = append(l.Asked, fmt.Sprint("try ", n, i, q))
				}
				all.Lookers = append(all.Lookers, l)
			}
			text, _ := json.Marshal(all)
			s.node.Do(time.Now(), wire.Command{Op: wire.Set, Key: s.key.ViewKey(), Value: s.key.SealAt(secret.View, s.key.ViewKey(), text)})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if most != answered || spent < 10 || spent > 16 {
			t.Errorf("%d questions at a time, %d parts of 0.2 s in a minute", most, spent)
		}
		e.cancel()
		time.Sleep(time.Second)
	})
}

// An edge whose clock is off does not answer. What is said of it names the clock.
func TestClockOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		e := s.start(1, 100*time.Millisecond)
		s.change(func() { s.there = append(s.there, presence.Edge{ID: 2, Name: "edge2"}) })
		for range 2 {
			if said := e.Look(t.Context(), "").Parts[1].Missing; !strings.Contains(said, "clock") {
				t.Errorf("missing: %s", said)
			}
			time.Sleep(time.Second)
			p := &view.Part{Edge: 2, Name: "edge2", At: time.Now().Add(2 * keeps)}
			b, err := p.Pack()
			if err != nil {
				t.Fatal(err)
			}
			s.node.Do(time.Now(), wire.Command{Op: wire.Set, Key: s.key.PartKey(2), Value: s.key.SealAt(secret.View, s.key.PartKey(2), b)})
		}
		e.cancel()
	})
}

// An edge that counts alone is the whole PoP.
func TestAlone(t *testing.T) {
	v := New()
	v.Name, v.Own = "a", func(asked []string, now time.Time) *view.Part {
		p := &view.Part{At: now}
		p.Answer(asked[0], json.RawMessage(`"yes"`))
		return p
	}
	v.Run(t.Context())
	p := v.Look(t.Context(), "q")
	if got := view.Answers[string](p, "q"); len(p.Parts) != 1 || p.Parts[0].Missing != "" || len(got) != 1 || got[0].Answer != "yes" || got[0].Edge != "a" {
		t.Errorf("%s: %+v", describe(p), got)
	}
}
