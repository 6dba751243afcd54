package key

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/edge/message"
)

// pair is a parameter or a cookie as it came.
type pair struct{ name, value []byte }

// pairsOf are all parameters or cookies of a request, taken apart plainly.
func pairsOf(kind Kind, q *message.Request, at message.Split) (list []pair) {
	if kind == Query {
		for _, text := range bytes.FieldsFunc(message.Query(q.Target), func(r rune) bool { return strings.ContainsRune(string(at), r) }) {
			name, value, _ := bytes.Cut(text, []byte{'='})
			list = append(list, pair{name, value})
		}
		return list
	}
	for _, l := range q.Head.Lines {
		if l.Kind != message.Cookie || l.Drop {
			continue
		}
		for text := range bytes.SplitSeq(l.Value, []byte{';'}) {
			if name, value, ok := bytes.Cut(text, []byte{'='}); ok {
				list = append(list, pair{bytes.Trim(name, " \t"), bytes.Trim(value, " \t")})
			}
		}
	}
	return list
}

// isName reports whether some server takes the name that came for the one that was asked for: this name alone, byte by byte.
func isName(kind Kind, came, asked []byte) bool {
	fold := func(s []byte) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(". [", r) {
				return '_'
			}
			return r
		}, strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, string(s)))
	}
	if kind == Cookie {
		return fold(came) == fold(asked)
	}
	var decoded []byte
	for i := 0; i < len(came); i++ {
		c, escaped := message.Escaped(came[i:])
		switch {
		case escaped:
			i += 2
		case came[i] == '+':
			c = ' '
		default:
			c = came[i]
		}
		decoded = append(decoded, c)
	}
	decoded = bytes.TrimLeft(decoded, " ")
	n := len(asked)
	return len(decoded) >= n && fold(decoded[:n]) == fold(asked) && (len(decoded) == n || decoded[n] == 0 || decoded[n] == '[')
}

// findPlainly is View.Find, for one part by itself.
func findPlainly(p *Part, q *message.Request, at message.Split) (value []byte, once, ok bool) {
	if p.Kind == Query && bytes.Contains(bytes.ToLower(message.Query(q.Target)), []byte("%u00")) {
		return nil, false, false
	}
	var found []pair
	for _, came := range pairsOf(p.Kind, q, at) {
		if isName(p.Kind, came.name, p.Name) {
			found = append(found, came)
		}
	}
	for _, f := range found {
		if !bytes.Equal(f.value, found[0].value) {
			return nil, false, false
		}
	}
	if len(found) == 0 {
		return nil, false, true
	}
	return append([]byte{}, found[0].value...), len(found) == 1 && bytes.Equal(found[0].name, p.Name), true
}

// asked are names of which some are spellings of others, or begin them.
var asked = func() (parts []Part) {
	for _, name := range []string{"a", "A", "a_", "a_b", "a.b", "ab", "aB_", "_a", "b", "page", strings.Repeat("long", 40)} {
		parts = append(parts, Part{Kind: Query, Name: []byte(name)}, Part{Kind: Cookie, Name: []byte(name)})
	}
	parts = append(parts, Part{Kind: Header, Name: []byte("authorization")}, Part{Kind: Header, Name: []byte("x-key")})
	names := new(Names)
	for i := range parts {
		names.Add(&parts[i])
	}
	return parts
}()

// checkView asks for all of asked, in an order, and for each twice.
func checkView(t *testing.T, v *View, q *message.Request, order []int) (found int) {
	t.Helper()
	v.Reset()
	v.Request = q
	for _, i := range slices.Concat(order, order) {
		p := &asked[i]
		for _, at := range []message.Split{message.Ampersands, message.Semicolons} {
			value, once, ok := v.Find(p, at)
			want, wantOnce, wantOK := q.Head.Header(p.Name)
			if p.Kind != Header {
				want, wantOnce, wantOK = findPlainly(p, q, at)
			}
			if !bytes.Equal(value, want) || (value == nil) != (want == nil) || once != wantOnce || ok != wantOK {
				t.Fatalf("%s in %q and %v, split at %s: %q %t %t, want %q %t %t", p, q.Target, q.Head.Lines, at, value, once, ok, want, wantOnce, wantOK)
			}
			if value == nil {
				continue
			}
			found++
			form, ok := v.AppendForm([]byte("before "), p, at, value)
			wantForm, wantOK := p.Form([]byte("before "), value)
			if ok != wantOK || ok && !bytes.Equal(form, wantForm) {
				t.Fatalf("the form of %q as %s: %q %t, want %q %t", value, p, form, ok, wantForm, wantOK)
			}
		}
		if query := message.Query(q.Target); p.Kind == Query && v.HasSemicolon() != bytes.Contains(query, []byte{';'}) {
			t.Fatalf("a semicolon in %q: %t", query, v.HasSemicolon())
		}
	}
	return found
}

// A View has what each name by itself would find, whatever else is asked for, and nothing of the requests before.
func TestView(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "A", "_", "b", "B", ".", "[", "]", " ", "+", "%", "%61", "%5b", "%00", "%2E", "%20", "%3d", "\x00", "=", "=", "&", ";", "&", ";", "page", "=1&", "=1;", "%u0061",
		strings.Repeat("long", 40), strings.Repeat("x", 70), "\t", `"`, "="}
	text := func() string {
		var b strings.Builder
		for range r.IntN(24) {
			b.WriteString(pieces[r.IntN(len(pieces)-r.IntN(12))])
		}
		return b.String()
	}
	var v View
	found := 0
	for range 4_000 {
		q := &message.Request{Target: []byte("/?" + text())}
		for range r.IntN(3) {
			addLine(t, q, "Cookie", text())
		}
		for range r.IntN(2) {
			addLine(t, q, "Authorization", "Basic "+text())
		}
		addLine(t, q, "X-Key", text())
		found += checkView(t, &v, q, r.Perm(len(asked)))
	}
	if found < 20_000 {
		t.Errorf("only %d were there", found)
	}
}

// What a client sends is read once, and a long value brought into its form once, however many rules ask: none sees what is written over it since.
func TestReadOnce(t *testing.T) {
	q := &message.Request{Target: []byte("/?a=1&b=2;page=3&page=3")}
	cookies, credentials := "a=1; b=2", "Basic "+strings.Repeat("YTpi", 40)
	addLine(t, q, "Cookie", cookies)
	addLine(t, q, "Authorization", credentials)
	parts := make(map[string]*Part)
	for i := range asked {
		parts[asked[i].String()] = &asked[i]
	}
	v := View{Request: q}
	v.Find(parts["query:a"], message.Ampersands)
	v.Find(parts["query:a"], message.Semicolons)
	v.Find(parts["cookie:a"], message.Ampersands)
	authorization := parts["header:authorization"]
	value, _, _ := v.Find(authorization, message.Ampersands)
	want, _ := v.AppendForm(nil, authorization, message.Ampersands, value)
	for _, text := range [][]byte{q.Target, q.Head.Lines[0].Value, value} {
		for i, c := range text {
			if c < '0' || c > '9' {
				text[i] = 'x'
			}
		}
	}
	for _, test := range []struct {
		part string
		at   message.Split
		want string
	}{{"query:b", message.Ampersands, "2xxxxxx3"}, {"query:b", message.Semicolons, "2"}, {"query:page", message.Semicolons, "3"}, {"cookie:b", message.Ampersands, "2"}} {
		if value, _, ok := v.Find(parts[test.part], test.at); string(value) != test.want || !ok {
			t.Errorf("%s, split at %s: %q %t, want %q", test.part, test.at, value, ok, test.want)
		}
	}
	if form, ok := v.AppendForm(nil, authorization, message.Ampersands, value); !ok || !bytes.Equal(form, want) {
		t.Errorf("credentials are %q %t, want %q", form, ok, want)
	}
}

func addLine(t *testing.T, q *message.Request, name, value string) {
	t.Helper()
	if err := q.Head.Add([]byte(name), bytes.Trim([]byte(value), " \t"), message.MaxLines); err != nil {
		t.Fatal(err)
	}
}

func FuzzView(f *testing.F) {
	f.Add("a=1&b=2;c", "a=1; b=2", "A=1", "Basic YTpi")
	f.Add("+%61[b[c=1&a_b=1&a%00=2", "a_b=1;a.b=2", " a = 1", "abc")
	f.Fuzz(func(t *testing.T, query, cookies, more, credentials string) {
		q := &message.Request{Target: []byte("/?" + query)}
		addLine(t, q, "Cookie", cookies)
		addLine(t, q, "Cookie", more)
		addLine(t, q, "Authorization", credentials)
		order := make([]int, len(asked))
		for i := range order {
			order[i] = i
		}
		checkView(t, new(View), q, order)
	})
}
