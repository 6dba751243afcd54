package answercost_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/edge/answercost"
)

// read reads a body in parts of so many bytes.
func read(t testing.TB, path string, form answercost.Form, body string, size int) string {
	p, err := answercost.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	var r answercost.Reader
	r.Reset(p, form)
	for rest := []byte(body); len(rest) > 0; {
		n := min(size, len(rest))
		r.Read(rest[:n])
		rest = rest[n:]
	}
	value, ok, malformed := r.Value()
	switch {
	case ok:
		return fmt.Sprint(value)
	case malformed:
		return "malformed"
	}
	return "none"
}

func TestRead(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, test := range []struct {
		form       answercost.Form
		path, body string
		want       string
	}{
		{answercost.Document, "usage.total_tokens", `{"id":"a","usage":{"prompt_tokens":5,"total_tokens":812}}`, "812"},
		{answercost.Document, "usage.total_tokens", " {\n\t\"usage\" : { \"total_tokens\" : 8.5e2 } }\r\n", "850"},
		{answercost.Document, "n", `{"n":1,"a":[{"n":2},"n",3],"b":{"n":4},"c":"\"n\":5"}`, "1"},
		{answercost.Document, "n", `{"n":1,"n":2}`, "2"},
		{answercost.Document, "a.n", `{"n":1,"a":[{"n":2}],"b":{"a":{"n":3}}}`, "none"},
		{answercost.Document, "a.n", `{"a":{"a":{"n":3}},"n":4}`, "none"},
		{answercost.Document, "n", `{"n":null}`, "none"},
		{answercost.Document, "n", `{"n":"7"}`, "none"},
		{answercost.Document, "n", `{"n":{"n":7}}`, "none"},
		{answercost.Document, "n", `[{"n":7}]`, "none"},
		{answercost.Document, "n", `7`, "none"},
		{answercost.Document, "n", ``, "none"},
		{answercost.Document, "n", `{"n":-7}`, "-7"},
		{answercost.Document, "n", `{"n":1234567890123456789012345678901234567890}`, "none"},
		{answercost.Document, "n", `{"n":1e999}`, "malformed"},
		{answercost.Document, "usage", `{"\u0075s\u0061ge":7}`, "7"},
		{answercost.Document, "a/b\"\\\n", `{"a\/b\"\\\n":7}`, "7"},
		{answercost.Document, "\U0001F600", `{"\ud83d\ude00":7}`, "7"},
		{answercost.Document, "\U0001F600", `{"\ud83d\ud83d\ude00":7,"\ud83da":8,"\ude00":9}`, "none"},
		{answercost.Document, "\U0001F600", "\xef\xbb\xbf{\"\U0001F600\":7}", "7"},
		{answercost.Document, "n", `{"n":7`, "none"}, // more digits may come
		{answercost.Document, "n", `{"n":7,`, "7"},
		{answercost.Document, "n", `{"n":7} {"n":8}`, "malformed"},
		{answercost.Document, "n", `{"n":7,}`, "malformed"},
		{answercost.Document, "n", `{"n" 7}`, "malformed"},
		{answercost.Document, "n", `{"n":7]`, "malformed"},
		{answercost.Document, "n", `{n:7}`, "malformed"},
		{answercost.Document, "n", `{"n":truth}`, "malformed"},
		{answercost.Document, "n", "{\"a\":\"\n\",\"n\":7}", "malformed"},
		{answercost.Document, "n", `{"a":"\x","n":7}`, "malformed"},
		{answercost.Document, "n", `{"a":"\u00g0","n":7}`, "malformed"},
		{answercost.Document, "n", "\x1f\x8b\x08", "malformed"},
		{answercost.Document, "n", `{"a":` + deep + `,"n":7}`, "malformed"},
		{answercost.Document, "n", `{"a":` + deep[100:1100] + `,"n":7}`, "7"},
		{answercost.Document, "n", `{"a":"` + strings.Repeat("x", 1<<20) + `","n":7}`, "7"},
		{answercost.Lines, "eval_count", "{\"eval_count\":1}\n{\"a\":2}\nno\n{\"eval_count\":3}", "3"},
		{answercost.Lines, "eval_count", "{\"eval_count\":1}\r\n\r\n{\"eval_count\":", "1"},
		{answercost.Events, "usage.total_tokens", "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n", "9"},
		{answercost.Events, "n", "\xef\xbb\xbf: hello\r\nevent: n\r\ndata:{\"n\":1}\r\nid: 4\r\n\r\ndata: {\"n\"\r\ndata\r\ndata: :2}\r\n\r\n", "2"},
		{answercost.Events, "n", "data: {\"n\":1}\r\rdatabase: {\"n\":2}\r\rdat: {\"n\":3}\r\r", "1"},
		{answercost.Events, "n", "data: {\"n\":1}\n\ndata: {\"n\":2", "1"},
		{answercost.Events, "n", "data: {\"n\":1}\n\ndata: {\"n\":2}", "2"}, // the stream is over
		{answercost.Events, "n", "data: {\"a\":\"x\ndata: y\",\"n\":3}\n\n", "none"},
		{answercost.Events, "n", "{\"n\":1}\n\n", "none"},
	} {
		for _, size := range []int{1, 2, 3, 7, len(test.body) + 1} {
			if size < 7 && len(test.body) > 1<<16 {
				continue
			}
			if got := read(t, test.path, test.form, test.body, size); got != test.want {
				t.Errorf("%s of %.80q in parts of %d: %s, want %s", test.path, test.body, size, got, test.want)
			}
		}
	}
}

func TestParsePath(t *testing.T) {
	for _, text := range []string{"", ".", "a.", ".a", "a..b", strings.Repeat("a.", 16) + "a", strings.Repeat("a", 129)} {
		if p, err := answercost.ParsePath(text); err == nil {
			t.Errorf("%q is %q", text, p)
		}
	}
}

// Nothing is allocated, however long an answer is.
func TestReadAllocatesNothing(t *testing.T) {
	body := []byte(`{"a":[{"b":"c\u00e9","d":[1.5,true,null]}],"usage":{"total_tokens":812}}`)
	path, _ := answercost.ParsePath("usage.total_tokens")
	var r answercost.Reader
	if n := testing.AllocsPerRun(100, func() {
		r.Reset(path, answercost.Document)
		r.Read(body)
		_, _, _ = r.Value()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// What encoding/json takes is read, and its number is found, in whatever parts the bytes come.
func FuzzRead(f *testing.F) {
	for _, body := range []string{`{"usage":{"n":1}}`, `{"usage":{"a":[1,{"n":2}],"n":-1.5e3,"n":null}}`, `[]`, `{"\u0075sage":{"n":12}}`, `{"usage":{"n":1},"usage":{}}`, `"\ud800"`} {
		f.Add([]byte(body), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		got := read(t, "usage.n", answercost.Document, string(body), max(1, size))
		if whole := read(t, "usage.n", answercost.Document, string(body), len(body)+1); got != whole {
			t.Fatalf("%q: %s in parts of %d, %s as a whole", body, got, size, whole)
		}
		if !json.Valid(body) || bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 512 {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		want := "none"
		if err := find(d, 0, true, &want); err != nil {
			t.Fatal(err)
		}
		if got != want && want != "long" {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	})
}

// find reads a value as the slow, obvious twin: on says that the names before it are those of the
// path, of which depth are.
func find(d *json.Decoder, depth int, on bool, want *string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Number:
		if on && depth == 2 {
			if n, err := v.Float64(); len(v) > 32 || err != nil {
				*want = "long"
			} else {
				*want = fmt.Sprint(n)
			}
		}
	case json.Delim:
		for d.More() {
			same := false
			if v == '{' {
				name, err := d.Token()
				if err != nil {
					return err
				}
				same = on && depth < 2 && name == []string{"usage", "n"}[depth]
			}
			if err := find(d, depth+1, same, want); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	if err == io.EOF {
		err = nil
	}
	return err
}
