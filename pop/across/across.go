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
			return hmac.Equal([]byte(ticket),
				[]byte(k.Ticket(to, made)))
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
