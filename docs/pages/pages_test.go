package pages

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func all(t *testing.T) map[string]string {
	t.Helper()
	texts, err := All("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 50 {
		t.Fatalf("%d documents are found", len(texts))
	}
	return texts
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// A page is no wall: it has at most 12 kB, lines of at most 100 columns outside of code and tables, a heading for each few paragraphs, and
// something to look at (an example, a table, a figure).
func TestPagesAreNoWalls(t *testing.T) {
	for name, text := range all(t) {
		if len(text) > 12_000 {
			t.Errorf("%s has %d bytes: split it", name, len(text))
		}
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s: the first line is no heading", name)
		}
		if strings.HasPrefix(name, "docs/") && !strings.Contains(text, "```") && !strings.Contains(text, "\n|---") && !strings.HasPrefix(name, "docs/alerts/") {
			t.Errorf("%s has no example, and no table", name)
		}
		prose := made.ReplaceAllStringFunc(text, lines)
		prose = fence.ReplaceAllStringFunc(prose, lines)
		n, since := 0, 0
		for line := range strings.Lines(prose) {
			n++
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "|"):
			case strings.HasPrefix(line, "#"):
				since = 0
			default:
				since += len(line)
			}
			if since > 3000 {
				t.Errorf("%s:%d: %d bytes of prose without a heading", name, n, since)
				since = 0
			}
			if width := utf8.RuneCountInString(line); width > 100 && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "<!--") && strings.Contains(line[min(100, len(line)):], " ") {
				t.Errorf("%s:%d: %d columns", name, n, width)
			}
		}
	}
}

// A table begins with its head: a row behind an empty line would be shown as text.
func TestTablesHaveHeads(t *testing.T) {
	rule := regexp.MustCompile(`^\|[-:| ]+\|$`)
	for name, text := range all(t) {
		rows := strings.Split(fence.ReplaceAllStringFunc(text, lines), "\n")
		for n, row := range rows {
			if !strings.HasPrefix(row, "|") || n > 0 && strings.HasPrefix(rows[n-1], "|") {
				continue
			}
			if n+1 == len(rows) || !rule.MatchString(rows[n+1]) {
				t.Errorf("%s:%d: a table has no head: %s", name, n+1, row)
			}
		}
	}
}

// lines keeps the ends of lines, and nothing else.
func lines(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

// Sentences have at most 25 words on average, on every page.
func TestSentencesAreShort(t *testing.T) {
	for name, text := range all(t) {
		words, list := 0, Sentences(text)
		for _, s := range list {
			words += len(strings.Fields(s))
		}
		if len(list) > 0 && words > 25*len(list) {
			slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
			t.Errorf("%s: %d words in %d sentences; the longest: %q", name, words, len(list), list[0])
		}
	}
}

// anchor is the name that a heading has in links.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(link.ReplaceAllString(heading, "$1")) {
		switch {
		case r == ' ', r == '-':
			b.WriteByte('-')
		case r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// A link leads to a file that is there, and to a heading of it; and a reader who begins at README.md comes to every document.
func TestLinks(t *testing.T) {
	texts, links := all(t), 0
	to := make(map[string][]string)
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[2], ":") {
				continue
			}
			links++
			file, head, _ := strings.Cut(m[2], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			to[name] = append(to[name], target)
			if head != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(fence.ReplaceAllString(texts[target], ""), -1), func(h []string) bool { return anchor(h[1]) == head }) {
				t.Errorf("%s: %s has no heading %s", name, target, head)
			}
		}
	}
	reached := map[string]bool{"README.md": true}
	for next := []string{"README.md"}; len(next) > 0; {
		name := next[0]
		next = next[1:]
		for _, target := range to[name] {
			if !reached[target] {
				reached[target] = true
				next = append(next, target)
			}
		}
	}
	for name := range texts {
		if !reached[name] {
			t.Errorf("no way of links leads from README.md to %s", name)
		}
	}
	if links < 200 {
		t.Errorf("%d links are found", links)
	}
}

// A page on rules says what it is for, shows a configuration, and tells its limits.
func TestRulePages(t *testing.T) {
	seen := 0
	for name, text := range all(t) {
		if path.Dir(name) != "docs/rules" || path.Base(name) == "README.md" {
			continue
		}
		seen++
		if !strings.Contains(text, "```yaml") {
			t.Errorf("%s shows no configuration", name)
		}
		if !regexp.MustCompile(`(?m)^##+ (Limits|When something fails|What it costs)`).MatchString(text) {
			t.Errorf("%s tells no limits", name)
		}
	}
	if seen < 15 {
		t.Errorf("%d pages on rules", seen)
	}
}

// README has at most 120 lines and 1,300 words.
func TestReadmeIsShort(t *testing.T) {
	text := all(t)["README.md"]
	if n := strings.Count(text, "\n"); n > 120 {
		t.Errorf("%d lines", n)
	}
	if n := len(strings.Fields(text)); n > 1300 {
		t.Errorf("%d words", n)
	}
}

func TestSentences(t *testing.T) {
	got := Sentences("# A head\nOne [two](three.md) `four five`. Six\nseven: eight.\n\n- nine\n- ten eleven\n\n| a | b |\n```\ncode. code\n```\n")
	if want := []string{"One two x", "Six seven: eight.", "nine", "ten eleven"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// What code, configurations and scripts say of a document or an example names one that is there.
func TestNamedPaths(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[\s("/])((?:docs|deploy|examples)/[\w/-]+(?:\.[\w-]+)*)`)
	seen := 0
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".git") || d.Name() == "bin" || d.Name() == "runs" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".yaml", ".yml", ".sh", ".service", ".awk"}, filepath.Ext(file)):
			return nil
		}
		text, err := os.ReadFile(file)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			seen++
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil && !strings.HasSuffix(m[1], "-") {
				t.Errorf("%s: %v", file, err)
			}
		}
		return err
	})
	if err != nil || seen < 100 {
		t.Errorf("%d paths are found: %v", seen, err)
	}
}
