package http2

import (
	"bytes"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// full has a source hold its share, and another the rest: the next request of the former is held back.
func full(calm, k *talk) {
	k.many(1, 15, "/slow")
	calm.many(1, 6, "/slow")
	k.counts("")
	calm.counts("")
}

// A download is longer than a window, and begins when it is told to.
type download struct {
	st    *Stream
	begin <-chan struct{}
}

func (d download) Run() {
	<-d.begin
	_ = d.st.Respond(&message.Reply{Status: 200, Body: make([]byte, 2*usualWindow)})
}

// What a connection is held back for must not be what its other streams wait for: those of a client that opens its windows
// at once go on.
func TestHeldBackHearsOfWindows(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		begin, start := make(chan struct{}), calm.site.Start
		calm.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/download" {
				return download{st, begin}
			}
			return start(st)
		}
		k := calm.another("192.0.2.2")
		defer k.end()
		k.many(101, 1, "/download")
		k.many(103, 14, "/slow")
		calm.many(1, 6, "/slow")
		go func() {
			k.get(301, "/", true, true) // held back
			_ = k.WriteWindowUpdate(0, 2*usualWindow)
			_ = k.WriteWindowUpdate(101, 2*usualWindow)
		}()
		synctest.Wait()
		close(begin)
		synctest.Wait()
		time.Sleep(moment)
		calm.many(13, 1, "/slow") // looks for room
		if n := k.counts("101: RST"); n != 0 {
			t.Errorf("the answer was reset of a client that has opened its windows, which nobody reads")
		}
		close(calm.release)
		synctest.Wait()
	})
}

// However many requests are held back in vain, what the client says after them is read soon.
func TestHeldBackInVainOnce(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		full(calm, k)
		go func() {
			for id := range uint32(30) {
				k.get(31+2*id, "/", true, true)
			}
			_ = k.WritePing(false, [8]byte{})
		}()
		synctest.Wait()
		time.Sleep(patience)
		if n := k.counts("PING true"); n != 1 {
			t.Errorf("no answer to PING after %v", patience)
			time.Sleep(30 * patience)
		}
		close(calm.release)
		synctest.Wait()
	})
}

// Room that others have made is as good.
func TestHeldBackUntilOthersMakeRoom(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		own, start := make(chan struct{}), calm.site.Start
		calm.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/long" {
				return answering{st, own}
			}
			return start(st)
		}
		k := calm.another("192.0.2.2")
		defer k.end()
		k.many(1, 15, "/long")
		calm.many(1, 6, "/slow")
		go k.get(31, "/", true, true)
		synctest.Wait()
		close(calm.release)
		time.Sleep(patience / 2)
		if n := k.counts("31: 200"); n != 1 {
			t.Errorf("a request is held back where there is room")
		}
		time.Sleep(patience)
		if n := k.counts("31: RST"); n != 0 {
			t.Errorf("a request was refused where there is room")
		}
		close(own)
		synctest.Wait()
	})
}

// A request that is refused anyway is held back by nothing.
func TestRefusedIsNotHeldBack(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		full(calm, k)
		go k.get(31, "no path", true, true)
		if n := k.counts("31: RST") + k.counts("31: 400"); n != 1 {
			t.Errorf("a malformed request is held back")
		}
		time.Sleep(patience)
		close(calm.release)
		synctest.Wait()
	})
}

// A source whose writes are under way is held back as well.
func TestHeldBackWhileItWrites(t *testing.T) {
	inMemory(t, 1<<20, func(calm *talk) {
		start := calm.site.Start
		calm.site.Start = func(st *Stream) Continuation {
			if string(st.Request().Path) == "/page" {
				return paged{st}
			}
			return start(st)
		}
		k, also := calm.another("192.0.2.2"), calm.another("192.0.2.2")
		defer k.end()
		_ = also.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: 1 << 30})
		_ = also.WriteWindowUpdate(0, 1<<30)
		calm.many(1, 19, "/slow")
		k.many(1, 18, "/slow")
		hears := also.nc.(*muted).hears
		<-hears
		also.get(1, "/page", true, true)
		synctest.Wait()
		go k.get(201, "/", true, true)
		synctest.Wait()
		if n := k.counts("201: RST"); n != 0 {
			t.Errorf("a request was refused, of a source whose write has just begun")
		}
		hears <- struct{}{}
		close(calm.release)
		if n := k.counts("201: 200"); n != 1 {
			t.Errorf("the request was not served; %d of %d are held", calm.site.Memory.held.Load(), calm.site.Memory.most)
		}
		also.end()
	})
}

// What the loop owned when it failed is held no more.
func TestFaultOfTheLoopHoldsNothing(t *testing.T) {
	inMemory(t, 1<<20, func(calm *talk) {
		k := calm.another("192.0.2.2")
		calm.site.Start = func(*Stream) Continuation { panic("a fault") }
		k.many(1, 1, "/")
		<-k.ended
		k.end()
		if n := len(calm.faults); n != 1 {
			t.Errorf("%d faults", n)
		}
	})
}

// Nor must it be what a body waits for that is on its way.
func TestHeldBackReadsBodies(t *testing.T) {
	inMemory(t, 20*(requestHolds+firstWindow+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		k.get(1, "/body", false, true)
		k.many(3, 22, "/slow")
		calm.many(1, 12, "/slow")
		if m := calm.site.Memory; m.held.Load() <= m.most-requestHolds {
			t.Fatalf("%d of %d bytes are held", m.held.Load(), m.most)
		}
		k.counts("")
		go func() {
			k.get(201, "/", true, true)
			_ = k.WriteData(1, true, []byte("body"))
		}()
		if n := k.counts("1: 200"); n != 1 {
			t.Errorf("a body is not read, while another request waits for the end of its own")
		}
		time.Sleep(patience)
		close(calm.release)
		synctest.Wait()
	})
}

// Nor is it told late that it should go.
func TestHeldBackIsToldToGo(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		k := calm.another("192.0.2.2")
		defer k.end()
		full(calm, k)
		var burst bytes.Buffer // which is read at once
		for id, to := uint32(31), frames.NewFramer(&burst, nil); id < 91; id += 2 {
			_ = to.WriteHeaders(frames.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: true,
				BlockFragment: block(":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/")})
		}
		_, _ = k.nc.Write(burst.Bytes())
		synctest.Wait()
		k.client.Server.Retired.Store(time.Now().UnixNano())
		_ = k.client.Raw.SetReadDeadline(time.Unix(1, 0))
		time.Sleep(patience)
		if k.counts("GOAWAY") != 1 {
			t.Errorf("no GOAWAY after %v", patience)
		}
		close(calm.release)
		synctest.Wait()
	})
}

// Sources that hold nothing yet are held back like others, if there are so many that one request is more than their share.
func TestManySourcesAreHeldBack(t *testing.T) {
	inMemory(t, 20*(requestHolds+1<<10), func(calm *talk) {
		for i := range byte(60) {
			k := calm.another(netip.AddrFrom4([4]byte{192, 0, 2, 10 + i}).String())
			defer k.end()
			k.many(1, 1, "/slow")
		}
		if m := calm.site.Memory; m.held.Load() > m.most {
			t.Errorf("%d bytes of %d are held", m.held.Load(), m.most)
		}
		time.Sleep(patience)
		synctest.Wait()
		if n := calm.site.Stats.MemoryRefused.Load(); n < 39 || n > 41 || calm.site.Memory.held.Load() > calm.site.Memory.most {
			t.Errorf("%d of 60 requests were refused, want 40; %d bytes are held", n, calm.site.Memory.held.Load())
		}
		close(calm.release)
		synctest.Wait()
	})
}
