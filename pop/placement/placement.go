// Package placement decides which node of the tier has a source, and which had it before the list
// of nodes changed.
//
// A source is on one of the nodes that are up, chosen by rendezvous hashing (Thaler and
// Ravishankar, 1998): every node scores the source, and the highest score wins. So edges that know
// the same nodes agree without a word, and a lost node moves its own sources only.
//
// Nodes has three things of each node: its name (Canonical, because edges choose by it), its
// health, and its role while the list changes:
//
//	health      probes, whose answers tell it: Probe and Probed. A node that is silent for 350 ms is down; one that has answered everything
//	            for a second is up again, and if it had been up for three before, for a tenth: edges that have seen a short outage and those that
//	            have not count its sources apart until then. After none was up, all that answer are: counting alone is worse than a node that flaps.
//	            A node that is slow is down as well, while another is up and not slow: what edges count in one round trip, they count apart
//	transition  Set and Advance: for Transition both lists are known, and a source may have a second place (Second)
//
// Nothing here does I/O or reads a clock. The caller sends the probes, and gives up what is under
// way to a node that was lost.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/pop/secret"
)

// The list of nodes can change while edges run, on one edge after the other. While edges with the
// old list and edges with the new one share sources, those whose node differs must not be counted
// apart, or each would have its limit twice. So for Transition an edge with the new list goes by
// the old one, and also writes to the new node of a source: what it reports is added there too, and
// so are bits and announcements. The larger total counts. After that the new list is all. If every
// edge gets the new list within Transition, a source loses nothing but, for windows longer than
// that, what was counted of it before the change. An edge that is started with the new list while
// others have the old one only (a restart instead of a reload) counts moved sources apart: they may
// be admitted their limit once more.
const Transition = 5 * time.Minute

const (
	probeEvery = 15 * time.Millisecond // at least, and at most of one that is ill
	// A probe without an answer for so long is followed by another
	probeLost = time.Second
	downAfter = 350 * time.Millisecond // without an answer, from the first probe that had none
	upAfter   = time.Second            // of answers, so that a flapping node stays down
	// Of answers, where the node had been up for steadyFor: it does not flap
	backAfter = 100 * time.Millisecond
	steadyFor = 3 * time.Second
	slowFrom  = 150 * time.Millisecond // a probe's round trip by which a node is slow
)

// StepLate is between two Advances: after a longer pause this process was held up, and the nodes
// are not at fault for what was longer.
const StepLate = 100 * time.Millisecond

// role is what a node is to placement.
type role uint8

const (
	current role = 1 << iota // it may have sources
	joining                  // of the new list, while a transition lasts
)

type node struct {
	name    string // canonical
	spelled string // as it was configured
	hash    uint64
	role    role // 0: it is no longer in use
	up      bool
	since   time.Time     // when it last came up
	proof   time.Duration // of answers, until it is up again
	probing bool          // a probe is under way
	probed  time.Time     // when the last one was sent
	awaited bool          // a good answer, since a probe was sent
	// Nodes.lived when it began to be, or when the node last carried something out
	waited time.Duration
	fast   time.Time // when the last good answer came that was not slow
	good   time.Time // since when all answers have been good
}

// Nodes are those of a tier, as one edge sees them. They are known by their index, which never
// changes: new ones are added as lists change. Set, Health, Up, Alone, Members and Names may be
// called from anywhere, all else belongs to one goroutine.
type Nodes struct {
	secret  secret.Secret
	nodes   []node
	moving  time.Time // when the transition to another list of nodes ends; zero: there is none
	moved   bool      // since Moved was last called
	stepped time.Time
	lived   time.Duration // of this process: from one step to the next StepLate at most
	awake   time.Time     // since when steps have come in time
	none    time.Time     // when a node last answered while none was up

	wanted  atomic.Pointer[wanted]
	health  atomic.Pointer[[]bool]
	names   atomic.Pointer[[]string]
	members atomic.Pointer[[]member.Node]
	full    atomic.Bool
	alone   atomic.Pointer[time.Time] // since when no node is left; nil: one is
}

type wanted struct{ names, spelled []string }

// New takes a list of nodes, all of which are up until they prove otherwise. Errors are those of
// Set.
func New(list []string, s secret.Secret, now time.Time) (*Nodes, error) {
	names, err := known(list)
	if err != nil {
		return nil, err
	}
	n := &Nodes{secret: s, stepped: now, awake: now}
	for i, name := range names {
		n.add(name, list[i], current, now)
	}
	n.publish()
	return n, nil
}

// Set changes the list of nodes; the next Advance begins with it. Errors are those of Names, and
// that the list is empty.
func (n *Nodes) Set(list []string) error {
	names, err := known(list)
	if err != nil {
		return err
	}
	n.wanted.Store(&wanted{names: names, spelled: slices.Clone(list)})
	return nil
}

func known(list []string) ([]string, error) {
	names, err := Names(list)
	switch {
	case err != nil:
		return nil, fmt.Errorf("pop: %w", err)
	case len(names) == 0:
		return nil, fmt.Errorf("pop: no memcached node")
	}
	return names, nil
}

func (n *Nodes) add(name, spelled string, r role, now time.Time) {
	n.nodes = append(n.nodes, node{name: name, spelled: spelled, role: r,
		hash: xxhash.Sum64String(name), up: true, since: now, fast: now, good: now})
}

// Advance begins and ends transitions, and returns the nodes that are no longer in use. It is
// called with every step of the edge.
func (n *Nodes) Advance(now time.Time) (left []int) {
	if now.Sub(n.stepped) > StepLate {
		n.awake = now
	}
	n.lived += min(max(now.Sub(n.stepped), 0), StepLate)
	n.stepped = now
	if want := n.wanted.Swap(nil); want != nil {
		n.begin(want, now)
	}
	if n.moving.IsZero() || now.Before(n.moving) {
		return nil
	}
	n.moving = time.Time{}
	for i := range n.nodes {
		if d := &n.nodes[i]; d.role&joining != 0 {
			d.role = current
		} else if d.role != 0 {
			d.role = 0
			d.up, d.good = false, time.Time{} // what is under way to it comes to nothing here
			left = append(left, i)
		}
	}
	n.publish()
	return left
}

// begin begins a transition.
func (n *Nodes) begin(want *wanted, now time.Time) {
	for i := range n.nodes {
		n.nodes[i].role &^= joining
	}
	same := true
	for i, name := range want.names {
		at := slices.IndexFunc(n.nodes, func(d node) bool { return d.name == name })
		if at < 0 {
			at = len(n.nodes)
			n.add(name, want.spelled[i], 0, now)
		}
		d := &n.nodes[at]
		if d.role == 0 { // it is back, or new: up until it proves otherwise
			d.up, d.since, d.awaited, d.fast, d.good = true, now, false, now, now
		}
		d.role |= joining
	}
	for i := range n.nodes {
		same = same && (n.nodes[i].role == 0 || n.nodes[i].role == current|joining)
	}
	if n.moving = now.Add(Transition); same {
		n.moving = now // nothing moves
	}
	n.publish()
}

// NodeOf is the node of a source; -1: none is up, or this edge counts alone.
func (n *Nodes) NodeOf(s counter.Source) int {
	return n.nodeOf(n.secret.PlacementHash(s))
}

// NodeUnder is the node that has a source under another secret of the PoP's; -1: none is up.
func (n *Nodes) NodeUnder(other secret.Secret, s counter.Source) int {
	return n.nodeOf(other.PlacementHash(s))
}

func (n *Nodes) nodeOf(hash uint64) int {
	i := n.among(hash, current)
	if i < 0 && !n.moving.IsZero() {
		i = n.among(hash, joining)
	}
	return i
}

// among chooses among nodes of a role.
func (n *Nodes) among(h uint64, r role) int {
	if n.full.Load() {
		return -1
	}
	best, most := -1, uint64(0)
	for i := range n.nodes {
		if d := &n.nodes[i]; d.up && d.role&r != 0 {
			if score := Mix(h ^ d.hash); best < 0 || score > most {
				best, most = i, score
			}
		}
	}
	return best
}

// Second is the new node of a source that still has another one, while a transition lasts; else -1.
func (n *Nodes) Second(s counter.Source, node int) int {
	if n.moving.IsZero() {
		return -1
	}
	if i := n.among(n.secret.PlacementHash(s), joining); i != node {
		return i
	}
	return -1
}

// NodesOf are the node of a source, and its new one while a transition lasts; none if no node is
// up.
func (n *Nodes) NodesOf(s counter.Source) []int {
	first := n.NodeOf(s)
	if first < 0 {
		return nil
	}
	if second := n.Second(s, first); second >= 0 {
		return []int{first, second}
	}
	return []int{first}
}

// Fixed is the node that all edges agree on for what belongs to no source; -1: none is up.
func (n *Nodes) Fixed() int {
	best := -1
	for i := range n.nodes {
		if d := &n.nodes[i]; d.up && d.role&current != 0 &&
			(best < 0 || d.hash > n.nodes[best].hash) {
			best = i
		}
	}
	return best
}

// Bucket is the node of what must never move because a node is down, up or not; -1: this edge
// counts alone. It changes as a transition ends.
func (n *Nodes) Bucket(bucket uint32) (node int) {
	node = -1
	if n.full.Load() {
		return node
	}
	h, most := Mix(uint64(bucket)), uint64(0)
	for i := range n.nodes {
		if d := &n.nodes[i]; d.role&current != 0 {
			if score := Mix(h ^ d.hash); node < 0 || score > most {
				node, most = i, score
			}
		}
	}
	return node
}

// Mix is the finaliser of SplitMix64: every bit of x moves half the bits of the result.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Probe reports whether to probe a node; Probed must follow. It is time to if the caller says so, and
// for a node that is ill in any case. It may find that a node has owed an answer for so long that it
// is lost.
func (n *Nodes) Probe(i int, asked bool, now time.Time) (due, lost bool) {
	d := &n.nodes[i]
	if d.up && n.silent(d) {
		n.down(d, now)
		lost = true
	}
	if d.probing && now.Sub(d.probed) < probeLost || now.Sub(d.probed) < probeEvery ||
		!asked && d.well() {
		return false, lost
	}
	if d.probing, d.probed = true, now; !d.awaited {
		d.awaited, d.waited = true, n.lived
	}
	return true, lost
}

// well reports whether a node is up and has answered last.
func (d *node) well() bool { return d.up && !d.good.IsZero() }

// Well reports whether all nodes in use are up and have answered last: else they are to be probed
// soon.
func (n *Nodes) Well() bool {
	return !slices.ContainsFunc(n.nodes, func(d node) bool { return d.role != 0 && !d.well() })
}

// silent reports whether a node has owed an answer for too long, while this edge was awake to take
// it. It counts from the first probe that was not answered: one that fails is followed by another,
// which may have to connect first.
func (n *Nodes) silent(d *node) bool { return d.awaited && n.lived-d.waited >= downAfter }

// Probed takes in whether a probe was answered, and reports whether the node is lost. took is how
// long it took, or 0: until now.
func (n *Nodes) Probed(i int, ok bool, took time.Duration, now time.Time) (lost bool) {
	d := &n.nodes[i]
	d.probing = false
	if ok {
		d.awaited = false
		if cmp.Or(took, now.Sub(d.probed)) < slowFrom {
			d.fast = now
		}
	}
	slow := now.Sub(d.fast) >= downAfter && now.Sub(n.awake) >= downAfter && n.faster(i, now)
	if !ok || slow {
		d.good = time.Time{}
		if lost = d.up && (slow || n.silent(d)); lost {
			n.down(d, now)
		}
		return lost
	}
	if d.good.IsZero() {
		d.good = now
	}
	if !slices.Contains(n.Health(), true) {
		n.none = now
	}
	if !d.up && (now.Sub(d.good) >= d.proof || now.Sub(n.none) < upAfter) {
		d.up, d.since = true, now
		n.publish()
	}
	return false
}

// faster reports whether another node that is up is not slow. Where all are, it is the way to them
// or this edge, and moving sources helps nobody.
func (n *Nodes) faster(than int, now time.Time) bool {
	for i := range n.nodes {
		if d := &n.nodes[i]; i != than && d.up && d.role&current != 0 &&
			now.Sub(d.fast) < downAfter {
			return true
		}
	}
	return false
}

// Carried takes in that a node has carried something out: it is not silent, however late its probes
// are. To a node that is far, a probe waits for the commands before it.
func (n *Nodes) Carried(i int) { n.nodes[i].waited = n.lived }

// Steady reports whether a good answer to a probe that comes at now changes nothing.
func (n *Nodes) Steady(i int, now time.Time) bool {
	d := &n.nodes[i]
	return d.well() && now.Sub(d.probed) < slowFrom
}

func (n *Nodes) down(d *node, now time.Time) {
	d.up, d.good, d.proof = false, time.Time{}, upAfter
	if now.Sub(d.since) >= steadyFor {
		d.proof = backAfter
	}
	n.publish()
}

// SetFull sets whether the PoP is full, so that this edge counts alone.
func (n *Nodes) SetFull(full bool) {
	if n.full.Swap(full) != full {
		n.moved = true
	}
}

// Full reports whether the PoP has as many edges as can share it without this one. It may be called
// from anywhere.
func (n *Nodes) Full() bool { return n.full.Load() }

// publish lets the request path and operators know which nodes there are, and which are up.
func (n *Nodes) publish() {
	n.moved = true
	health, names, members := make([]bool, len(n.nodes)), make([]string,
		len(n.nodes)), []member.Node{}
	for i := range n.nodes {
		d := &n.nodes[i]
		health[i], names[i] = d.up && d.role != 0, d.spelled
		if d.role != 0 {
			members = append(members, member.Node{
				Address: d.spelled, Up: d.up, Joining: d.role&current == 0,
				Leaving: !n.moving.IsZero() && d.role&joining == 0,
			})
		}
	}
	n.health.Store(&health)
	n.names.Store(&names)
	n.members.Store(&members)
}

// Moved reports whether sources may have other nodes than at the last call.
func (n *Nodes) Moved() bool {
	moved := n.moved
	n.moved = false
	return moved
}

// Len is how many nodes there are, those no longer in use included.
func (n *Nodes) Len() int { return len(n.nodes) }

// InUse reports whether a node is of a list.
func (n *Nodes) InUse(i int) bool { return n.nodes[i].role != 0 }

// IsUp reports whether a node is up.
func (n *Nodes) IsUp(i int) bool { return n.nodes[i].up }

// Known is what Health returns, as one value, which is another whenever anything about the nodes
// has changed.
func (n *Nodes) Known() *[]bool { return n.health.Load() }

// Health returns which nodes are up, by their index; do not change the result.
func (n *Nodes) Health() []bool { return *n.health.Load() }

// Up reports whether any node is left to count a source in: a lost node's sources move to the
// others at once. An edge that counts alone because the PoP is full has none.
func (n *Nodes) Up() bool { return !n.full.Load() && slices.Contains(n.Health(), true) }

// NoteAlone notes when this edge begins to count alone, and when it does no more.
func (n *Nodes) NoteAlone(now time.Time) {
	if alone := !n.Up(); alone != (n.alone.Load() != nil) {
		if n.alone.Store(nil); alone {
			n.alone.Store(&now)
		}
	}
}

// Alone returns since when no node is left, as NoteAlone noticed; the zero time: one is.
func (n *Nodes) Alone() (since time.Time) {
	if at := n.alone.Load(); at != nil && !n.Up() {
		since = *at
	}
	return since
}

// Members describes the nodes, those in use; do not change the result.
func (n *Nodes) Members() []member.Node { return *n.members.Load() }

// Names are all nodes as they were configured, by their index; do not change the result.
func (n *Nodes) Names() []string { return *n.names.Load() }

// Canonical gives the one spelling of a memcached node's HOST:PORT: names in lower case without
// their last dot, addresses as netip writes them, IPv4 in IPv6 as IPv4, IPv6 in brackets, the port
// without leading zeros. All edges choose nodes by it, so they may spell a node as they like. A
// node is still dialled as it was named.
func Canonical(name string) (string, error) {
	colon := strings.LastIndexByte(name, ':')
	host, bracketed := strings.CutPrefix(name[:max(colon, 0)], "[")
	if bracketed {
		var closed bool
		if host, closed = strings.CutSuffix(host, "]"); !closed {
			return "", badNode(name, "want HOST:PORT or [IPV6]:PORT")
		}
	}
	switch {
	case name == "":
		return "", errors.New("a node without a name: want HOST:PORT")
	case colon < 0:
		return "", badNode(name, "it has no port: want HOST:PORT, such as "+name+":11211")
	case host == "":
		return "", badNode(name, "it has no host: want HOST:PORT")
	case strings.Contains(host, ":") && !bracketed:
		return "", badNode(name, "want [IPV6]:PORT")
	}
	port, ok := canonicalPort(name[colon+1:])
	if !ok {
		return "", badNode(name, "want a port from 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr = addr.Unmap(); addr.Is6() {
			return "[" + addr.String() + "]:" + port, nil
		}
		return addr.String() + ":" + port, nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if bracketed || !isHostName(host) {
		return "",
			badNode(name, "want the name of a host, an IPv4 address or an IPv6 address in brackets")
	}
	return host + ":" + port, nil
}

func badNode(name, want string) error {
	return fmt.Errorf("%q is not the address of a node: %s", name, want)
}

func canonicalPort(text string) (string, bool) {
	for _, d := range []byte(text) {
		if d < '0' || d > '9' {
			return "", false
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return strconv.FormatUint(n, 10), err == nil && n > 0
}

// isHostName takes names in small letters of which the last part is no number: such a name is a
// mistyped address, and resolvers differ on which.
func isHostName(host string) bool {
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
		last = label
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err != nil && len(host) <= 253
}

// Names gives the canonical names of a list, in its order, if each is the name of a node and none
// is there twice.
func Names(names []string) ([]string, error) {
	canonical := make([]string, 0, len(names))
	spelled := make(map[string]string, len(names))
	for _, name := range names {
		c, err := Canonical(name)
		if err != nil {
			return nil, err
		}
		if other, twice := spelled[c]; twice {
			return nil, fmt.Errorf("%q and %q are the same node: name it once", other, name)
		}
		spelled[c] = name
		canonical = append(canonical, c)
	}
	return canonical, nil
}
