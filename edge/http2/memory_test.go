package http2

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/counter"
	"sluice/edge/front"
	"sluice/edge/message"
)

// inMemory plays connections to a site with a bound on memory, in virtual time.
func inMemory(t *testing.T, most int, play func(*talk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := startTalkWith(t, 100, func(s *Server) {
			s.Memory = NewMemory(most, func(peer netip.Addr) (counter.Source, bool) { return counter.SourceOf(peer, 32, 64), true })
		})
		play(k)
		k.nc.Close()
		<-k.ended
		synctest.Wait()
		if m := k.site.Memory; m.held.Load() != 0 || m.stalled.Load() != 0 || m.holders.Load() != 0 || len(m.sources) != 0 || len(m.stalling) != 0 {
			t.Errorf("in the end %d bytes are held by %d sources, %d wait, %d sources are known", m.held.Load(), m.holders.Load(), m.stalled.Load(),
				len(m.sources))
		}
	})
}

// another is a connection to k's site from another peer. Whoever uses it ends it.
func (k *talk) another(peer string) *talk {
	here, there := net.Pipe()
	o := &talk{t: k.t, nc: &muted{here, make(chan struct{}, 1)}, ended: make(chan struct{}), site: k.site, release: k.release, may: map[uint32]int{}}
	o.client = &front.Client{Conn: there, Raw: there, Server: k.site.Server, Peer: netip.MustParseAddr(peer), Accepted: time.Now().UnixNano()}
	o.nc.(*muted).hears <- struct{}{}
	o.begin()
	return o
}

func (k *talk) end() {
	k.nc.Close()
	<-k.ended
}

// A muted connection is read while there is something in hears.
type muted struct {
	net.Conn
	hears chan struct{}
}

func (m *muted) Read(p []byte) (int, error) {
	m.hears <- <-m.hears
	return m.Conn.Read(p)
}

// shut has a client open no window.
func (k *talk) shut() {
	_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0})
	synctest.Wait()
}

// many requests a path so many times, beginning with a stream.
func (k *talk) many(from uint32, n int, path string) {
	for i := range uint32(n) {
		k.get(from+2*i, path, true, true)
		synctest.Wait()
	}
}

// counts is how many lines have come since the last time that contain a text.
func (k *talk) counts(text string) (n int) {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, line := range k.heard {
		if strings.Contains(line, text) {
			n++
		}
	}
	k.heard = nil
	return n
}

// Of those whose answers wait, the source with most of them gives way, once it has waited for long, and what has waited longest
// first. Neither a source with less nor one that reads is touched.
func TestWhoLetsMostWaitGivesWay(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		large, small := calm.another("192.0.2.2"), calm.another("192.0.2.3")
		defer large.end()
		defer small.end()
		large.shut()
		small.shut()
		large.many(1, 8, "/")
		small.many(1, 3, "/") // more than half is held
		if n := large.counts("RST") + small.counts("RST"); n != 0 {
			t.Errorf("%d streams were reset at once", n)
		}
		calm.many(1, 1, "/")
		calm.expect("1: 200")
		time.Sleep(patience)
		calm.many(3, 1, "/")
		calm.expect("3: 200")
		if n, m := large.counts("RST ENHANCE_YOUR_CALM"), small.counts("RST"); n == 0 || n > 4 || m != 0 {
			t.Errorf("%d streams were reset of the source with 8 that wait, %d of that with 3", n, m)
		}
		if m := calm.site.Memory; m.held.Load() > m.most/2 {
			t.Errorf("%d bytes of %d are held", m.held.Load(), m.most)
		}
		_ = large.WriteWindowUpdate(1, 100)
		_ = large.WriteWindowUpdate(15, 100)
		synctest.Wait()
		if n := calm.site.Stats.MemoryRefused.Load() + calm.site.Stats.MemoryCut.Load(); n != 0 {
			t.Errorf("%d others gave way", n)
		}
	})
}

// However many streams wait of however many sources, what they hold is bounded, and another client is served all the time.
func TestWhatWaitsIsBounded(t *testing.T) {
	inMemory(t, 40*(requestHolds+1<<10), func(calm *talk) {
		var all []*talk
		for i := range byte(8) {
			k := calm.another(netip.AddrFrom4([4]byte{192, 0, 2, 10 + i}).String())
			defer k.end()
			k.shut()
			all = append(all, k)
		}
		id, m, s := uint32(1), calm.site.Memory, &calm.site.Stats
		for range 30 {
			for _, k := range all {
				k.many(id, 1, "/")
				if held := m.held.Load(); held > m.most {
					t.Fatalf("%d bytes of %d are held", held, m.most)
				}
			}
			calm.many(id, 1, "/")
			time.Sleep(moment)
			id += 2
		}
		if n := calm.counts(": 200"); n != 30 {
			t.Errorf("%d of 30 requests of another client were served", n)
		}
		if s.MemoryReset.Load() == 0 {
			t.Errorf("nothing gave way")
		}
	})
}

// A source that has had to give way begins nothing for a while where memory is short. Others do, and so does it, where memory
// is not.
func TestWhoGaveWayIsRefused(t *testing.T) {
	inMemory(t, 8*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		k.shut()
		k.many(1, 2, "/")
		time.Sleep(patience)
		calm.many(1, 6, "/slow")
		if n := k.counts("RST ENHANCE_YOUR_CALM"); n != 2 {
			t.Errorf("%d streams gave way, want 2", n)
		}
		k.many(5, 2, "/slow")
		if n := k.counts("RST REFUSED_STREAM"); n != 2 {
			t.Errorf("%d streams were refused, want 2", n)
		}
		calm.many(13, 1, "/slow")
		time.Sleep(penalty)
		k.many(9, 1, "/slow")
		if n := k.counts("RST"); n != 0 {
			t.Errorf("%d streams were refused later", n)
		}
		close(calm.release)
		if n := calm.counts(": 200"); n != 7 {
			t.Errorf("%d of 7 requests of another source were served", n)
		}
		k.counts("")
		k.many(11, 1, "/")
		if n := k.counts("RST"); n != 0 {
			t.Errorf("%d streams were refused where there is room", n)
		}
	})
}

// What is under way is bounded as well: who holds more than the average is refused, and who holds less is served.
func TestWhatIsUnderWayIsBounded(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		k.many(1, 40, "/slow")
		calm.many(1, 5, "/slow")
		if m := calm.site.Memory; m.held.Load() > m.most+6*requestHolds {
			t.Errorf("%d bytes of %d are held", m.held.Load(), m.most)
		}
		if n := k.counts("RST REFUSED_STREAM"); n < 15 || n > 21 {
			t.Errorf("%d of 40 requests were refused", n)
		}
		close(calm.release)
		if n := calm.counts(": 200"); n != 5 {
			t.Errorf("%d of 5 requests of another source were served", n)
		}
	})
}

// However many sources there are, each of which would get its share on top of what those before it hold, they hold a third more
// than the bound at most. One that holds nothing is served meanwhile.
func TestSharesOfManySourcesAreBounded(t *testing.T) {
	inMemory(t, 100*(requestHolds+1<<10), func(calm *talk) {
		m := calm.site.Memory
		for i := range byte(8) {
			k := calm.another(netip.AddrFrom4([4]byte{192, 0, 2, 10 + i}).String())
			defer k.end()
			go func() { // a pipe holds nothing
				for id := range uint32(100) {
					k.get(1+2*id, "/slow", true, true)
				}
			}()
			time.Sleep(4 * patience)
			if held := m.held.Load(); held > m.most/3*4+2*requestHolds {
				t.Errorf("%d sources hold %d bytes of %d", i+1, held, m.most)
			}
			if i == 2 {
				calm.many(1, 1, "/")
				calm.expect("1: 200")
			}
		}
		close(calm.release)
		synctest.Wait()
	})
}

// A source that lets nothing wait is held back where it has its share, rather than refused, while its requests come to an end;
// on another of its connections as well.
func TestWhoReadsIsHeldBack(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k, also := calm.another("192.0.2.2"), calm.another("192.0.2.2")
		defer k.end()
		defer also.end()
		k.many(1, 15, "/slow")
		calm.many(1, 6, "/slow")
		go func() { // a pipe holds nothing
			for id := range uint32(3) {
				also.get(1+2*id, "/", true, true)
			}
		}()
		go k.get(31, "/", true, true) // its connection is held back as well
		if n := also.counts("") + k.counts(""); n != 0 {
			t.Errorf("%d frames came of a source that has its share", n)
		}
		time.AfterFunc(patience/2, func() { close(calm.release) })
		time.Sleep(patience / 2)
		if n, m := also.counts(": 200"), k.counts(": 200"); n != 3 || m != 16 {
			t.Errorf("%d of 3 and %d of 16 requests were served once others had ended", n, m)
		}
		if n := calm.site.Stats.MemoryRefused.Load(); n != 0 {
			t.Errorf("%d were refused", n)
		}
	})
}

// deafened is another client, of 192.0.2.2, that lets the edge send whatever it has and reads
// nothing until hears is given to.
func (k *talk) deafened() (deaf *talk, hears chan struct{}) {
	deaf = k.another("192.0.2.2")
	hears = deaf.nc.(*muted).hears
	_ = deaf.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 1 << 30})
	_ = deaf.WriteWindowUpdate(0, 1<<30)
	synctest.Wait()
	<-hears
	return deaf, hears
}

// A client that reads nothing at all holds what is written to it, too: its connection ends where memory is short.
func TestWhoReadsNothingIsCut(t *testing.T) {
	inMemory(t, 256<<10, func(calm *talk) {
		start := calm.site.Start
		calm.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/page" {
				return paged{st}
			}
			return start(st)
		}
		deaf, hears := calm.deafened()
		deaf.get(1, "/page", true, true)
		synctest.Wait()
		time.Sleep(patience)
		calm.many(1, 1, "/")
		calm.expect("1: 200")
		if n := calm.site.Stats.MemoryCut.Load(); n != 1 {
			t.Errorf("%d connections were ended, want 1; %d bytes of %d are held", n, calm.site.Memory.held.Load(), calm.site.Memory.most)
		}
		hears <- struct{}{}
		<-deaf.ended
	})
}

// A paged request is answered with a page that is longer than what may wait to be written.
type paged struct{ st *Stream }

func (p paged) Run() {
	_ = p.st.Respond(&message.Reply{Status: 200, Body: make([]byte, 4*mostUnwritten)})
}

// A client that goes on in time is never reset, however much is held.
func TestWhoReadsIsNotReset(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		k.shut()
		k.many(1, 12, "/")
		for id := uint32(1); id < 24; id += 2 {
			time.Sleep(patience / 20)
			_ = k.WriteWindowUpdate(id, 100)
			calm.many(id, 1, "/")
		}
		if n, m := k.counts("RST"), calm.counts(": 200"); n != 0 || m != 12 {
			t.Errorf("%d streams were reset of a client that reads, %d requests of another were served", n, m)
		}
	})
}

// An asking request learns its verdict when verdict is closed, and then asks an origin.
type asking struct {
	st              *Stream
	verdict, answer <-chan struct{}
	awaited         int
}

func (a asking) Run() {
	<-a.verdict
	a.st.Expect(a.awaited)
	<-a.answer
	_ = a.st.Respond(&message.Reply{Status: 200})
}

// Requests whose verdicts come together ask their origins together: what they hold from then on has been bounded before.
func TestVerdictsThatComeTogetherAreWithinTheBound(t *testing.T) {
	const awaited = 110 << 10
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		verdict, m := make(chan struct{}), calm.site.Memory
		calm.site.Awaited = func() int { return awaited }
		calm.site.Start = func(st *Stream) Continuation {
			return asking{st, verdict, calm.release, awaited}
		}
		for i := range byte(20) {
			k := calm.another(netip.AddrFrom4([4]byte{192, 0, 2, 10 + i}).String())
			defer k.end()
			k.many(1, 1, "/")
		}
		time.Sleep(patience)
		close(verdict)
		synctest.Wait()
		if held := m.held.Load(); held > m.most || held < awaited {
			t.Errorf("%d bytes of %d are held", held, m.most)
		}
		close(calm.release)
		synctest.Wait()
	})
}

// What a request was admitted with, and its origin does not need, others may have.
func TestAnOriginThatNeedsLessIsCountedWithLess(t *testing.T) {
	const awaited = 110 << 10
	inMemory(t, 1<<20, func(calm *talk) {
		verdict, m := make(chan struct{}), calm.site.Memory
		calm.site.Awaited = func() int { return awaited }
		calm.site.Start = func(st *Stream) Continuation { return asking{st, verdict, calm.release, 0} }
		calm.many(1, 1, "/")
		if held := m.held.Load(); held < awaited+requestHolds {
			t.Errorf("%d bytes are held of a request whose origin is unknown", held)
		}
		close(verdict)
		synctest.Wait()
		if held := m.held.Load(); held >= awaited {
			t.Errorf("%d bytes are held of a request at an origin of HTTP/1.1", held)
		}
		close(calm.release)
		synctest.Wait()
	})
}

// A long head grows where the heads before it did, and its stream has room for it once: growing is most of what such a head
// costs.
func TestALongHeadGrowsOnce(t *testing.T) {
	c := &conn{site: &Server{Server: &front.Server{Limits: front.Limits{HeaderBytes: 32 << 10}}}, head: new(head)}
	value := strings.Repeat("v", 100)
	if n := testing.AllocsPerRun(10, func() {
		st := Stream{conn: c}
		*c.head = head{stream: &st, text: c.head.text[:0], method: "GET", scheme: "https", path: "/", has: hasMethod | hasScheme | hasPath}
		for range 200 {
			c.field(hpack.HeaderField{Name: "x-long", Value: value})
		}
		if c.head.wrong || cap(st.text) != 0 || len(c.head.text) < 20_000 {
			t.Fatalf("%d bytes of %d are the stream's", cap(st.text), len(c.head.text))
		}
	}); n > 1 { // the stream
		t.Errorf("%v allocations", n)
	}
}

// What a body may have of the connection's spare window is counted, too, and there is none where memory is short.
func TestSpareWindowsAreCounted(t *testing.T) {
	inMemory(t, 4<<20, func(k *talk) {
		m := k.site.Memory
		send := func(id uint32) (grew int64) {
			was := m.held.Load()
			k.get(id, "/body", false, true)
			_ = k.WriteData(id, false, make([]byte, firstWindow*3/4))
			synctest.Wait()
			return m.held.Load() - was
		}
		if grew := send(1); grew < requestHolds+streamWindow {
			t.Errorf("%d bytes are held of a body with a window of %d", grew, streamWindow)
		}
		_ = k.WriteData(1, true, nil)
		synctest.Wait()
		if held := m.held.Load(); held != 0 {
			t.Errorf("%d bytes are held when it is over", held)
		}
		m.held.Add(m.most/2 + 1)
		if grew := send(3); grew > requestHolds+streamWindow/2 {
			t.Errorf("%d bytes are held of a body where memory is short", grew)
		}
		m.held.Add(-m.most/2 - 1)
		_ = k.WriteData(3, true, nil)
		synctest.Wait()
	})
}

// What comes after a body is counted, and where there is no room for it the stream is reset.
func TestTrailersAreCounted(t *testing.T) {
	inMemory(t, 1<<20, func(k *talk) {
		m := k.site.Memory
		k.site.Start = func(st *Stream) Continuation { return answering{st, k.release} }
		trailers := func(id uint32, whole bool) {
			_ = k.WriteHeaders(frames.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: whole, BlockFragment: block("x-tail", strings.Repeat("t", 3<<10))})
			synctest.Wait()
		}
		k.get(1, "/", false, true)
		synctest.Wait()
		was := m.held.Load()
		if trailers(1, true); m.held.Load() < was+3<<10 {
			t.Errorf("%d bytes more are held", m.held.Load()-was)
		}
		k.get(3, "/", false, true)
		synctest.Wait()
		m.held.Add(m.most)
		k.site.Memory.holders.Add(1000)
		trailers(3, true)
		m.held.Add(-m.most)
		k.site.Memory.holders.Add(-1000)
		if n := k.counts("3: RST ENHANCE_YOUR_CALM"); n != 1 {
			t.Errorf("the stream was not reset where there is no room")
		}
		k.get(5, "/", false, true)
		synctest.Wait()
		trailers(5, false)
		close(k.release) // over, before its trailers are
		synctest.Wait()
		_ = k.WriteContinuation(5, true, block("x-more", "t"))
		synctest.Wait()
		if held := m.held.Load(); held != 0 {
			t.Errorf("%d bytes are held when all are over", held)
		}
	})
}

// Answers that gather behind a short write, of a client that reads nothing, are counted, and the connection ends where memory
// is short.
func TestWhatGathersBehindAShortWriteIsCounted(t *testing.T) {
	inMemory(t, 256<<10, func(calm *talk) {
		start, body := calm.site.Start, make([]byte, 10<<10)
		calm.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/page" {
				return rest(func() { _ = st.Respond(&message.Reply{Status: 200, Body: body}) })
			}
			return start(st)
		}
		deaf, hears := calm.deafened()
		calm.many(1, 3, "/slow")
		for id := range uint32(7) {
			deaf.get(1+2*id, "/page", true, true)
			synctest.Wait()
		}
		if held := calm.site.Memory.held.Load(); held < mostUnwritten+3*requestHolds {
			t.Errorf("%d bytes are held of what gathers", held)
		}
		time.Sleep(patience)
		calm.many(7, 1, "/")
		calm.expect("7: 200")
		if n := calm.site.Stats.MemoryCut.Load(); n != 1 {
			t.Errorf("%d connections were ended, want 1; %d bytes of %d are held", n, calm.site.Memory.held.Load(), calm.site.Memory.most)
		}
		hears <- struct{}{}
		<-deaf.ended
		close(calm.release)
		synctest.Wait()
	})
}

type rest func()

func (r rest) Run() { r() }

// A connection keeps what it has written much with only while there is something to be written.
func TestLargeBuffersAreGivenBack(t *testing.T) {
	inMemory(t, 1<<20, func(k *talk) {
		var c *conn
		start := k.site.Start
		k.site.Start = func(st *Stream) Continuation {
			if c = st.conn; string(st.Request().Path) == "/page" {
				return paged{st}
			}
			return start(st)
		}
		_ = k.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 1 << 30})
		_ = k.WriteWindowUpdate(0, 1<<30)
		k.many(1, 1, "/slow")
		k.many(3, 1, "/page")
		synctest.Wait()
		c.mu.Lock()
		if n := cap(c.out) + cap(c.spare); n > 2*frameSize {
			t.Errorf("%d bytes are kept while a request is awaited", n)
		}
		c.mu.Unlock()
		close(k.release)
		synctest.Wait()
	})
}
