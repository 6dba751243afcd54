package importer

import (
	"fmt"
	"regexp"
	"strings"
)

// A directive of nginx, with what stands within its braces.
type directive struct {
	at     Position
	words  []string
	within []directive
	block  bool
	// Of a block in another language, such as Lua: it is passed over
	program string
}

func (d *directive) name() string {
	if len(d.words) == 0 {
		return "" // of the whole file
	}
	return d.words[0]
}
func (d *directive) String() string { return strings.Join(d.words, " ") }

// lexer reads nginx's words: plain, or in quotes, with comments left out.
type lexer struct {
	file string // "": the one that is imported
	text string
	line int
}

func (l *lexer) at() Position { return Position{l.file, l.line} }

// next is a word, or one of { } ; alone; "" is the end. Quoted says that it stood in quotes.
func (l *lexer) next() (word string, quoted bool, err error) {
	for l.text != "" {
		switch c := l.text[0]; c {
		case '\n':
			l.line++
			fallthrough
		case ' ', '\t', '\r':
			l.text = l.text[1:]
		case '#':
			_, rest, _ := strings.Cut(l.text, "\n")
			l.text = rest
			l.line++
		case '{', '}', ';':
			l.text = l.text[1:]
			return string(c), false, nil
		case '"', '\'':
			var b strings.Builder
			for i := 1; i < len(l.text); i++ {
				switch l.text[i] {
				case '\\':
					if i+1 < len(l.text) && (l.text[i+1] == c || l.text[i+1] == '\\') {
						i++
					}
				case c:
					l.text = l.text[i+1:]
					return b.String(), true, nil
				case '\n':
					l.line++
				}
				b.WriteByte(l.text[i])
			}
			return "", false, fmt.Errorf("%v: a quote has no end", l.at())
		default:
			end := 0
			for end < len(l.text) && !strings.ContainsRune(" \t\r\n;{", rune(l.text[end])) {
				switch {
				case l.text[end] == '\\' && end+1 < len(l.text):
					end++
				case l.text[end] == '$' && strings.HasPrefix(l.text[end:], "${"):
					if n := strings.IndexByte(l.text[end:], '}'); n > 0 {
						end += n
					}
				}
				end++
			}
			word, l.text = l.text[:end], l.text[end:]
			return word, false, nil
		}
	}
	return "", false, nil
}

const maxDepth = 50

// directives reads those of a block, or of the file.
func (l *lexer) directives(depth int) (list []directive, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%v: blocks within blocks, more than %d deep", l.at(), maxDepth)
	}
	var d directive
	for {
		word, quoted, err := l.next()
		switch {
		case err != nil:
			return nil, err
		case word == "" && !quoted:
			if depth > 0 || len(d.words) > 0 {
				return nil,
					fmt.Errorf("%v: the file ends within a block or a directive: is it nginx's?",
						l.at())
			}
			return list, nil
		case quoted || word != ";" && word != "{" && word != "}":
			if d.words = append(d.words, word); len(d.words) == 1 {
				d.at = l.at()
			}
			continue
		case word == "}" && depth > 0 && len(d.words) == 0:
			return list, nil
		case len(d.words) == 0 || word == "}":
			return nil, fmt.Errorf("%v: %q has no directive before it: is this a file of nginx?",
				l.at(), word)
		case word == "{":
			d.block = true
			if strings.HasSuffix(d.name(), "_by_lua_block") {
				if d.program, err = l.lua(); err != nil {
					return nil, err
				}
				break
			}
			if d.within, err = l.directives(depth + 1); err != nil {
				return nil, err
			}
		}
		list = append(list, d)
		d = directive{}
	}
}

// lua passes over a program, to the brace that ends its block. Braces in its strings and comments
// are none.
func (l *lexer) lua() (program string, err error) {
	begin, text := l.at(), l.text
	pass := func(n int) {
		l.line += strings.Count(l.text[:n], "\n")
		l.text = l.text[n:]
	}
	for depth := 1; l.text != ""; {
		n := 1
		if open := luaLong.FindString(l.text); open != "" { // [[ ]], --[==[ ]==]
			closed := strings.ReplaceAll(strings.TrimPrefix(open, "--"), "[", "]")
			if n = strings.Index(l.text, closed); n >= 0 {
				n += len(closed)
			}
		} else if strings.HasPrefix(l.text, "--") {
			n = strings.IndexByte(l.text, '\n')
		} else {
			switch c := l.text[0]; c {
			case '"', '\'':
				for n < len(l.text) && l.text[n] != c && l.text[n] != '\n' {
					if l.text[n] == '\\' {
						n++
					}
					n++
				}
				n++
			case '{':
				depth++
			case '}':
				depth--
			}
		}
		if n < 0 || n > len(l.text) {
			break
		}
		if pass(n); depth == 0 {
			return text[:len(text)-len(l.text)-1], nil
		}
	}
	return "", fmt.Errorf("%v: the program that begins here has no end", begin)
}

// luaLong is the beginning of a string or a comment of several lines.
var luaLong = regexp.MustCompile(`^(?:--)?\[=*\[`)
