package challenge

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/edge/message"
	"sluice/edge/rules/key"
)

var (
	noon    = time.Unix(1_700_000_000, 0)
	keys    = Keys{{1, 2, 3}}
	visitor = Holder{Host: []byte("shop.example"), Addr: netip.MustParseAddr("198.51.100.7")}
)

func asked(bound bool) Question {
	return Question{ID: ID{1, 2, 3, 4, 5, 6, 7, 8}, Asked: noon, PassFor: time.Hour,
		Difficulty: 8, Bound: bound, Networks: 7, Rule: 0xabcd}
}

func TestQuestionAndPassAreReadAsTheyWereMade(t *testing.T) {
	for _, bound := range []bool{false, true} {
		q := asked(bound)
		text := keys.AppendQuestion(nil, q, visitor)
		if len(text) != questionText {
			t.Errorf("a question has %d letters, want %d", len(text), questionText)
		}
		if got, ok := keys.Question(text, visitor, noon); !ok || got != q {
			t.Errorf("question %+v, %v; want %+v", got, ok, q)
		}
		p := q.Pass()
		text = keys.AppendPass(nil, p, visitor)
		if len(text) != passText {
			t.Errorf("a pass has %d letters, want %d", len(text), passText)
		}
		if got, ok := keys.Pass(text, visitor, noon); !ok || got != p {
			t.Errorf("pass %+v, %v; want %+v", got, ok, p)
		}
	}
}

// One bit that differs, in any place, and a letter more or less, is no pass.
func TestForgedPassesAreRefused(t *testing.T) {
	text := keys.AppendPass(nil, (&Question{Asked: noon, PassFor: time.Hour}).Pass(), visitor)
	refused := func(name string, text []byte) {
		t.Helper()
		if _, ok := keys.Pass(text, visitor, noon); ok {
			t.Errorf("%s: %s is a pass", name, text)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(raw) * 8 {
		forged := bytes.Clone(raw)
		forged[i/8] ^= 1 << (i % 8)
		refused("a bit", base64.RawURLEncoding.AppendEncode(nil, forged))
	}
	refused("empty", nil)
	refused("shorter", text[:len(text)-1])
	refused("longer", append(bytes.Clone(text), 'A'))
	refused("lines", append(bytes.Clone(text[:len(text)-1]), '\n'))
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if byte(c) != text[len(text)-1] {
			refused("another last letter", append(bytes.Clone(text[:len(text)-1]), byte(c)))
		}
	}
	refused("a question", keys.AppendQuestion(nil, asked(false), visitor))
	refused("zeros", bytes.Repeat([]byte{'A'}, passText))
}

func TestPassIsForItsHolderAndTime(t *testing.T) {
	at := func(host, addr string) Holder {
		return Holder{Host: []byte(host), Addr: netip.MustParseAddr(addr)}
	}
	const host, v4, v6 = "shop.example", "198.51.100.7", "2001:db8:1:2::3"
	for _, c := range []struct {
		name       string
		bound      bool
		from, show Holder
		after      time.Duration
		want       bool
	}{
		{"its holder", false, at(host, v4), at(host, v4), 0, true},
		{"another address", false, at(host, v4), at(host, "203.0.113.9"), 0, true},
		{"another host", false, at(host, v4), at("other.example", v4), 0, false},
		{"a longer host", false, at(host, v4), at(host+"s", v4), 0, false},
		{"no host", false, at(host, v4), at("", v4), 0, false},
		{"the last instant", false, at(host, v4), at(host, v4), time.Hour - 1, true},
		{"its end", false, at(host, v4), at(host, v4), time.Hour, false},
		{"bound, its network", true, at(host, v4), at(host, "198.51.100.250"), 0, true},
		{"bound, mapped", true, at(host, v4), at(host, "::ffff:198.51.100.7"), 0, true},
		{"bound, the next network", true, at(host, v4), at(host, "198.51.101.7"), 0, false},
		{"bound, the other family", true, at(host, v4), at(host, v6), 0, false},
		{"bound, IPv6", true, at(host, v6), at(host, "2001:db8:1:ffff::9"), 0, true},
		{"bound, IPv6, the next", true, at(host, v6), at(host, "2001:db8:2:2::3"), 0, false},
	} {
		q := asked(c.bound)
		text := keys.AppendPass(nil, q.Pass(), c.from)
		if _, got := keys.Pass(text, c.show, noon.Add(c.after)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.after > 0 {
			continue
		}
		if _, got := keys.Question(keys.AppendQuestion(nil, q, c.from), c.show, noon); got != c.want {
			t.Errorf("question, %s: %v, want %v", c.name, got, c.want)
		}
	}
	long := at(strings.Repeat("h", hostMax+1), v4)
	if _, ok := keys.Pass(keys.AppendPass(nil, Pass{End: noon.Add(1e9)}, long), long, noon); ok {
		t.Error("a host that is too long has a pass")
	}
}

// While one secret replaces another, passes of both are good; after that, those of the new one.
func TestPassesOfTwoSecrets(t *testing.T) {
	older, newer := Keys{{1}}, Keys{{2}}
	both := Keys{newer[0], older[0]}
	q := asked(false)
	for _, c := range []struct {
		name       string
		made, read Keys
		want       bool
	}{
		{"of the older, during", older, both, true},
		{"made during, during", both, both, true},
		{"made during, after", both, newer, true},
		{"made during, before", both, older, false},
		{"of the older, after", older, newer, false},
	} {
		if _, got := c.read.Pass(c.made.AppendPass(nil, q.Pass(), visitor), visitor,
			noon); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	q := asked(false)
	text := keys.AppendQuestion(nil, q, visitor)
	answer := append(append(bytes.Clone(text), '.'), Solve(text, q.Difficulty)...)
	first, ok := keys.Answer(answer, visitor, noon.Add(time.Second))
	if !ok {
		t.Fatal("the answer is refused")
	}
	again, ok := keys.Answer(answer, visitor, noon.Add(4*time.Minute))
	if !ok || first != again || !bytes.Equal(keys.AppendPass(nil, first, visitor),
		keys.AppendPass(nil, again, visitor)) {
		t.Errorf("the same answer makes %+v, and %+v later", first, again)
	}
	if want := noon.Add(time.Hour); !first.End.Equal(want) || first.ID != q.ID {
		t.Errorf("pass %+v; want %v, until %v", first, q.ID, want)
	}
	wrong := 0
	for solves(text, []byte{'0' + byte(wrong)}, q.Difficulty) {
		wrong++
	}
	refused := func(name string, k Keys, answer []byte, h Holder, at time.Time) {
		t.Helper()
		if _, ok := k.Answer(answer, h, at); ok {
			t.Errorf("%s is an answer", name)
		}
	}
	refused("a late one", keys, answer, visitor, noon.Add(answerWithin))
	refused("one from long before the question", keys, answer, visitor, noon.Add(-answerWithin))
	refused("a wrong number", keys, append(append(bytes.Clone(text), '.'), '0'+byte(wrong)),
		visitor, noon)
	refused("no number", keys, append(bytes.Clone(text), '.'), visitor, noon)
	refused("a question alone", keys, text, visitor, noon)
	refused("one of another host", keys, answer, Holder{Host: []byte("b.example"),
		Addr: visitor.Addr}, noon)
	refused("one of another PoP", Keys{{9}}, answer, visitor, noon)
	// A question of one's own would be as easy as one likes
	easy := asked(false)
	easy.Difficulty = 0
	refused("one to a question of the client's own", keys,
		append(Keys{{9}}.AppendQuestion(nil, easy, visitor), ".0"...), visitor, noon)
	short := asked(false)
	short.PassFor = time.Minute
	text = keys.AppendQuestion(nil, short, visitor)
	refused("one to a question whose pass has ended", keys,
		append(append(text, '.'), Solve(text, short.Difficulty)...), visitor,
		noon.Add(time.Minute))
}

func TestCookiesAreTakenOutOfTheirLine(t *testing.T) {
	for _, c := range []struct{ line, left, found string }{
		{"", "", ""},
		{"a=b", "a=b", ""},
		{"a=b; c=d", "a=b; c=d", ""},
		{"sluice_pass=X", "", "X"},
		{"sluice_pass=X; a=b", "a=b", "X"},
		{"a=b; sluice_pass=X", "a=b", "X"},
		{"a=b; sluice_pass=X; c=d", "a=b; c=d", "X"},
		{"a=b;sluice_pass=X;c=d", "a=b;c=d", "X"},
		{"sluice_pass=X; a=b; sluice_pass=Y", "a=b", "X Y"},
		{"a=b; sluice_pass", "a=b", ""},
		{"a=b; \tsluice_pass = X ; c=d", "a=b; c=d", "X"},
		{"a=sluice_pass; b=sluice_pass=X", "a=sluice_pass; b=sluice_pass=X", ""},
		{"my_sluice_pass=X; sluice_passes=Y", "my_sluice_pass=X; sluice_passes=Y", ""},
		{";;sluice_pass=X;;", "", "X"},
		{"__Host-sluice_pass=X; a=b; sluice_pass=Y", "a=b", "X Y"},
		{"__host-sluice_pass=X", "__host-sluice_pass=X", ""},
	} {
		var found []string
		left := cookies([]byte(c.line), true, func(v []byte) {
			if len(v) > 0 {
				found = append(found, string(v))
			}
		})
		if string(left) != c.left || strings.Join(found, " ") != c.found {
			t.Errorf("%q: left %q, found %q; want %q, %q", c.line, left, found, c.left, c.found)
		}
	}
}

func TestCookie(t *testing.T) {
	p := Pass{End: noon.Add(time.Hour)}
	text := string(keys.AppendPass(nil, p, visitor))
	want := "sluice_pass=" + text + "; Path=/; Max-Age=3540; HttpOnly; SameSite=Lax"
	at := noon.Add(time.Minute)
	if got := string(appendCookie(nil, keys, p, visitor, false, at)); got != want {
		t.Errorf("cookie %q, want %q", got, want)
	}
	want = "__Host-" + want + "; Secure"
	if got := string(appendCookie(nil, keys, p, visitor, true, at)); got != want {
		t.Errorf("over TLS %q, want %q", got, want)
	}
}

func TestPassesAllocateNothing(t *testing.T) {
	both := Keys{{2}, keys[0]}
	text := keys.AppendPass(nil, Pass{End: noon.Add(time.Hour), Bound: true}, visitor)
	line := append([]byte("session=0123456789abcdef; sluice_pass="), text...)
	room := make([]byte, len(line))
	if n := testing.AllocsPerRun(1000, func() {
		copy(room, line)
		is := false
		cookies(room, true, func(v []byte) { _, is = both.Pass(v, visitor, noon) })
		if !is {
			t.Fatal("the pass is refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a pass", n)
	}
}

// A pass is read under the older of two keys, which is the longest way.
func BenchmarkPass(b *testing.B) {
	both := Keys{{2}, keys[0]}
	text := keys.AppendPass(nil, Pass{End: noon.Add(time.Hour), Bound: true}, visitor)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := both.Pass(text, visitor, noon); !ok {
			b.Fatal("the pass is refused")
		}
	}
}

// What a pass costs who makes it in Go, on one core.
func BenchmarkSolve(b *testing.B) {
	for _, bits := range []int{12, 13, 16} {
		b.Run("bits="+strconv.Itoa(bits), func(b *testing.B) {
			id := ID{}
			for b.Loop() {
				id[0]++
				id[1] += id[0] & 1
				Solve(keys.AppendQuestion(nil, Question{ID: id, Asked: noon}, visitor), bits)
			}
		})
	}
}

// The clocks of edges may be minutes apart.
func TestQuestionOfAnEdgeAhead(t *testing.T) {
	text := keys.AppendQuestion(nil, asked(false), visitor)
	if _, ok := keys.Question(text, visitor, noon.Add(-4*time.Minute)); !ok {
		t.Error("a question of an edge whose clock is ahead is none")
	}
}

// A pass is judged at its request's time, whatever a clock says meanwhile.
func TestPassAtTheRequestsTime(t *testing.T) {
	p := &points{module: &module{}, keys: keys, unknown: new(counts)}
	q := asked(false)
	pass := keys.AppendPass(nil, q.Pass(), visitor)
	for at, want := range map[time.Time]bool{noon: true, noon.Add(time.Hour): false} {
		v := &key.View{Request: new(message.Request), Client: visitor.Addr, At: at}
		v.Request.Host = visitor.Host
		err := v.Request.Head.Add([]byte("Cookie"), append([]byte(cookieName+"="), pass...), 10)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.find(nil, v); (got != nil) != want {
			t.Errorf("%v after the question: %v, want %t", at.Sub(noon), got, want)
		}
	}
}

// However many passes are shown, what is kept of them is bounded.
func TestUsesAreBounded(t *testing.T) {
	var u uses
	p := Pass{End: noon.Add(time.Hour), Networks: 1}
	for i := range 3 * usesMost / useShards {
		p.ID = ID{0, byte(i), byte(i >> 8)}
		if !u.within(&p, visitor.Addr, noon) {
			t.Fatalf("pass %d may be shown nowhere", i)
		}
	}
	if n := len(u.shards[0].of); n > usesMost/useShards {
		t.Errorf("%d are kept, want at most %d", n, usesMost/useShards)
	}
	other := netip.MustParseAddr("203.0.113.1")
	if u.within(&p, other, noon) {
		t.Error("one that was kept last is forgotten")
	}
	if p.ID[0] = 1; testing.AllocsPerRun(100, func() { u.within(&p, visitor.Addr, noon) }) != 0 {
		t.Error("a pass that is known allocates")
	}
}
