// Command statements counts the statements of product code, package by package: go run
// .ci/statements.go [REVISION]. With a revision it prints those of that one beside those of the
// working tree. Tests do not count, nor do blocks, which are no statements of their own.
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	now, then := make(map[string]int), make(map[string]int)
	check(filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text := func() ([]byte, error) { return os.ReadFile(name) }
		return count(now, filepath.ToSlash(name), text)
	}))
	if len(os.Args) > 1 {
		archive, err := exec.Command("git", "archive", os.Args[1]).Output()
		check(err)
		files := tar.NewReader(bytes.NewReader(archive))
		for {
			h, err := files.Next()
			if err == io.EOF {
				break
			}
			check(err)
			check(count(then, h.Name, func() ([]byte, error) { return io.ReadAll(files) }))
		}
	}
	packages := maps.Clone(now)
	maps.Copy(packages, then)
	before, after := 0, 0
	for _, p := range slices.Sorted(maps.Keys(packages)) {
		fmt.Printf("%-28s %6d %6d %+6d\n", p, then[p], now[p], now[p]-then[p])
		before, after = before+then[p], after+now[p]
	}
	fmt.Printf("%-28s %6d %6d %+6d\n", "all", before, after, after-before)
}

// count adds the statements of a file to its folder's.
func count(to map[string]int, name string, text func() ([]byte, error)) error {
	if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
		strings.HasPrefix(name, ".") || strings.HasPrefix(name, "docs/") {
		return nil
	}
	src, err := text()
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.BlockStmt, *ast.EmptyStmt:
		case ast.Stmt:
			to[path.Dir(name)]++
		}
		return true
	})
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "statements:", err)
		os.Exit(1)
	}
}
