package compose

import (
	"os"
	"strings"
)

// Files are those that a configuration was read from, with what they said then. The zero Files are
// none.
type Files struct{ list []source }

// A source is one of them.
type source struct {
	name string
	most int64  // it was read up to so many bytes; 0: it is a pattern
	text string // what it said, or the files that the pattern matched
}

// main, the configuration itself, may be a pipe, and of any size.
const main = -1

func (f *Files) add(name string, most int64, text []byte, err error) {
	if f != nil {
		f.list = append(f.list, source{name, most, said(text, err)})
	}
}

func (f *Files) addPattern(pattern string, list []string) {
	if f != nil {
		f.list = append(f.list, source{pattern, 0, strings.Join(list, "\x00")})
	}
}

// Unread says that the configuration itself cannot be read.
func (f *Files) Unread(name string, err error) { f.add(name, main, nil, err) }

func said(text []byte, err error) string {
	if err != nil {
		return "\x00" + err.Error()
	}
	return string(text)
}

// Text is what all of them said when they were read.
func (f *Files) Text() string { return together(f.list) }

// Now is what Text would be if they were read again. It parses nothing: that a file is included
// that was not is seen as a change of the file that says so, or of what a pattern matches.
func (f *Files) Now() string {
	list := make([]source, len(f.list))
	for i, s := range f.list {
		switch s.most {
		case 0:
			matches, _ := matching(s.name)
			s.text = strings.Join(matches, "\x00")
		case main:
			s.text = said(os.ReadFile(s.name))
		default:
			s.text = said(readFile(s.name, s.most))
		}
		list[i] = s
	}
	return together(list)
}

func together(list []source) string {
	if len(list) == 1 {
		return list[0].text
	}
	var b strings.Builder
	for _, s := range list {
		b.WriteString(s.text)
		b.WriteString("\x00\x00")
	}
	return b.String()
}
