// Package pages finds the documents of the project, for the tests that hold them against the
// product and for what writes into them.
//
// A document is a Markdown file at the root, or anywhere below docs or deploy. Its name is its path
// from the root, with slashes.
package pages

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// All returns the text of each document below root, by its name.
func All(root string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, d fs.DirEntry,
			err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(file, ".md") {
				files = append(files, file)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	all := make(map[string]string, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		all[filepath.ToSlash(name)] = string(text)
	}
	return all, nil
}

// A Block is what stands between two fences of a page.
type Block struct {
	Kind string // what the first fence says behind its backticks, such as sh
	Text string
	Line int // of its first line in the page
}

// Blocks returns the blocks of a page, in their order.
func Blocks(page string) (list []Block) {
	var open *Block
	n := 0
	for line := range strings.Lines(page) {
		n++
		kind, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case fence && open == nil:
			open = &Block{Kind: strings.TrimSpace(kind), Line: n + 1}
		case fence:
			list = append(list, *open)
			open = nil
		case open != nil:
			open.Text += line
		}
	}
	return list
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$\n?")
	made    = regexp.MustCompile(`(?s)<!-- figures [\w-]+ -->\n.*?<!-- end -->`)
	comment = regexp.MustCompile(`<!--.*?-->`)
	link    = regexp.MustCompile(`!?\[([^\]]*)\]\(([^)\s]+)\)`)
	span    = regexp.MustCompile("`[^`]*`")
	item    = regexp.MustCompile(`^([-*]|\d+\.) `)
	ends    = regexp.MustCompile(`[.?!]\s+`)
)

// Sentences are those of a page's prose. Tables, code and what make figures writes are left out.
func Sentences(text string) (list []string) {
	text = made.ReplaceAllString(text, "\n")
	text = comment.ReplaceAllString(fence.ReplaceAllString(text, "\n"), "")
	text = link.ReplaceAllString(span.ReplaceAllString(text, "x"), "$1")
	var paragraph strings.Builder
	flush := func() {
		for _, s := range ends.Split(strings.TrimSpace(paragraph.String()), -1) {
			if strings.TrimSpace(s) != "" {
				list = append(list, s)
			}
		}
		paragraph.Reset()
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '|' || line[0] == '#' || item.MatchString(line) {
			flush()
		}
		if line != "" && line[0] != '|' && line[0] != '#' {
			paragraph.WriteString(strings.TrimLeft(line, "-*0123456789. ") + " ")
		}
	}
	flush()
	return list
}
