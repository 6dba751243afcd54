// Package nft keeps sets of prefixes in the kernel, and has it refuse new TCP connections from
// them: a table of nftables.
//
//	table inet sluice {
//	    counter refused { }
//	    set ports  { type inet_service; elements = { 8080, 8443 } }
//	    set ip32   { type ipv4_addr; size 65536; flags timeout; counter }      one for each length of prefix in use
//	    chain input {
//	        type filter hook input priority raw; policy accept;
//	        meta l4proto != tcp accept
//	        tcp flags & (fin | syn | rst | ack) != syn accept                   connections that are open go on
//	        tcp dport != @ports accept                                          and other servers are not concerned
//	        ip saddr @ip32 goto refuse
//	        ip saddr & 255.255.255.0 @ip24 goto refuse
//	    }
//	    chain refuse { counter name refused; reject with tcp reset }
//	}
//
// Sets of one length are hash tables: a lookup costs the same however many entries there are, and
// each entry has its timeout and its counter. A set of intervals would need one lookup for all
// lengths, but a tree is slower with many entries, and refuses prefixes that overlap. The hook is
// input and not prerouting, so that forwarded packets pass untouched, and ports are those that the
// edge listens on, after any translation of addresses.
package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Name is the name of the table, in the family inet.
const Name = "sluice"

// elementsAtOnce is how many elements a message of netlink holds: a list is at most 64 KiB long,
// because an attribute has 16 bits for its length.
const elementsAtOnce = 1024

// socketBuffer has room for the largest transaction, of AtOnce changes.
const socketBuffer = 4 << 20

// AtOnce is how many changes Apply takes.
const AtOnce = 4096

// Config says what a Table does.
type Config struct {
	Ports []uint16 // whose connections it may refuse
	Drop  bool     // do not answer, in place of a reset
	// Entries in all. Its sets have room for more: the kernel counts ended entries until it
	// collects them
	Max int
}

// Lease is a prefix that is refused for a time.
type Lease struct {
	Prefix netip.Prefix
	For    time.Duration

	timeout time.Duration // of the element, where that is longer than what is left of it; 0: For
}

// Count is what the kernel has counted for a prefix in a set.
type Count struct {
	Prefix  netip.Prefix
	Refused uint64        // SYNs since it was added
	Left    time.Duration // of its lease
}

// Table is the table in the kernel. It is not safe for concurrent use.
type Table struct {
	conn   *nftables.Conn
	moves  *elements // a socket for the elements of the sets alone
	gone   []Lease   // the deletes of Apply
	config Config
	table  *nftables.Table
	input  *nftables.Chain
	sets   map[setKey]*nftables.Set
	renews bool // adding an element again renews it, which Linux does from 6.12 on
	lost   bool // a change failed: the table may be gone, as after `nft flush ruleset`
}

// A setKey is a length of prefix of a family.
type setKey struct {
	v6   bool
	bits int
}

func keyOf(p netip.Prefix) setKey { return setKey{!p.Addr().Is4(), p.Bits()} }

func (k setKey) name() string {
	if k.v6 {
		return fmt.Sprintf("ip6_%d", k.bits)
	}
	return fmt.Sprintf("ip%d", k.bits)
}

// Open makes the table, in place of one that another process has left.
func Open(c Config) (*Table, error) {
	t := &Table{config: c}
	var err error
	if t.moves, err = openElements(); err != nil {
		return nil, err
	}
	if err := t.connect(); err != nil {
		t.moves.close()
		return nil, err
	}
	err = t.make()
	if err == nil {
		err = t.probe()
	}
	if err != nil {
		_ = t.conn.CloseLasting()
		t.moves.close()
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: sluice-wall needs CAP_NET_ADMIN in the network namespace of the edge", err)
		}
		return nil, fmt.Errorf("nft: make the table inet %s: %w", Name, err)
	}
	return t, nil
}

// connect opens a socket with room for a whole transaction, and for its answers.
func (t *Table) connect() error {
	conn, err := nftables.New(nftables.AsLasting(),
		nftables.WithSockOptions(func(c *netlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(socketBuffer), c.SetReadBuffer(socketBuffer))
		}))
	if err != nil {
		return fmt.Errorf("nft: open a netlink socket: %w", err)
	}
	t.conn = conn
	return nil
}

// commit ends a transaction.
func (t *Table) commit() error {
	if err := t.conn.Flush(); err != nil {
		return t.again(err)
	}
	return nil
}

// again replaces the sockets after an error: answers may be left in them, which the next
// transaction would take for its own.
func (t *Table) again(err error) error {
	t.lost = true
	_ = t.conn.CloseLasting()
	return errors.Join(err, t.connect(), t.moves.reopen())
}

// make replaces the table by one without entries, in one transaction.
func (t *Table) make() error {
	t.table = &nftables.Table{Name: Name, Family: nftables.TableFamilyINet}
	t.sets = make(map[setKey]*nftables.Set)
	t.conn.AddTable(t.table) // so that there is one to delete
	t.conn.DelTable(t.table)
	t.conn.AddTable(t.table)
	t.conn.AddObj(&nftables.NamedObj{Table: t.table, Name: "refused", Type: nftables.ObjTypeCounter,
		Obj: &expr.Counter{}})
	ports := &nftables.Set{Table: t.table, Name: "ports", KeyType: nftables.TypeInetService}
	var list []nftables.SetElement
	for _, p := range t.config.Ports {
		list = append(list, nftables.SetElement{Key: binary.BigEndian.AppendUint16(nil, p)})
	}
	if err := t.conn.AddSet(ports, list); err != nil {
		return err
	}
	accept := nftables.ChainPolicyAccept
	t.input = t.conn.AddChain(&nftables.Chain{Name: "input", Table: t.table,
		Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityRaw, Policy: &accept})
	refuse := t.conn.AddChain(&nftables.Chain{Name: "refuse", Table: t.table})
	pass := &expr.Verdict{Kind: expr.VerdictAccept}
	t.rule(t.input, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}}, pass)
	t.rule(t.input,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x17},
			Xor: []byte{0}}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0x02}}, pass)
	t.rule(t.input,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: 1, SetName: ports.Name, SetID: ports.ID, Invert: true}, pass)
	t.rule(refuse, &expr.Objref{Type: int(nftables.ObjTypeCounter), Name: "refused"})
	if t.config.Drop {
		t.rule(refuse, &expr.Verdict{Kind: expr.VerdictDrop})
	} else {
		t.rule(refuse, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	}
	if err := t.commit(); err != nil {
		return err
	}
	t.lost = false
	return nil
}

func (t *Table) rule(c *nftables.Chain, parts ...expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: c, Exprs: parts})
}

// set returns the set of a length, and makes it if there is none. It stays: a set without elements
// costs a lookup, and there are as many as lengths in the rules of an edge.
func (t *Table) set(k setKey) (*nftables.Set, error) {
	if s := t.sets[k]; s != nil {
		return s, nil
	}
	s := &nftables.Set{Table: t.table, Name: k.name(), KeyType: nftables.TypeIPAddr,
		KeyByteOrder: binaryutil.BigEndian, HasTimeout: true, Counter: true,
		Size: uint32(2*t.config.Max + AtOnce)}
	// Of the source in the header
	family, offset, length := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4)
	if k.v6 {
		s.KeyType = nftables.TypeIP6Addr
		family, offset, length = unix.NFPROTO_IPV6, 8, 16
	}
	if err := t.conn.AddSet(s, nil); err != nil {
		return nil, err
	}
	parts := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
			Len: length},
	}
	if k.bits < int(length)*8 {
		parts = append(parts, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length,
			Mask: mask(k.bits, int(length)), Xor: make([]byte, length)})
	}
	t.rule(t.input, append(parts, &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID},
		&expr.Verdict{Kind: expr.VerdictGoto, Chain: "refuse"})...)
	if err := t.commit(); err != nil {
		return nil, err
	}
	t.sets[k] = s
	return s, nil
}

// mask is the mask of a prefix, of so many bytes.
func mask(bits, length int) []byte {
	m := make([]byte, length)
	for i := range bits {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// probe finds out whether the kernel renews an element that is added again.
func (t *Table) probe() error {
	t.renews = true
	never := netip.MustParsePrefix("0.0.0.0/32")                    // no packet comes from there
	for _, lease := range []time.Duration{time.Minute, time.Hour} { // which is the same timeout
		if err := t.Apply([]Lease{{never, lease, time.Hour}}, nil); err != nil {
			return err
		}
	}
	list, _, err := t.Counts()
	if err != nil {
		return err
	}
	t.renews = slices.ContainsFunc(list, func(c Count) bool { return c.Left > 2*time.Minute })
	return t.Apply(nil, []netip.Prefix{never})
}

// Apply refuses the prefixes in adds for a time from now on, and those in deletes no more, in one
// transaction. No prefix may be in both lists, and each may be in a set already or not. There may
// be AtOnce of them. Where the kernel does not renew, the counter of a prefix that is renewed
// begins at 0 again.
func (t *Table) Apply(adds []Lease, deletes []netip.Prefix) error {
	t.gone = t.gone[:0]
	for _, p := range deletes {
		t.gone = append(t.gone, Lease{Prefix: p})
	}
	var of []setKey
	for _, list := range [][]Lease{adds, t.gone} {
		for _, l := range list {
			if k := keyOf(l.Prefix); !slices.Contains(of, k) {
				of = append(of, k)
			}
		}
	}
	for _, k := range of {
		if _, err := t.set(k); err != nil {
			return fmt.Errorf("nft: make a set: %w", err)
		}
	}
	err := t.moves.batch(func() {
		for _, k := range of {
			t.queue(k, t.sets[k].Name, adds)
		}
	})
	if err != nil {
		return fmt.Errorf("nft: change the sets: %w", t.again(err))
	}
	return nil
}

// queue puts the changes of a set into the transaction. Each element that is to be deleted is added
// first: deleting one that is not there, or has just expired, would be an error, which undoes the
// whole transaction.
func (t *Table) queue(k setKey, name string, adds []Lease) {
	t.moves.change(newElements, k, name, t.gone)
	t.moves.change(deleteOnes, k, name, t.gone)
	t.moves.change(newElements, k, name, adds)
	if !t.renews {
		t.moves.change(deleteOnes, k, name, adds)
		t.moves.change(newElements, k, name, adds)
	}
}

// Flush empties the sets. The sets and the count of refused SYNs stay, unless an error came before:
// then the table is made anew.
func (t *Table) Flush() error {
	if t.lost {
		if err := t.make(); err != nil {
			return fmt.Errorf("nft: make the table inet %s anew: %w", Name, err)
		}
		return nil
	}
	for _, s := range t.sets {
		t.conn.FlushSet(s)
	}
	if err := t.commit(); err != nil {
		return fmt.Errorf("nft: empty the sets: %w", err)
	}
	return nil
}

// Counts returns what is in the sets, and how many SYNs have been refused since Open.
func (t *Table) Counts() (list []Count, refused uint64, err error) {
	for k, s := range t.sets {
		if err := t.moves.list(k, s.Name, func(c Count) { list = append(list, c) }); err != nil {
			return nil, 0, fmt.Errorf("nft: read a set: %w", t.again(err))
		}
	}
	object, err := t.conn.GetObject(&nftables.NamedObj{Table: t.table, Name: "refused",
		Type: nftables.ObjTypeCounter})
	if err != nil {
		return nil, 0, fmt.Errorf("nft: read the counter: %w", t.again(err))
	}
	if named, ok := object.(*nftables.NamedObj); ok {
		if c, ok := named.Obj.(*expr.Counter); ok {
			refused = c.Packets
		}
	}
	return list, refused, nil
}

// Close removes the table.
func (t *Table) Close() error {
	t.conn.DelTable(t.table)
	err := t.commit()
	t.moves.close()
	if closed := t.conn.CloseLasting(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("nft: remove the table inet %s: %w", Name, err)
	}
	return nil
}
