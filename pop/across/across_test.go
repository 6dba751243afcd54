package across

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func source(i int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 32, 64)
}

func blocks(n int) (list []Block) {
	for i := range n {
		list = append(list, Block{Rule: "login", Counts: "login source enforce", Source: source(i), Start: noon, End: noon.Add(time.Minute), Limit: 5, Window: time.Minute})
	}
	return list
}

// What is sealed comes back whole, and nothing that was changed on the way, was made under another secret, is for or from somebody else, is of
// another time, or came before.
func TestInbox(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in, keys := NewInbox("ams1", []string{"fra1", "lhr1"}), []Key{key}
	good := Message{From: "fra1", To: "ams1", Edge: "e", At: noon, Blocks: blocks(2)}
	body, mac := key.Seal(&good)
	if strings.Contains(string(body), "nobody") {
		t.Error("the secret is in the message")
	}
	m, over, err := in.Take(keys, body, mac, noon.Add(time.Second))
	if d := cmp.Diff(good, m, cmp.Comparer(func(a, b counter.Source) bool { return a == b })); d != "" || over != (Over{}) || err != nil {
		t.Fatalf("%s %v %v", d, over, err)
	}
	with := func(change func(*Message)) Message {
		m := good
		m.At = m.At.Add(time.Millisecond)
		change(&m)
		return m
	}
	for _, test := range []struct {
		what string
		m    Message
		now  time.Duration
		want error
	}{
		{"it came before", good, time.Second, ErrReplay},
		{"one that was made before another that came", with(func(m *Message) { m.At = noon.Add(-time.Millisecond) }), 0, ErrReplay},
		{"for another PoP", with(func(m *Message) { m.To = "lhr1" }), 0, ErrFor},
		{"from a stranger", with(func(m *Message) { m.From = "cdg1" }), 0, ErrFrom},
		{"from this very PoP", with(func(m *Message) { m.From = "ams1" }), 0, ErrFrom},
		{"of long ago", with(func(*Message) {}), Window + time.Second, ErrClock},
		{"of the future", with(func(*Message) {}), -Window - time.Second, ErrClock},
		{"too long", with(func(m *Message) { m.Blocks = blocks(MaxBlocks + 1) }), 0, ErrForm},
		{"a clock that is nearly too far ahead", with(func(*Message) {}), -Window + time.Second, nil},
		{"of another edge", with(func(m *Message) { m.Edge = "f" }), 0, nil},
		{"of another peer", with(func(m *Message) { m.From = "lhr1" }), 0, nil},
	} {
		body, mac := key.Seal(&test.m)
		if _, _, err := in.Take(keys, body, mac, noon.Add(test.now)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
	}
	next := with(func(m *Message) { m.Edge = "g" })
	body, mac = key.Seal(&next)
	other := KeyOf([]byte("another secret, of others"))
	_, forged := other.Seal(&next)
	for what, pair := range map[string][2]string{
		"another secret":    {string(body), forged},
		"no signature":      {string(body), ""},
		"no digits":         {string(body), "zz"},
		"a part of it":      {string(body), mac[:32]},
		"a body changed":    {strings.Replace(string(body), "192.0.0.1", "192.0.0.9", 1), mac},
		"a body that grows": {string(body) + " ", mac},
	} {
		if _, _, err := in.Take(keys, []byte(pair[0]), pair[1], noon); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if d := cmp.Diff(map[string]uint64{"signature": 6, "form": 1, "recipient": 1, "sender": 2, "clock": 2, "replay": 2, "senders": 0}, in.Refused()); d != "" {
		t.Error(d)
	}
}

// A peer may have a burst, then so many a second, whichever of its edges speaks; another peer's are its own.
func TestRate(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in, keys := NewInbox("ams1", []string{"fra1", "lhr1"}), []Key{key}
	for i, step := range []struct {
		at     time.Duration
		from   string
		n, got int
	}{
		{0, "fra1", 500, 500},
		{0, "fra1", 500, 500},
		{0, "fra1", 10, 0},
		{100 * time.Millisecond, "fra1", 500, Rate / 10},
		{100 * time.Millisecond, "lhr1", 500, 500},
		{50 * time.Millisecond, "fra1", 5, 0}, // the clock steps back
		{20 * time.Second, "fra1", 500, 500},
		{20 * time.Second, "fra1", 500, 500},
		{20 * time.Second, "fra1", 1, 0},
	} {
		body, mac := key.Seal(&Message{From: step.from, To: "ams1", Edge: fmt.Sprint(i), At: noon.Add(step.at), Blocks: blocks(step.n)})
		m, over, err := in.Take(keys, body, mac, noon.Add(step.at))
		if err != nil || len(m.Blocks) != step.got || over.Blocks != step.n-step.got {
			t.Errorf("step %d: %d blocks and %v over, want %d of %d (%v)", i, len(m.Blocks), over, step.got, step.n, err)
		}
	}
}

// So many senders are remembered, and those of whom nothing was heard for long make room.
func TestSenders(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in, keys := NewInbox("ams1", []string{"fra1"}), []Key{key}
	take := func(edge int, at time.Duration) error {
		body, mac := key.Seal(&Message{From: "fra1", To: "ams1", Edge: fmt.Sprint(edge), At: noon.Add(at)})
		_, _, err := in.Take(keys, body, mac, noon.Add(at))
		return err
	}
	for i := range maxSenders {
		if err := take(i, 0); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := take(maxSenders, time.Second); !errors.Is(err, ErrSenders) {
		t.Error(err)
	}
	if err := take(maxSenders, Window+time.Second); err != nil || len(in.peers["fra1"].senders) != 1 {
		t.Errorf("%v, %d senders", err, len(in.peers["fra1"].senders))
	}
}

// A peer whose edges are many, or new all the time, takes no room from another.
func TestSendersOfOnePeer(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in, keys := NewInbox("ams1", []string{"fra1", "lhr1"}), []Key{key}
	take := func(from string, edge int) error {
		body, mac := key.Seal(&Message{From: from, To: "ams1", Edge: fmt.Sprint(edge), At: noon})
		_, _, err := in.Take(keys, body, mac, noon)
		return err
	}
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = take("fra1", i)
	}
	if !errors.Is(err, ErrSenders) {
		t.Errorf("without an end: %v", err)
	}
	if err := take("lhr1", 1); err != nil {
		t.Errorf("the other peer: %v", err)
	}
}

// What a newer version says is read as far as it is known; a block that is not known leaves the others as they are.
func TestNewerVersion(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in := NewInbox("ams1", []string{"fra1"})
	good, err := blocks(1)[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"from":"fra1","to":"ams1","edge":"e","at":%q,"more":[1],"blocks":[{"rule":"login","source":"asn:64500"},{"rule":{},"source":"192.0.2.1"},`+
		`{"rule":"login","source":"192.0.2.1","limit":-1},7,null,[],%s,"more":{}}]}`, noon.Format(time.RFC3339Nano), good[:len(good)-1])
	m, over, err := in.Take([]Key{key}, body, hex.EncodeToString(key.mac(body)), noon)
	if err != nil || over != (Over{}) {
		t.Fatal(over, err)
	}
	want := append(make([]Block, 6), blocks(1)...)
	if d := cmp.Diff(want, m.Blocks, cmp.Comparer(func(a, b counter.Source) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// A message of very many blocks that say nothing is refused before they take memory.
func TestManyEmptyBlocks(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in := NewInbox("ams1", []string{"fra1"})
	body := []byte(`{"from":"fra1","to":"ams1","blocks":[{}` + strings.Repeat(",{}", MaxBytes/3-100) + `]}`)
	mac := hex.EncodeToString(key.mac(body))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := in.Take([]Key{key}, body, mac, noon); !errors.Is(err, ErrForm) {
		t.Error(err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64*MaxBytes {
		t.Errorf("%d bytes were allocated for %d", after.TotalAlloc-before.TotalAlloc, len(body))
	}
}

// While the secret changes PoPs believe what is signed under the old one and under the new one, and tell which it was; then the old one is over.
func TestKeysChange(t *testing.T) {
	before, after := KeyOf([]byte("the secret of last year")), KeyOf([]byte("the secret of this year"))
	in := NewInbox("ams1", []string{"fra1"})
	for i, step := range []struct {
		here  []Key
		under Key
		want  int // -1: it is refused
	}{
		{[]Key{before}, before, 0},
		{[]Key{before}, after, -1},
		{[]Key{before, after}, after, 1},
		{[]Key{after, before}, before, 1},
		{[]Key{after, before}, after, 0},
		{[]Key{after}, before, -1},
		{nil, before, -1},
	} {
		at := noon.Add(time.Duration(i))
		body, mac := step.under.Seal(&Message{From: "fra1", To: "ams1", Edge: "e", At: at})
		m, _, err := in.Take(step.here, body, mac, at)
		if (step.want < 0) != errors.Is(err, ErrSignature) || err == nil && m.Key != step.want {
			t.Errorf("step %d: key %d, %v", i, m.Key, err)
		}
	}
}

// What waits is bounded: the oldest goes, and is counted; what has ended is not sent.
func TestOutbox(t *testing.T) {
	o := NewOutbox()
	for i, b := range blocks(Waiting + 1) {
		b.End = noon.Add(time.Duration(i) * time.Millisecond)
		o.Add(b)
	}
	first := o.Take(noon)
	if n := o.Dropped(); n != Waiting/10 || len(first) != MaxBlocks || first[0].Source != source(int(n)) || len(o.Wake) != 1 {
		t.Errorf("%d dropped, %d taken, the first %v", n, len(first), first[0].Source)
	}
	if late := o.Take(noon.Add((Waiting - 2) * time.Millisecond)); len(late) != 2 || late[1].Source != source(Waiting) || len(o.Take(noon)) != 0 {
		t.Errorf("%v", late)
	}
}

// Of all that can be sent nothing is too large to be taken.
func TestLargest(t *testing.T) {
	list := blocks(MaxBlocks)
	for i := range list {
		list[i].Rule = strings.Repeat("r", 64)
		list[i].Counts = list[i].Rule + " " + strings.Repeat("header:a-long-name,", 20) + " enforce"
		list[i].Source = counter.SourceOf(netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666"), 32, 128)
		list[i].Limit, list[i].Start, list[i].End = 1e9, noon.Add(123456789), noon.Add(987654321)
	}
	body, _ := KeyOf(nil).Seal(&Message{From: strings.Repeat("f", 64), To: strings.Repeat("t", 64), Edge: strings.Repeat("e", 16), At: noon, Blocks: list})
	if len(body) > MaxBytes {
		t.Errorf("%d bytes", len(body))
	}
}

// What one block costs its sender on the way out, and a peer to check with 499 others.
func BenchmarkAdd(b *testing.B) {
	o, list := NewOutbox(), blocks(1)
	b.ReportAllocs()
	for b.Loop() {
		o.Add(list[0])
	}
}

func BenchmarkTake500(b *testing.B) {
	key := KeyOf([]byte("nobody can guess this"))
	in, keys := NewInbox("ams1", []string{"fra1"}), []Key{key}
	m := Message{From: "fra1", To: "ams1", Edge: "e", At: noon, Blocks: blocks(MaxBlocks)}
	for b.Loop() {
		m.At = m.At.Add(1)
		body, mac := key.Seal(&m)
		if _, _, err := in.Take(keys, body, mac, m.At); err != nil {
			b.Fatal(err)
		}
	}
}

// A ticket is good for one PoP, under any key that is believed, and for as long as the clocks of a message may be apart.
func TestTicket(t *testing.T) {
	old, other := KeyOf([]byte("one secret")), KeyOf([]byte("another"))
	now := time.Unix(1_700_000_000, 0)
	ticket := old.Ticket("ams1", now)
	for _, test := range []struct {
		name, to, ticket string
		keys             []Key
		at               time.Duration
		good             bool
	}{
		{"its time", "ams1", ticket, []Key{old}, 0, true},
		{"the second key", "ams1", ticket, []Key{other, old}, 0, true},
		{"late", "ams1", ticket, []Key{old}, Window, true},
		{"too late", "ams1", ticket, []Key{old}, Window + time.Second, false},
		{"too early", "ams1", ticket, []Key{old}, -Window - time.Second, false},
		{"another PoP", "fra1", ticket, []Key{old}, 0, false},
		{"another key", "ams1", ticket, []Key{other}, 0, false},
		{"another time", "ams1", "1700000001" + ticket[10:], []Key{old}, 0, false},
		{"none", "ams1", "", []Key{old}, 0, false},
		{"no digits", "ams1", "1700000000.", []Key{old}, 0, false},
		{"a signature", "ams1", "1700000000." + hex.EncodeToString(old.mac([]byte("1700000000"))), []Key{old}, 0, false},
	} {
		if IsTicket(test.keys, test.to, test.ticket, now.Add(test.at)) != test.good {
			t.Errorf("%s: good is not %t", test.name, test.good)
		}
	}
}
