package compose

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"sluice/edge/regular"
)

// Bounds of what is read, so that a wrong name (a log, a device) is an error and not all memory.
const (
	maxValue  = 1 << 20  // bytes of a file whose content is a value
	maxValues = 16 << 20 // bytes of all of these together
	maxFile   = 64 << 20 // bytes of an included file
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// text is what a text stands for. Of what is put together of variables and files, a number is a
// number and true is true, with quotes or without, because they must stand in quotes within braces.
func (c *composer) text(v *ast.StringNode) ast.Node {
	value, written := c.expand(v, v.Value)
	if !written {
		return v
	}
	var n ast.Node
	switch tk := token.New(value, value, v.Token.Position); tk.Type {
	case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType:
		n = ast.Integer(tk)
	case token.FloatType:
		n = ast.Float(tk)
	case token.BoolType:
		n = ast.Bool(tk)
	default:
		s := *v
		s.Value = value
		n = &s
	}
	if as, from := c.tree.FromFile[v]; from {
		c.tree.FromFile[n] = as
	}
	return n
}

// expand returns a text with what its references stand for, and whether it has any. What a variable
// says is not looked through for more.
func (c *composer) expand(n ast.Node, text string) (_ string, written bool) {
	if !strings.Contains(text, "${") {
		return text, false
	}
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "${")
		if !found {
			b.WriteString(rest)
			return b.String(), true
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			b.WriteString(literal + "${")
			rest = after
			continue
		}
		b.WriteString(before)
		inner, behind, closed := strings.Cut(after, "}")
		if !closed {
			line, _, _ := strings.Cut(after, "\n")
			c.fail(n,
				"${%s has no closing brace: write ${NAME}, or $${ for the two characters themselves", line)
			return text, true
		}
		value, err := c.value(n, text, inner)
		if err != nil {
			c.fail(n, "${%s}: %v", inner, err)
		}
		b.WriteString(value)
		rest = behind
	}
}

// value is what ${inner} stands for in a text.
func (c *composer) value(n ast.Node, text, inner string) (string, error) {
	if name, is := strings.CutPrefix(inner, "file:"); is {
		return c.content(n, text, name)
	}
	name, standard, optional := strings.Cut(inner, ":-")
	if !variable.MatchString(name) {
		return "",
			errors.New("that is no name of a variable: want ${NAME}, ${NAME:-DEFAULT} or ${file:PATH}; $${ stands for the two characters themselves")
	}
	value, set := "", false
	if c.options.Env != nil {
		value, set = c.options.Env(name)
	}
	switch {
	case optional && value == "":
		return standard, nil
	case !set:
		return "",
			fmt.Errorf("the environment has no %s: set it, or give a default, ${%s:-DEFAULT}", name,
				name)
	}
	return value, nil
}

// content is that of a file that a text names, without its last newline.
func (c *composer) content(n ast.Node, text, name string) (string, error) {
	if name == "" {
		return "", errors.New("no file is named: want ${file:PATH}")
	}
	path := beside(c.file, name)
	content, err := readFile(path, maxValue)
	c.options.Files.add(path, maxValue, content, err)
	if err != nil {
		return "", fmt.Errorf("%w: give the path of a readable file; it begins in the folder of %s",
			err, c.file)
	}
	if c.contents += len(content); c.contents > maxValues {
		return "",
			fmt.Errorf("the files of this configuration that are named so have more than %d bytes together: have fewer of them, or smaller ones", maxValues)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if c.tree.FromFile == nil {
		c.tree.FromFile = make(map[ast.Node]string)
	}
	c.tree.FromFile[n] = text
	c.tree.Secrets = append(c.tree.Secrets, Secret{value, "${file:" + name + "}"})
	return value, nil
}

// beside is a path that begins in the folder of a file.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// readFile reads a regular file that is not too large.
func readFile(path string, most int64) ([]byte, error) {
	text, err := regular.Read(path, most)
	return text, reason(err)
}

// reason is an error without the path, which is named beside it.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
