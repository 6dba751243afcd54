package rules

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
)

// Descriptors says which descriptors of other proxies a rule is about (Envoy's rate limit service): those of a domain with these entries, in
// this order and no others.
type Descriptors struct {
	Domain  string  `json:"domain"`
	Entries []Entry `json:"entries"`
}

// An Entry is a key of a descriptor and its value. A rule may leave the value open, by a prefix that ends in * or by none at all: then each
// value has a counter of its own.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Bounds of what a rule may name, and of what a proxy may ask in one call.
const (
	MaxEntries     = 16
	MaxDescriptors = 64
)

// open reports whether a rule leaves the value to the proxy.
func (e *Entry) open() bool { return e.Value == "" || strings.HasSuffix(e.Value, "*") }

// Check says what is wrong with the descriptors of a rule.
func (d *Descriptors) Check() error {
	switch {
	case d.Domain == "":
		return errors.New("no domain: say which one the proxy sends")
	case len(d.Entries) == 0:
		return errors.New("no entries: say which ones the proxy sends, such as [{key: remote_address}]")
	case len(d.Entries) > MaxEntries:
		return fmt.Errorf("more than %d entries: leave out some", MaxEntries)
	}
	for _, e := range d.Entries {
		switch {
		case e.Key == "":
			return errors.New("an entry without a key: every entry of a descriptor has one")
		case strings.Contains(strings.TrimSuffix(e.Value, "*"), "*"):
			return fmt.Errorf("%q has a * before its end: want an exact value, a prefix that ends in *, or no value for any", e.Value)
		}
	}
	return nil
}

// Same reports whether d and other are about the same descriptors.
func (d *Descriptors) Same(other *Descriptors) bool {
	same := func(a, b Entry) bool {
		return a.Key == b.Key && strings.TrimPrefix(a.Value, "*") == strings.TrimPrefix(b.Value, "*")
	}
	return d.Domain == other.Domain && slices.EqualFunc(d.Entries, other.Entries, same)
}

// String is d in a few words.
func (d *Descriptors) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "descriptor %s", d.Domain)
	for _, e := range d.Entries {
		fmt.Fprintf(&b, " %s", e.Key)
		if e.Value != "" {
			fmt.Fprintf(&b, "=%s", e.Value)
		}
	}
	return b.String()
}

// A Descriptor is a part of what another proxy tells of a request in its place.
type Descriptor struct {
	Entries []Entry
	Hits    uint32        // that the request counts; 0 counts nothing, and asks
	Limit   uint32        // in place of the rule's limit; 0: the rule's
	Window  time.Duration // of Limit: a second, a minute, an hour or a day
}

// limitUnits are the windows that a limit of a proxy's may have.
var limitUnits = [...]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// IsUnit reports whether a limit of a proxy's may have this window.
func IsUnit(window time.Duration) bool { return slices.Contains(limitUnits[:], window) }

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

// Keys under which Envoy tells the address of a client, whole or as a prefix.
const (
	remoteAddress       = "remote_address"
	maskedRemoteAddress = "masked_remote_address"
)

// described completes a rule about descriptors: where the one value that it leaves open is an address, that is the source, for lists and
// operators as for HTTP; else a digest of all values is. Limits that proxies send have counters apart, one for each unit: they are wide, and
// the tier finds nobody over them, because which limit holds only the request says.
func (r *Rule) described() error {
	d := r.Config.Match.Descriptors
	if err := d.Check(); err != nil {
		return err
	}
	r.address = -1
	var open []int
	for i := range d.Entries {
		if d.Entries[i].open() {
			open = append(open, i)
		}
	}
	if len(open) == 1 && (d.Entries[open[0]].Key == remoteAddress || d.Entries[open[0]].Key == maskedRemoteAddress) {
		r.address = open[0]
	} else {
		r.Parts = []KeyPart{{Kind: keyDescriptor}}
	}
	for _, unit := range limitUnits {
		own := r.Config
		own.Limit, own.Window = algorithm.MaxLimit, Duration(unit)
		c, err := own.NewCounter(fmt.Sprint(r.Counter.Name, " asked ", unit), r.Counter.Estimate)
		if err != nil {
			return err
		}
		r.Asked = append(r.Asked, c)
	}
	return nil
}

// sourceOf is the source that a rule counts for a descriptor, which it is about.
func (r *Rule) sourceOf(key Secret, s *address.Sources, d *Descriptor, buf []byte) (counter.Source, []byte) {
	if r.address >= 0 && d.Limit == 0 {
		text := d.Entries[r.address].Value
		if addr, err := netip.ParseAddr(text); err == nil {
			return s.Of(addr), buf
		}
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			return counter.SourceOf(p.Addr(), min(p.Bits(), 32), p.Bits()), buf
		}
	}
	buf = append(buf[:0], byte(keyDescriptor))
	text := func(s string) {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(s)))
		buf = append(buf, s...)
	}
	for i := range d.Entries {
		text(d.Entries[i].Key)
		text(d.Entries[i].Value)
	}
	if d.Limit != 0 { // another limit is another source: who was over one is not over the next
		buf = binary.LittleEndian.AppendUint32(buf, d.Limit)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(d.Window))
	}
	var id [16]byte
	a, b := siphash.Hash128(key.k0, key.k1, buf)
	binary.LittleEndian.PutUint64(id[:8], a)
	binary.LittleEndian.PutUint64(id[8:], b)
	return counter.SourceOfDigest(id), buf
}

// AddDescriptor puts the rule about a descriptor to the limiter, and returns the index of its result; less than 0: there is no such rule.
// Descriptors that count the same source under the same rule share a result.
func (d *Decision) AddDescriptor(key Secret, set *Set, s *address.Sources, domain string, q *Descriptor) int {
	r := set.described(domain, q.Entries)
	if r == nil {
		return -1
	}
	var source counter.Source
	source, d.buf = r.sourceOf(key, s, q, d.buf)
	limit := min(q.Limit, algorithm.MaxLimit)
	if limit == 0 {
		limit = r.Config.Limit
	}
	hits := min(q.Hits, limit+1) // more hits are no more over it
	for i := range d.Results {
		if d.Rules[i] == r && d.Results[i].Source == source {
			result := &d.Results[i]
			result.Hits = min(result.Hits+hits, limit+1)
			result.Asks = result.Hits == 0
			return i
		}
	}
	if !r.IsAbout(key, source) {
		return -1
	}
	d.Rules = append(d.Rules, r)
	d.Add(&r.Rule, source)
	result := &d.Results[len(d.Results)-1]
	result.Hits, result.Asks = hits, hits == 0
	if q.Limit != 0 {
		result.Counter = r.Asked[slices.Index(limitUnits[:], q.Window)].With(limit, r.Counter.Estimate)
	}
	return len(d.Results) - 1
}

// A descriptorNode is where rules about descriptors stand whose first entries are the same: a tree by key and value.
type descriptorNode struct {
	rule *Rule // about descriptors that end here; nil: none is
	keys map[string]*descriptorKey
}

// A descriptorKey has the values of a key.
type descriptorKey struct {
	exact    map[string]*descriptorNode
	prefixes []descriptorPrefix // the longest first; "" is any value
}

type descriptorPrefix struct {
	text string
	node *descriptorNode
}

// describe adds a rule about descriptors. Two about the same descriptors would leave open which limit a proxy is told.
func (s *Set) describe(r *Rule) error {
	d := r.Config.Match.Descriptors
	if s.domains == nil {
		s.domains = make(map[string]*descriptorNode)
	}
	n := s.domains[d.Domain]
	if n == nil {
		n = new(descriptorNode)
		s.domains[d.Domain] = n
	}
	for _, e := range d.Entries {
		n = n.child(e)
	}
	if n.rule != nil {
		return fmt.Errorf("rule %s: match.descriptors: rule %s is about the same: keep one, or say mode: off", r.Config.Name, n.rule.Config.Name)
	}
	n.rule = r
	return nil
}

// child finds or makes the node of an entry.
func (n *descriptorNode) child(e Entry) *descriptorNode {
	if n.keys == nil {
		n.keys = make(map[string]*descriptorKey)
	}
	k := n.keys[e.Key]
	if k == nil {
		k = &descriptorKey{exact: make(map[string]*descriptorNode)}
		n.keys[e.Key] = k
	}
	if !e.open() {
		if k.exact[e.Value] == nil {
			k.exact[e.Value] = new(descriptorNode)
		}
		return k.exact[e.Value]
	}
	text := strings.TrimSuffix(e.Value, "*")
	i, there := slices.BinarySearchFunc(k.prefixes, text, func(p descriptorPrefix, text string) int {
		return cmp.Or(cmp.Compare(len(text), len(p.text)), strings.Compare(p.text, text))
	})
	if !there {
		k.prefixes = slices.Insert(k.prefixes, i, descriptorPrefix{text, new(descriptorNode)})
	}
	return k.prefixes[i].node
}

// described finds the rule about a descriptor: entry by entry an exact value goes before a prefix, a longer prefix before a shorter one, and
// that before any value. It looks at each rule of the domain once at most.
func (s *Set) described(domain string, entries []Entry) *Rule {
	if n := s.domains[domain]; n != nil {
		return n.find(entries)
	}
	return nil
}

func (n *descriptorNode) find(entries []Entry) *Rule {
	if len(entries) == 0 {
		return n.rule
	}
	k := n.keys[entries[0].Key]
	if k == nil {
		return nil
	}
	value, rest := entries[0].Value, entries[1:]
	if next := k.exact[value]; next != nil {
		if r := next.find(rest); r != nil {
			return r
		}
	}
	for i := range k.prefixes {
		if p := &k.prefixes[i]; strings.HasPrefix(value, p.text) {
			if r := p.node.find(rest); r != nil {
				return r
			}
		}
	}
	return nil
}

// UnitOf is a window as so many seconds, minutes, hours or days: of the longest unit that fits.
func UnitOf(window time.Duration) (unit time.Duration, n uint32) {
	unit = time.Second
	for _, u := range limitUnits {
		if window%u == 0 {
			unit = u
		}
	}
	return unit, uint32(min(window/unit, math.MaxUint32))
}
