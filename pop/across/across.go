// Package across is what PoPs that list each other as peers send each other: the sources that they
// have blocked, so that one that anycast takes to another PoP is refused there on its first
// request, and what they have counted of sources that have used two thirds of their limit, so that
// such a one has what is left of it there (Count).
//
//	edge of A that announces a block --> Outbox, one for each peer --> Message, sealed, to one edge of B --> Inbox --> B's edges
//
// A message is JSON under an HMAC-SHA-256 that all peers have the key of. It names its sender, its
// receiver, and when it was made; so no other PoP takes it, and none takes it twice or long after.
// What B puts into force goes to B's own edges, and never on to another PoP. A peer can only block,
// and no more than B's own rules could: it lifts nothing. A message without blocks shows that there
// is a way.
//
// Nothing here does I/O, waits, or reads a clock.
package across

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
)

// Block is a source that a PoP itself has blocked under a rule that enforces. Its times are on the
// sender's clock, as Message.At is.
type Block struct {
	Rule string `json:"rule"` // as operators know it
	// What the rule's counters are named by: rules that count by another key have another
	Counts string `json:"counts"`
	// An address prefix: digests are keyed with the secret of one PoP
	Source counter.Source `json:"-"`
	Start  time.Time      `json:"start"`
	End    time.Time      `json:"end"`
	Limit  uint32         `json:"limit"` // that the source went over
	Window time.Duration  `json:"window"`
}

// MarshalJSON writes the source as operators read it.
func (b Block) MarshalJSON() ([]byte, error) {
	type fields Block
	return json.Marshal(struct {
		fields
		Source string `json:"source"`
	}{fields(b), b.Source.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Block) UnmarshalJSON(text []byte) (err error) {
	type fields Block
	in := struct {
		*fields
		Source string `json:"source"`
	}{fields: (*fields)(b)}
	if err = json.Unmarshal(text, &in); err == nil {
		b.Source, err = counter.ParseSource(in.Source)
	}
	return err
}

// Travels reports whether a source means the same to another PoP.
func Travels(s counter.Source) bool {
	_, is := s.Prefix()
	return is
}

// Outcome is what became of a block that came from a peer.
type Outcome uint8

const (
	Imposed Outcome = iota // it is in force now
	// It was blocked already, for as long, or it is over, or an operator's order is against it
	Known
	NoRule     // no rule of this name and key enforces and blocks here
	Looser     // the rule here allows more
	OverRate   // its peer has sent too many
	Unreadable // another version wrote it, or its source is no address
	OtherWidth // the rule here counts by prefixes of another length
	Outcomes   = iota
)

// Of a Count: NoRule, OverRate, Unreadable, OtherWidth, or one of these.
const (
	Counted Outcome = iota + Outcomes // it is added to what is counted here
	NoRoom                            // there is none for so many sources
)

// OfCounts are all of these.
var OfCounts = []Outcome{Counted, NoRule, OtherWidth, NoRoom, OverRate, Unreadable}

func (o Outcome) String() string {
	return [...]string{"imposed", "known", "no_rule", "looser", "over_rate", "unreadable",
		"other_width", "counted", "no_room"}[o]
}

// Bounds of messages.
const (
	MaxBlocks = 500       // of a message
	MaxCounts = 500       // as well
	MaxBytes  = 512 << 10 // of one; names of rules and sources are short
	Window    = 30 * time.Second
)

// Message is what one edge sends to one edge of a peer.
type Message struct {
	From string `json:"from"` // the name of the sender's PoP
	To   string `json:"to"`   // and of the PoP that receives it
	// Stands for the sender's process, since its clock stepped back last
	Edge   string    `json:"edge"`
	At     time.Time `json:"at"` // of one Edge always later
	Blocks []Block   `json:"blocks"`
	Counts []Count   `json:"counts,omitempty"` // older versions read past them

	Key int `json:"-"` // that it came under, by its index among the keys here
}

// Key is what all peers share. While it changes each has several: the first signs, and what any of
// them has signed is believed.
type Key [sha256.Size]byte

// KeyOf makes the key from any bytes that are hard to guess.
func KeyOf(secret []byte) Key {
	return sha256.Sum256(append([]byte("sluice peers\x00"), secret...))
}

// Seal encodes a message, and signs it: the signature is in hexadecimal digits.
func (k Key) Seal(m *Message) (body []byte, signature string) {
	body, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has nothing that JSON has not
	}
	return body, hex.EncodeToString(k.mac(body))
}

// Ticket goes before a message to an edge of the PoP to: it shows that the sender has the key,
// before the signed body is there, so strangers do not hold the slot of a message while it is read.
// It is good for Window; an attacker that sees it on the way may hold a slot by it, but nothing is
// believed.
func (k Key) Ticket(to string, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	return at + "." + hex.EncodeToString(k.mac([]byte("ticket\x00"+to+"\x00"+at)))
}

// IsTicket reports whether one of the keys has made a ticket for the PoP to, not long before or
// after now.
func IsTicket(keys []Key, to, ticket string, now time.Time) bool {
	text, _, _ := strings.Cut(ticket, ".")
	at, err := strconv.ParseInt(text, 10, 64)
	made := time.Unix(at, 0)
	return err == nil && now.Sub(made).Abs() <= Window &&
		slices.ContainsFunc(keys, func(k Key) bool {
			return hmac.Equal([]byte(ticket), []byte(k.Ticket(to, made)))
		})
}

func (k Key) mac(body []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(body)
	return h.Sum(nil)
}

// What is wrong with a message that is refused.
var (
	ErrSignature = errors.New("the signature is wrong: the first line of the sender's peers_secret_file is not in the one here")
	ErrForm      = errors.New("that is no message of a peer")
	ErrFor       = errors.New("it is for another PoP: names and addresses in peers do not fit")
	ErrFrom      = errors.New("its sender is not among the peers here")
	ErrClock     = errors.New("its time is too far from the clock here: it is old, or a clock is wrong")
	ErrReplay    = errors.New("it is older than another of its sender that has come")
	ErrSenders   = errors.New("too many senders")
)

// Refusals are all of these, by the word for each in metrics.
var Refusals = map[string]error{
	"signature": ErrSignature, "form": ErrForm, "recipient": ErrFor, "sender": ErrFrom,
	"clock": ErrClock, "replay": ErrReplay, "senders": ErrSenders,
}

// open checks a signature and decodes. A block that cannot be read, as one of another version, is
// the zero Block, and a count likewise: those that came with it are as good as ever, and their PoP
// must not fall silent for as long as an upgrade takes.
func open(keys []Key, body []byte, signature string) (m Message, err error) {
	given, err := hex.DecodeString(signature)
	if err != nil {
		return m, ErrSignature
	}
	if m.Key = slices.IndexFunc(keys,
		func(k Key) bool { return hmac.Equal(given, k.mac(body)) }); m.Key < 0 {
		return m, ErrSignature
	}
	in := struct {
		*Message
		// Before they take much more memory: many may stand in few bytes
		Blocks []json.RawMessage `json:"blocks"`
		Counts []json.RawMessage `json:"counts"`
	}{Message: &m}
	if err := json.Unmarshal(body, &in); err != nil {
		return m, fmt.Errorf("%w: %v", ErrForm, err)
	}
	if len(in.Blocks) > MaxBlocks || len(in.Counts) > MaxCounts || len(m.Edge) > 64 {
		return m, ErrForm
	}
	m.Blocks = make([]Block, len(in.Blocks))
	for i, text := range in.Blocks {
		if json.Unmarshal(text, &m.Blocks[i]) != nil {
			m.Blocks[i] = Block{}
		}
	}
	for _, text := range in.Counts {
		var c Count
		if json.Unmarshal(text, &c) != nil || !c.sound() {
			c = Count{}
		}
		m.Counts = append(m.Counts, c)
	}
	return m, nil
}

// Count is what a PoP itself has counted of a source that has used two thirds of its limit, or
// more. Another PoP adds it to what it counts of that source. What others had said before is not in
// it, so no hit counts twice, and it takes the place of what the same PoP said of the source
// before.
//
// It is sent when a report brings the source over a step: the first hit of a group of sub-windows
// (four, or two), and each quarter of the limit within one. So what a PoP has counted and not sent
// is at most a quarter of the limit, and what is on its way, once it has sent something. A source
// that keeps to its limit causes no more than one count of each group, four for the limit, and one.
type Count struct {
	Rule   string         `json:"rule"`
	Counts string         `json:"counts"`
	Source counter.Source `json:"-"`
	Window time.Duration  `json:"window"`
	Began  time.Time      `json:"began"` // when the newest sub-window did, on the sender's clock
	Sub    time.Duration  `json:"sub"`   // the length of each
	Hits   []uint32       `json:"hits"`  // in each, the newest first
}

// MarshalJSON writes the source as operators read it.
func (c Count) MarshalJSON() ([]byte, error) {
	type fields Count
	return json.Marshal(struct {
		fields
		Source string `json:"source"`
	}{fields(c), c.Source.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Count) UnmarshalJSON(text []byte) (err error) {
	type fields Count
	in := struct {
		*fields
		Source string `json:"source"`
	}{fields: (*fields)(c)}
	if err = json.Unmarshal(text, &in); err == nil {
		c.Source, err = counter.ParseSource(in.Source)
	}
	return err
}

// maxSubWindows is how many a window touches at most.
const maxSubWindows = 13

func (c *Count) sound() bool {
	return Travels(c.Source) && len(c.Hits) <= maxSubWindows && c.Sub > 0 && c.Sub <= c.Window
}

// What a peer may have this edge do. A block costs the PoP one add and a line of the mitigation
// log, about 250 bytes; so a peer that is broken or taken over costs each edge that it sends to 100
// commands a second, and fills its table with as many sources.
const (
	Rate  = 100  // blocks a second of each peer
	Burst = 1000 // after a while without: what gathered while the way was down

	// Of counts there may be as many: each is a line of the log, about 100 bytes.

	// Edges of a peer whose messages came in Window: 64, and what they were before a restart or a
	// step of their clock
	maxSenders = 256
)

// Inbox takes messages of peers. It is safe for concurrent use.
type Inbox struct {
	name    string
	mu      sync.Mutex
	peers   map[string]*peer
	refused [len(reasons)]atomic.Uint64 // by the index of reasons
}

// peer is what is remembered of a peer: nothing that one does takes room from another.
type peer struct {
	// By Message.Edge, when its latest message was made; older than Window ones are forgotten
	senders map[string]time.Time
	blocks  bucket
	counts  bucket
}

// bucket is a token bucket of Rate and Burst.
type bucket struct {
	left float64
	at   time.Time // when left was true
}

// take takes as many of n as there are.
func (b *bucket) take(n int, now time.Time) int {
	// The first time from the year 1 on: all of it
	b.left = min(b.left+max(now.Sub(b.at).Seconds(), 0)*Rate, Burst)
	b.at = now
	n = min(n, int(b.left))
	b.left -= float64(n)
	return n
}

// Over is how many blocks and counts of a message were too many.
type Over struct{ Blocks, Counts int }

// NewInbox makes the Inbox of an edge of the PoP name.
func NewInbox(name string, peers []string) *Inbox {
	in := &Inbox{name: name, peers: make(map[string]*peer)}
	for _, other := range peers {
		in.peers[other] = &peer{senders: make(map[string]time.Time)}
	}
	return in
}

// Take checks a message that one of the keys has signed, and returns it with as many of its blocks
// and counts as its sender may send now, and how many more there were.
func (in *Inbox) Take(keys []Key, body []byte, signature string,
	now time.Time) (m Message, over Over, err error) {
	if m, err = open(keys, body, signature); err == nil {
		over, err = in.take(&m, now)
	}
	if err != nil {
		in.count(err)
		return Message{}, Over{}, err
	}
	return m, over, nil
}

func (in *Inbox) take(m *Message, now time.Time) (over Over, err error) {
	p := in.peers[m.From]
	switch {
	case m.To != in.name:
		return over, ErrFor
	case p == nil:
		return over, ErrFrom
	case now.Sub(m.At).Abs() > Window:
		return over, ErrClock
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	last, known := p.senders[m.Edge]
	if !m.At.After(last) {
		return over, ErrReplay
	}
	if !known && len(p.senders) >= maxSenders {
		for edge, at := range p.senders {
			if now.Sub(at) > Window {
				delete(p.senders, edge) // what it sent before is too old by now
			}
		}
		if len(p.senders) >= maxSenders {
			return over, ErrSenders
		}
	}
	p.senders[m.Edge] = m.At
	blocks, counts := p.blocks.take(len(m.Blocks), now), p.counts.take(len(m.Counts), now)
	over = Over{len(m.Blocks) - blocks, len(m.Counts) - counts}
	m.Blocks, m.Counts = m.Blocks[:blocks], m.Counts[:counts]
	return over, nil
}

// reasons are the words of Refusals in order.
var reasons = [...]string{"clock", "form", "recipient", "replay", "sender", "senders", "signature"}

func (in *Inbox) count(err error) {
	for i, reason := range reasons {
		if errors.Is(err, Refusals[reason]) {
			in.refused[i].Add(1)
		}
	}
}

// Refused is how many messages were refused, by the words of Refusals. What was not authentic has
// no sender that one could name.
func (in *Inbox) Refused() map[string]uint64 {
	all := make(map[string]uint64, len(reasons))
	for i, reason := range reasons {
		all[reason] = in.refused[i].Load()
	}
	return all
}

// Waiting is how many blocks wait for a peer, about 150 bytes each, so 1.5 MB while it is away; and
// how many counts, of 300 bytes.
const Waiting = 10_000

// Outbox is what is still to be sent to one peer. It is safe for concurrent use.
type Outbox struct {
	// Wake has something when there is something to send.
	Wake chan struct{}

	mu      sync.Mutex
	blocks  []Block
	counts  map[counted]Count // the latest of each: older ones need not be sent
	dropped uint64
}

// counted names what a Count is of.
type counted struct {
	rule, counts string
	window       time.Duration
	source       counter.Source
}

// NewOutbox makes an empty one.
func NewOutbox() *Outbox {
	return &Outbox{Wake: make(chan struct{}, 1), counts: make(map[counted]Count)}
}

// Add adds a block. Where there is no room, the oldest makes room: it has the least time left.
func (o *Outbox) Add(b Block) {
	o.mu.Lock()
	if len(o.blocks) >= Waiting {
		n := len(o.blocks) - Waiting*9/10 // many at once, so that each of a flood is moved seldom
		o.blocks = slices.Delete(o.blocks, 0, n)
		o.dropped += uint64(n)
	}
	o.blocks = append(o.blocks, b)
	o.mu.Unlock()
	o.wake()
}

// AddCount adds a count, in the place of an older one of the same source. Where there is no room it
// is dropped: the next step of the source says all of it again.
func (o *Outbox) AddCount(c Count) {
	k := counted{c.Rule, c.Counts, c.Window, c.Source}
	o.mu.Lock()
	if _, known := o.counts[k]; known || len(o.counts) < Waiting {
		o.counts[k] = c
	}
	o.mu.Unlock()
	o.wake()
}

func (o *Outbox) wake() {
	select {
	case o.Wake <- struct{}{}:
	default:
	}
}

// Take takes out the oldest that are in force at now, as many as a message has.
func (o *Outbox) Take(now time.Time) []Block {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blocks = InForce(o.blocks, now)
	n := min(len(o.blocks), MaxBlocks)
	batch := slices.Clone(o.blocks[:n])
	o.blocks = slices.Delete(o.blocks, 0, n)
	return batch
}

// TakeCounts takes out as many counts as a message has, of those that matter at now.
func (o *Outbox) TakeCounts(now time.Time) (batch []Count) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, c := range o.counts {
		if len(batch) == MaxCounts {
			break
		}
		delete(o.counts, k)
		batch = append(batch, c)
	}
	return Current(batch, now)
}

// Dropped is how many blocks made room for others.
func (o *Outbox) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Current leaves out what no window sees any more.
func Current(list []Count, now time.Time) []Count {
	return slices.DeleteFunc(list, func(c Count) bool { return now.Sub(c.Began) > c.Window+c.Sub })
}

// InForce leaves out what has ended.
func InForce(list []Block, now time.Time) []Block {
	return slices.DeleteFunc(list, func(b Block) bool { return !now.Before(b.End) })
}
