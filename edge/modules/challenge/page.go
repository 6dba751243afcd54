package challenge

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// Path is where the page sends its answer, and asks whether the pass came back.
const Path = "/.well-known/sluice-challenge"

// AnswerHeader is the header that has the answer. No other site's page can make a browser send it.
const AnswerHeader = "Sluice-Answer"

const (
	// MaxPage bounds what the edge's own page has, in bytes, with all that it says.
	MaxPage = 4 << 10
	// MaxOwnPage bounds an operator's page: who is challenged is many.
	MaxOwnPage = 16 << 10
	// MaxContact bounds the line about whom to ask.
	MaxContact = 200

	// Placeholder is where in an operator's own page the challenge goes.
	Placeholder = "{{challenge}}"
)

var (
	//go:embed page.js
	source string
	//go:embed page.css
	style string
)

// A Page is what a browser gets in place of a refusal, in each language.
type Page struct {
	parts [len(languages)][3][]byte // around the question and its difficulty
	words [len(languages)][]byte    // for requests that are not sent again
	// Content-Security-Policy of the page, and of words
	Policy, WordsPolicy []byte
}

// NewPage makes a page. own is an operator's, of which Placeholder becomes the challenge; nil: the
// edge's own. contact is whom to ask, in an operator's words; "": nobody.
func NewPage(own []byte, contact string) (*Page, error) {
	if len(contact) > MaxContact {
		return nil, fmt.Errorf("contact of %d bytes: at most %d", len(contact), MaxContact)
	}
	p := &Page{WordsPolicy: []byte("default-src 'none'; style-src " + hashOf(style) + common)}
	code, styles := script(source), hashOf(style)+" "+hashOf(hidden)
	if own != nil {
		if len(own) > MaxOwnPage {
			return nil, fmt.Errorf("a page of %d bytes: at most %d", len(own), MaxOwnPage)
		}
		if bytes.Count(own, []byte(Placeholder)) != 1 {
			return nil, errors.New("the page must have " + Placeholder +
				" once, where the challenge goes")
		}
		styles = "'unsafe-inline'; img-src 'self' data:; font-src 'self'"
	}
	p.Policy = []byte("default-src 'none'; script-src " + hashOf(code) +
		"; worker-src blob:; connect-src 'self'; style-src " + styles + common)
	for i := range languages {
		t := &languages[i]
		before, after := t.head(), ""
		if own != nil {
			before, after, _ = strings.Cut(string(own), Placeholder)
		}
		first, rest, _ := strings.Cut(t.challenge(contact, code), question)
		second, third, _ := strings.Cut(rest, difficulty)
		p.parts[i] = [3][]byte{[]byte(before + first), []byte(second), []byte(third + after)}
		p.words[i] = []byte(t.head() + fmt.Sprintf("<main><h1>%s</h1>\n<p>%s</p>%s</main>\n",
			t.title, t.method, contactLine(contact)))
		if n := len(p.Append(nil, i, Keys{{}}, Question{}, Holder{})); own == nil && n > MaxPage {
			return nil, fmt.Errorf("the page in %s has %d bytes: at most %d", t.language, n,
				MaxPage)
		}
	}
	return p, nil
}

const (
	question, difficulty = "{question}", "{bits}" // each once in what challenge makes

	common = "; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
	hidden = "[role],progress{display:none}" // where there is no script
)

// head is a document up to its body.
func (t *texts) head() string {
	return "<!doctype html>\n<html lang=" + t.language + "><meta charset=utf-8>\n" +
		"<meta name=viewport content=\"width=device-width\"><meta name=robots content=noindex>\n" +
		"<title>" + t.title + "</title>\n<style>" + style + "</style>\n"
}

// challenge is what the script works on, and the script. What it says is announced as it changes.
func (t *texts) challenge(contact, code string) string {
	return fmt.Sprintf(`<main data-question="%s" data-bits=%s data-path=%s data-cookies="%s"`+
		` data-failed="%s" data-again="%s"><h1>%s</h1>`+"\n"+`<p role=status>%s</p>`+
		`<progress aria-label="%s"></progress><button hidden>%s</button>`+"\n"+
		`<noscript><style>%s</style><p>%s</p></noscript>%s</main>`+"\n"+
		`<script>%s</script>`+"\n", question, difficulty, Path, html.EscapeString(t.cookies),
		html.EscapeString(t.failed), html.EscapeString(t.again), t.title, t.works, t.title, t.try,
		hidden, t.script, contactLine(contact), code)
}

func contactLine(contact string) string {
	if contact == "" {
		return ""
	}
	return "\n<p>" + html.EscapeString(contact) + "</p>"
}

// script is the source without comments, which stand on lines of their own, and indents.
func script(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// hashOf is how a Content-Security-Policy names what stands in a page.
func hashOf(text string) string {
	h := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
}

// Append appends the page in a language, with a question.
func (p *Page) Append(b []byte, language int, k Keys, q Question, h Holder) []byte {
	part := &p.parts[language]
	b = k.AppendQuestion(append(b, part[0]...), q, h)
	b = strconv.AppendInt(append(b, part[1]...), int64(q.Difficulty), 10)
	return append(b, part[2]...)
}

// Words is what a browser gets for a request that is not sent again.
func (p *Page) Words(language int) []byte { return p.words[language] }
