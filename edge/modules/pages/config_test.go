package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/config/compose"
)

// A page's file is one of the files of the configuration, and what is wrong with it has the place of its name.
func TestPageFiles(t *testing.T) {
	const maxBytes = 64 << 10
	dir := t.TempDir()
	for name, text := range map[string]string{"a.html": "page", "large": strings.Repeat("x", maxBytes+1), "fits": strings.Repeat("x", maxBytes),
		"sub/more.yaml": "pages:\n- {status: [503], type: text/html, file: b.html}\n", "sub/b.html": "other"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var files compose.Files
	file := filepath.Join(dir, "f.yaml")
	parse := func(yaml string) (Settings, string) {
		files = compose.Files{}
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Parser{Files: &files, Modules: edge.Modules{Module()}.Config()}.Parse(file, []byte(yaml))
		if err != nil {
			return nil, strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		return *config.SettingsOf[Settings](c, "pages"), ""
	}
	c, err := parse("include: sub/more.yaml\npages:\n- {status: [429], type: text/html, file: a.html}\n- {status: [429], type: text/plain, file: fits}\n")
	if err != "" || len(c) != 3 {
		t.Fatal(err, c)
	}
	texts := ""
	for _, p := range c {
		texts += string(p.File.Text[:4]) + " "
	}
	if !strings.Contains(texts, "page ") || !strings.Contains(texts, "othe ") {
		t.Error(texts)
	}
	if files.Now() != files.Text() {
		t.Error("nothing has changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "a.html"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if files.Now() == files.Text() {
		t.Error("the change of a page is not seen")
	}
	f := func(entry, want string) {
		t.Helper()
		if _, got := parse("pages:\n- " + entry + "\n"); got != want {
			t.Errorf("%s\n got %s\nwant %s", entry, got, want)
		}
	}
	f("{status: [429], type: text/html, file: none.html}", "f.yaml:2:42: pages.file: none.html: no such file or directory: give the path of a readable file; it begins in the folder of f.yaml")
	f("{status: [429], type: text/html, file: sub}", "f.yaml:2:42: pages.file: sub: that is a folder: give the path of a readable file; it begins in the folder of f.yaml")
	f("{status: [429], type: text/html, file: large}", "f.yaml:2:42: pages.file: large: it has more than 65536 bytes: give the path of a readable file; it begins in the folder of f.yaml")
	f("{status: 429, type: text/html, file: a.html}", "f.yaml:2:12: pages.status: want a list, not a single value")
	f("{status: [200], type: text/html, file: a.html}", "f.yaml:2:13: pages.status: 200 is out of range: want 400 to 599")
	f("{status: [429, 429], type: text/html, file: a.html}", "f.yaml:2:18: pages.status: 429 is there twice: remove one")
	f("{status: [429], type: html, file: a.html}", `f.yaml:2:25: pages.type: "html" is not a media type: want one such as text/html or application/json`)
	f("{status: [429], type: text/*, file: a.html}", `f.yaml:2:25: pages.type: "text/*" is not a media type: want one such as text/html or application/json`)
	f("{status: [429], type: text/html}", "f.yaml:2:3: pages: want a status, a type and a file in each of them, such as {status: [429], type: text/html, file: pages/429.html}")
	f("{status: [429, 503], type: text/html, file: a.html}\n- {status: [503], type: text/html; charset=utf-8, file: fits}", "f.yaml:3:3: pages: there are two of text/html; charset=utf-8 for 503: remove one")
}
