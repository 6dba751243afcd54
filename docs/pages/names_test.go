package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// source is a Go file of the module, parsed with its comments.
type source struct {
	path, dir string // from the module's folder
	file      *ast.File
}

func sources(t *testing.T) (all []source) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		rel := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		all = append(all, source{rel, filepath.ToSlash(filepath.Dir(rel)), file})
		return err
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

// declared adds the names that a file declares at its top level, with those of fields and methods.
func declared(file *ast.File, to map[string]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			to[n.Name.Name] = true
			return false
		case *ast.TypeSpec:
			to[n.Name.Name] = true
		case *ast.Field:
			for _, name := range n.Names {
				to[name.Name] = true
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				to[name.Name] = true
			}
		}
		return true
	})
}

// What a comment names is there: a file by its name, in the same folder or by its path, and what another
// package of this module exports, or a type of the same one has.
func TestNamesInComments(t *testing.T) {
	all := sources(t)
	byDir := map[string]map[string]bool{}
	for _, s := range all {
		if byDir[s.dir] == nil {
			byDir[s.dir] = map[string]bool{}
		}
		declared(s.file, byDir[s.dir])
	}
	names := regexp.MustCompile(`(?:^|[^\w./"'-])(\w+)\.([A-Z]\w+)`)
	files := regexp.MustCompile(`[\w./-]*\w\.go\b`)
	seen := 0
	for _, s := range all {
		imported := map[string]string{}
		for _, i := range s.file.Imports {
			if dir, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "sluice/"); ours {
				imported[dir[strings.LastIndex(dir, "/")+1:]] = dir
			}
		}
		for _, group := range s.file.Comments {
			for _, m := range names.FindAllStringSubmatch(group.Text(), -1) {
				dir, in := imported[m[1]]
				if !in && byDir[s.dir][m[1]] && m[1] != strings.ToLower(m[1]) {
					dir, in = s.dir, true
				}
				if seen++; in && byDir[dir] != nil && !byDir[dir][m[2]] {
					t.Errorf("%s: a comment names %s.%s, which is not there", s.path, m[1], m[2])
				}
			}
			for _, name := range files.FindAllString(group.Text(), -1) {
				seen++
				if _, err := os.Stat(filepath.Join("../..", s.dir, name)); err == nil {
					continue
				}
				if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
					t.Errorf("%s: a comment names %s, which is not there", s.path, name)
				}
			}
		}
	}
	if seen < 300 {
		t.Errorf("%d names were seen", seen)
	}
}
