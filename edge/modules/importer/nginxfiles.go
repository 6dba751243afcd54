package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// includes are the files of a configuration, of which some include others.
type includes struct {
	*Result
	folder string          // of the first one, which names are relative to
	dumped map[string]File // what nginx -T prints, by their names; nil: it is no such print
	names  []string        // of these, in its order
	read   int
}

const (
	maxIncluded = 1000
	maxNested   = 20 // files within files
)

// fileMark is what nginx -T prints before each file.
var fileMark = regexp.MustCompile(`(?m)^# configuration file (.+):\r?$`)

// nginxFiles reads a file, with what it includes in its place. What nginx -T prints has all files
// one after the other, each behind its name, so a server that an http block includes stands outside
// of it there.
func (r *Result) nginxFiles(text string) ([]directive, error) {
	in := &includes{Result: r}
	marks := fileMark.FindAllStringSubmatchIndex(text, -1)
	if len(marks) == 0 || !isPreamble(text[:marks[0][0]]) {
		return in.directives("", text, nil)
	}
	in.dumped = make(map[string]File)
	for i, m := range marks {
		name, end := text[m[2]:m[3]], len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		body := strings.TrimPrefix(text[m[1]:end], "\n")
		if _, again := in.dumped[name]; !again {
			in.dumped[name] = File{Name: name, Text: []byte(body)}
			in.names = append(in.names, name)
		}
	}
	first := in.names[0]
	in.folder = path.Dir(first)
	return in.directives(first, string(in.dumped[first].Text), []string{first})
}

// isPreamble reports whether there is nothing but what nginx says on standard error.
func isPreamble(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "nginx:") &&
			!strings.Contains(line, "[warn]") {
			return false
		}
	}
	return true
}

// directives are those of a file; above are the files that include it.
func (in *includes) directives(file, text string, above []string) ([]directive, error) {
	l := &lexer{file: file, text: text, line: 1}
	list, err := l.directives(0)
	if err != nil {
		return nil, err
	}
	return in.expand(list, above)
}

// expand puts what is included in the place of each include.
func (in *includes) expand(list []directive, above []string) (all []directive, err error) {
	for _, d := range list {
		if d.block {
			if d.within, err = in.expand(d.within, above); err != nil {
				return nil, err
			}
		}
		if d.block || d.name() != "include" || len(d.words) != 2 {
			all = append(all, d)
			continue
		}
		files, err := in.find(d.words[1])
		switch {
		case err != nil:
			in.note(d.at, "%s is not read: %v", d.String(), err)
		case len(above) >= maxNested:
			return nil, fmt.Errorf("%v: files within files, more than %d deep", d.at, maxNested)
		}
		for _, f := range files {
			if in.read++; in.read > maxIncluded {
				return nil, fmt.Errorf("%v: more than %d files are included", d.at, maxIncluded)
			}
			if slices.Contains(above, f.Name) {
				return nil, fmt.Errorf("%v: %s includes itself", d.at, f.Name)
			}
			within, err := in.directives(f.Name, string(f.Text),
				append(above[:len(above):len(above)], f.Name))
			if err != nil {
				return nil, err
			}
			all = append(all, within...)
		}
	}
	return all, nil
}

// find returns the files that an include names.
func (in *includes) find(pattern string) (files []File, err error) {
	if path.Base(pattern) == "mime.types" {
		return nil, nil // it has no limits
	}
	if in.dumped == nil {
		if in.open == nil {
			return nil, fmt.Errorf("import what nginx -T prints, which has all files in one")
		}
		return in.open(pattern)
	}
	if !path.IsAbs(pattern) {
		pattern = path.Join(in.folder, pattern)
	}
	for _, name := range in.names {
		if is, err := path.Match(pattern, name); err != nil {
			return nil, err
		} else if is {
			files = append(files, in.dumped[name])
		}
	}
	if len(files) == 0 && !strings.ContainsAny(pattern, "*?[") {
		err = fmt.Errorf("it is not in what was printed")
	}
	return files, err
}
