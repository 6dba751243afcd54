// Package descriptors is how other proxies describe requests (Envoy's rate limit service):
// descriptors, each a list of keys and values, and the rule that fits one most exactly.
package descriptors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Pattern is which descriptors a rule is about: those of a domain with these entries, in this
// order and no others.
type Pattern struct {
	Domain  string  `json:"domain"`
	Entries []Entry `json:"entries"`
}

// An Entry is a key of a descriptor and its value. A rule may leave the value open, by a prefix
// that ends in * or by none at all: then each value has its own counter.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Bounds of what a rule may name, and of what a proxy may send in one call.
const (
	MaxEntries = 16
	Max        = 64 // descriptors
)

// open reports whether a rule leaves the value to the proxy.
func (e *Entry) open() bool { return e.Value == "" || strings.HasSuffix(e.Value, "*") }

// Check returns what is wrong with the descriptors of a rule.
func (p *Pattern) Check() error {
	switch {
	case p.Domain == "":
		return errors.New("no domain: say which one the proxy sends")
	case len(p.Entries) == 0:
		return errors.New("no entries: say which ones the proxy sends, such as [{key: remote_address}]")
	case len(p.Entries) > MaxEntries:
		return fmt.Errorf("more than %d entries: leave out some", MaxEntries)
	}
	for _, e := range p.Entries {
		switch {
		case e.Key == "":
			return errors.New("an entry without a key: every entry of a descriptor has one")
		case strings.Contains(strings.TrimSuffix(e.Value, "*"), "*"):
			return fmt.Errorf("%q has a * before its end: want an exact value, a prefix that ends in *, or no value for any", e.Value)
		}
	}
	return nil
}

// Same reports whether p and other are about the same descriptors.
func (p *Pattern) Same(other *Pattern) bool {
	same := func(a, b Entry) bool {
		return a.Key == b.Key && strings.TrimPrefix(a.Value, "*") == strings.TrimPrefix(b.Value,
			"*")
	}
	return p.Domain == other.Domain && slices.EqualFunc(p.Entries, other.Entries, same)
}

// String is p in a few words.
func (p *Pattern) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "descriptor %s", p.Domain)
	for _, e := range p.Entries {
		fmt.Fprintf(&b, " %s", e.Key)
		if e.Value != "" {
			fmt.Fprintf(&b, "=%s", e.Value)
		}
	}
	return b.String()
}

// AddressAt is which entry holds the client's address, where that is the one value that p leaves
// open; less than 0: none does.
func (p *Pattern) AddressAt() int {
	at := -1
	for i := range p.Entries {
		if e := &p.Entries[i]; !e.open() {
			continue
		} else if at >= 0 || e.Key != remoteAddress && e.Key != maskedRemoteAddress {
			return -1
		}
		at = i
	}
	return at
}

// A Descriptor is a part of another proxy's description of a request.
type Descriptor struct {
	Entries []Entry
	Hits    uint32        // that the request counts; 0 counts nothing, and only reads
	Limit   uint32        // instead of the rule's limit; 0: the rule's
	Window  time.Duration // of Limit: one of Units
}

// Units are the windows that a limit of a proxy's may have.
var Units = [...]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// Address is the address of the client that a descriptor names; the zero Addr: it names none.
func (d *Descriptor) Address() netip.Addr {
	for i := range d.Entries {
		if e := &d.Entries[i]; e.Key == remoteAddress {
			if addr, err := netip.ParseAddr(e.Value); err == nil {
				return addr.Unmap().WithZone("")
			}
		}
	}
	return netip.Addr{}
}

// Keys under which Envoy sends the address of a client, whole or as a prefix.
const (
	remoteAddress       = "remote_address"
	maskedRemoteAddress = "masked_remote_address"
)

// Append appends all that distinguishes d from another, for a digest.
func (d *Descriptor) Append(buf []byte) []byte {
	for i := range d.Entries {
		buf = appendText(appendText(buf, d.Entries[i].Key), d.Entries[i].Value)
	}
	// Another limit is another source: one that was over the first is not over the next
	if d.Limit != 0 {
		buf = binary.LittleEndian.AppendUint32(buf, d.Limit)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(d.Window))
	}
	return buf
}

func appendText(buf []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(buf, uint32(len(text))), text...)
}

// UnitOf is a window as so many seconds, minutes, hours or days: of the longest unit that fits.
func UnitOf(window time.Duration) (unit time.Duration, n uint32) {
	unit = time.Second
	for _, u := range Units {
		if window%u == 0 {
			unit = u
		}
	}
	return unit, uint32(min(window/unit, math.MaxUint32))
}
