package challenge

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"sluice/edge/message"
)

func made(t *testing.T, own []byte, contact string) *Page {
	t.Helper()
	p, err := NewPage(own, contact)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The longest contact leaves the page within its size in every language.
func TestPageIsSmallAndSaysItsQuestion(t *testing.T) {
	p, q := made(t, nil, strings.Repeat("c", MaxContact)), asked(false)
	text := keys.AppendQuestion(nil, q, visitor)
	for i := range languages {
		page := p.Append(nil, i, keys, q, visitor)
		if len(page) > MaxPage {
			t.Errorf("%s: %d bytes, at most %d", languages[i].language, len(page), MaxPage)
		}
		for _, want := range []string{`data-question="` + string(text) + `" data-bits=8 `,
			"<html lang=" + languages[i].language + ">", languages[i].title, languages[i].script,
			"<noscript>", "role=status"} {
			if !bytes.Contains(page, []byte(want)) {
				t.Errorf("%s: the page lacks %q", languages[i].language, want)
			}
		}
		if words := p.Words(i); bytes.Contains(words, []byte("<script")) ||
			!bytes.Contains(words, []byte(languages[i].method)) {
			t.Errorf("%s: words %s", languages[i].language, words)
		}
	}
}

// All that the page loads is its own, and the policy names it by its hash.
func TestPolicyNamesWhatThePageHas(t *testing.T) {
	p := made(t, nil, "")
	for i := range languages {
		page := string(p.Append(nil, i, keys, asked(false), visitor))
		policy := string(p.Policy)
		inline := regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</`)
		found := inline.FindAllStringSubmatch(page, -1)
		if len(found) != 3 {
			t.Fatalf("%d scripts and styles, want 3", len(found))
		}
		for _, f := range found {
			if !strings.Contains(policy, hashOf(f[1])) {
				t.Errorf("the policy lacks %s of %.40q", hashOf(f[1]), f[1])
			}
		}
		if strings.Contains(page, "http:") || strings.Contains(page, "https:") ||
			strings.Contains(page, "//") {
			t.Error("the page speaks of another site")
		}
		words := inline.FindStringSubmatch(string(p.Words(i)))
		if !strings.Contains(string(p.WordsPolicy), hashOf(words[1])) {
			t.Error("the policy of words lacks their style")
		}
	}
}

func TestOwnPage(t *testing.T) {
	own := "<!doctype html><title>{bits} {question}</title>" + Placeholder + "<p>our shop</p>"
	p := made(t, []byte(own), `Ask <us> & "others"`)
	page := string(p.Append(nil, 0, keys, asked(false), visitor))
	for _, want := range []string{"<title>{bits} {question}</title><main data-question=",
		"data-bits=8 ", "<p>our shop</p>", "Ask &lt;us&gt; &amp; &#34;others&#34;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for name, own := range map[string]string{
		"no place":   "<p>our shop</p>",
		"two places": Placeholder + Placeholder,
		"too long":   Placeholder + strings.Repeat("a", MaxOwnPage),
	} {
		if _, err := NewPage([]byte(own), ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := NewPage(nil, strings.Repeat("c", MaxContact+1)); err == nil {
		t.Error("a contact that is too long: no error")
	}
}

func TestLanguage(t *testing.T) {
	for _, c := range []struct{ accept, want string }{
		{"", "en"},
		{"de", "de"},
		{"de-AT,de;q=0.9,en;q=0.8", "de"},
		{"pt-BR,pt;q=0.9,es;q=0.7,en;q=0.5", "es"},
		{"FR-ca", "fr"},
		{"nl, ja", "en"},
		{"*", "en"},
		{"de;q=0, fr;q=0.1", "fr"},
		{"de;q=x, fr;q=0.1", "fr"},
		{"de;q=NaN, es", "es"},
		{"en;q=0.5, de;q=0.5", "en"},
		{strings.Repeat("x,", 200) + "de", "en"},
	} {
		var h message.Head
		if c.accept != "" {
			if err := h.Add([]byte("Accept-Language"), []byte(c.accept), 10); err != nil {
				t.Fatal(err)
			}
		}
		if got := languages[languageOf(&h)].language; got != c.want {
			t.Errorf("%q: %s, want %s", c.accept, got, c.want)
		}
	}
}
