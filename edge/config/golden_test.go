package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/edge/config/compose"
	"sluice/edge/edgetest/golden"
)

// What is wrong with configurations, and where: wrong.txt has what people get wrong, fields.txt a
// wrong value of each field and an unknown field in each block.
func TestWrongConfigurations(t *testing.T) {
	for name, least := range map[string]int{"wrong.txt": 300, "fields.txt": 200} {
		t.Run(name, func(t *testing.T) {
			cases := 0
			golden.Cases(t, name, func(t *testing.T, d *datadriven.TestData) string {
				cases++
				wrong := wrongWith(t, d.Input)
				if wrong == nil {
					t.Errorf("%s: nothing is wrong with\n%s", d.Pos, d.Input)
					return ""
				}
				return wrong.Error()
			})
			if cases < least {
				t.Errorf("%d cases", cases)
			}
		})
	}
}

// begins is the line before each of several files.
var begins = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// wrongWith is what is wrong with f.yaml, or with the first of several files, each behind a line
// with its name. SET is in the environment.
func wrongWith(t *testing.T, text string) error {
	t.Helper()
	name, text := "f.yaml", text+"\n"
	if at := begins.FindAllStringSubmatchIndex(text, -1); at != nil {
		t.Chdir(t.TempDir())
		all := text
		for i, a := range at {
			end := len(all)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			file, content := all[a[2]:a[3]], all[a[1]:end]
			if i == 0 {
				name, text = file, content
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var read *compose.Files
	if name != "f.yaml" {
		read = new(compose.Files)
	}
	env := func(name string) (string, bool) { return "set", name == "SET" }
	c, err := Parser{Files: read, Env: env, Modules: reading.Modules}.Parse(name, []byte(text))
	if read != nil && read.Text() != read.Now() {
		t.Errorf("read again, nothing has changed, and it is %q, not %q", read.Now(), read.Text())
	}
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
