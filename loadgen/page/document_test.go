package page

import (
	"bytes"
	"strings"
	"testing"
)

// TestDocument: a text and a page say the same in the same order, and both keep details for who wants them.
func TestDocument(t *testing.T) {
	d := Document{
		Title: "the first", Answer: "Nine of <ten>, 90 %.",
		Tables: []Table{
			{Rows: [][]string{{"", "this run"}, {"requests", "12"}, {"a heading"}, {"  of them", "7 ms / 8 ms"}}, Notes: []string{"A note."}, Terms: [][2]string{{"term", "its meaning"}}},
			{Rows: [][]string{{"limit", "refused"}, {"> 7", "3"}}, Right: true},
		},
		Figures: []Figure{{Plot: "<svg></svg>", Caption: "A picture."}},
		How:     []string{"twice"},
		Details: &Details{Line: "all adds up", Lines: []string{"one plus one"}},
	}
	write := func() (text, page string) {
		t.Helper()
		var a, b bytes.Buffer
		if err := WriteText(&a, d, Document{Title: "the second"}); err != nil {
			t.Fatal(err)
		}
		if err := WriteHTML(&b, "all of them", d, Document{Title: "the second"}); err != nil {
			t.Fatal(err)
		}
		_, page, _ = strings.Cut(b.String(), "</nav>")
		return a.String(), page
	}
	inOrder := func(s string, want ...string) {
		t.Helper()
		rest := s
		for _, w := range want {
			_, after, there := strings.Cut(rest, w)
			if !there {
				t.Errorf("%q is not there, or not where it should be:\n%s", w, s)
			}
			rest = after
		}
	}
	text, page := write()
	inOrder(text, "the first\n\n", "Nine of <ten>, 90 %.\n\n", "requests            12\n", "a heading\n", "  of them  7 ms / 8 ms\n\n", "A note.\n\nterm  its meaning\n\n",
		"limit  refused\n  > 7        3\n\n", "How the run was made\n  twice\n  all adds up\n\n", "the second\n")
	inOrder(page, "<h2>the first", "Nine of &lt;ten&gt;, 90\u00a0%.", ">requests</th>", ">12</td>", ">a heading</th>", `class="sub"`, "7\u00a0ms / 8\u00a0ms", "A note.", "its meaning", "&gt; 7",
		"A picture.", "How the run was made", "twice", "<details><summary>all adds up", "one plus one", "<h2>the second")
	if strings.Contains(text, "one plus one") {
		t.Errorf("the text shows details that nobody asked for:\n%s", text)
	}
	d.Details.Open = true
	text, page = write()
	inOrder(text, "all adds up\n    one plus one\n")
	inOrder(page, "<details open>")
}

func TestWrap(t *testing.T) {
	if got, want := wrap("no line is longer than twelve or 10 %", 12), "no line is\nlonger than\ntwelve or\n10 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
