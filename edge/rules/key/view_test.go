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
type pair struct {
	name, value []byte
	odd         bool // only some see it
}

// pairsOf are all parameters or cookies of a request, taken apart plainly.
func pairsOf(kind Kind, q *message.Request, at message.Split) (list []pair) {
	if kind == Query {
		path, query, _ := strings.Cut(string(q.Target), "?")
		splits := "&"
		switch at {
		case message.Semicolons:
			splits = "&;"
		case message.AfterSemicolon:
			_, query, _ = strings.Cut(string(q.Target), ";")
			if !strings.Contains(path, ";") {
				query = ""
			}
		}
		for _, text := range strings.FieldsFunc(query, func(r rune) bool { return strings.ContainsRune(splits, r) }) {
			name, value, _ := strings.Cut(text, "=")
			list = append(list, pair{[]byte(name), []byte(value), false})
		}
		return list
	}
	isBreak := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '"' } // or no UTF-8, which is 0xfffd
	for _, l := range q.Head.Lines {
		if l.Kind != message.Cookie || l.Drop {
			continue
		}
		for text := range strings.SplitSeq(string(l.Value), ";") {
			name, value, ok := strings.Cut(text, "=")
			if !ok {
				continue
			}
			name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
			list = append(list, pair{[]byte(name), []byte(value), false})
			for i, before := range strings.Split(name+"="+value+"=", "=") { // what stands before each equals sign
				words := strings.FieldsFunc("x "+strings.TrimRightFunc(before, isBreak), isBreak)
				if word := words[len(words)-1]; len(words) > 1 && word != before && i <= strings.Count(value, "=") {
					list = append(list, pair{[]byte(word), []byte(value), true})
				}
			}
		}
	}
	return list
}

// isName reports whether some server takes the name that came for the one that was asked for: this name alone, byte by byte.
func isName(came, asked []byte) bool {
	fold := func(s []byte) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(". [", r) {
				return '_'
			}
			return r
		}, strings.ToLower(string(s)))
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
	decoded = bytes.TrimLeft(decoded, " []")
	n := len(asked)
	return len(decoded) >= n && fold(decoded[:n]) == fold(asked) && (len(decoded) == n || decoded[n] == 0 || decoded[n] == '[' || decoded[n] == ']')
}

// findPlainly is View.Find, for one part by itself.
func findPlainly(p *Part, q *message.Request, at message.Split) (value []byte, once, ok bool) {
	if p.Kind == Query && bytes.Contains(bytes.ToLower(message.Query(q.Target)), []byte("%u00")) {
		return nil, false, false
	}
	var found []pair
	for _, came := range pairsOf(p.Kind, q, at) {
		if isName(came.name, p.Name) {
			found = append(found, came)
		}
	}
	for _, f := range found {
		if f.odd || !bytes.Equal(f.value, found[0].value) {
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
	parts = append(parts, Part{Kind: Header, Name: []byte("authorization")}, Part{Kind: Header, Name: []byte("x-key")}, Part{Kind: Header, Name: []byte("x_key")}, Part{Kind: Header, Name: []byte("x-k")})
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
		for at := range message.Splits {
			value, once, ok := v.Find(p, at)
			want, wantOnce, wantOK := q.Head.Header(p.Name)
			if p.Kind != Header {
				want, wantOnce, wantOK = findPlainly(p, q, at)
			}
			if !bytes.Equal(value, want) || (value == nil) != (want == nil) || once != wantOnce || ok != wantOK {
				t.Fatalf("%s in %q and %v, split as %d: %q %t %t, want %q %t %t", p, q.Target, q.Head.Lines, at, value, once, ok, want, wantOnce, wantOK)
			}
			if value == nil {
				continue
			}
			found++
			form, token, ok := v.AppendForm([]byte("before "), p, at, value)
			wantForm, wantToken, wantOK := p.Form([]byte("before "), value)
			if ok != wantOK || ok && (!bytes.Equal(form, wantForm) || token != wantToken) {
				t.Fatalf("the form of %q as %s: %q %t, want %q %t", value, p, form, ok, wantForm, wantOK)
			}
		}
		if query := message.Query(q.Target); v.Differs(message.Semicolons) != bytes.Contains(query, []byte{';'}) {
			t.Fatalf("a semicolon in %q: %t", query, v.Differs(message.Semicolons))
		}
	}
	return found
}

// A View has what each name by itself would find, whatever else is asked for, and nothing of the requests before.
func TestView(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "A", "_", "b", "B", ".", "[", "]", " ", "+", "%", "%61", "%5b", "%00", "%2E", "%20", "%3d", "\x00", "=", "=", "&", ";", "&", ";", "page", "=1&", "=1;", "%u0061",
		strings.Repeat("long", 40), strings.Repeat("x", 70), "\t", `"`, ",", "\xa0", "="}
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
		q := &message.Request{Target: []byte([]string{"/?", "/;"}[r.IntN(2)] + text())}
		for range r.IntN(3) {
			addLine(t, q, "Cookie", text())
		}
		for range r.IntN(2) {
			addLine(t, q, "Authorization", "Basic "+text())
		}
		for range r.IntN(3) {
			addLine(t, q, []string{"X-Key", "x-key", "X_KEY", "X-K", "X-Keys", "Authorization", "X-Forwarded-For"}[r.IntN(7)], []string{"", "1", text()}[r.IntN(3)])
		}
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
	addLine(t, q, "X-Key", "1")
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
	want, _, _ := v.AppendForm(nil, authorization, message.Ampersands, value)
	for _, text := range [][]byte{q.Target, q.Head.Lines[0].Value, value, q.Head.Lines[2].Name} {
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
	}{{"query:b", message.Ampersands, "2xxxxxx3"}, {"query:b", message.Semicolons, "2"}, {"query:page", message.Semicolons, "3"}, {"cookie:b", message.Ampersands, "2"},
		{"header:x-key", message.Ampersands, "1"}} {
		if value, _, ok := v.Find(parts[test.part], test.at); string(value) != test.want || !ok {
			t.Errorf("%s, split as %d: %q %t, want %q", test.part, test.at, value, ok, test.want)
		}
	}
	if form, _, ok := v.AppendForm(nil, authorization, message.Ampersands, value); !ok || !bytes.Equal(form, want) {
		t.Errorf("credentials are %q %t, want %q", form, ok, want)
	}
}

func addLine(t *testing.T, q *message.Request, name, value string) {
	t.Helper()
	if err := q.Head.Add([]byte(name), []byte(strings.Trim(value, " \t")), message.MaxLines); err != nil {
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
