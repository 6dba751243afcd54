package importer

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// includes are the files of a configuration, of which some include others.
type includes struct {
	*Result
	open Open
	read int
}

const (
	maxIncluded = 1000
	maxNested   = 20 // files within files
)

// fileMark is what nginx -T prints before each file.
var fileMark = regexp.MustCompile(`(?m)^# configuration file (.+):\r?$\n?`)

// nginxFiles reads a file, with what it includes in its place. What nginx -T prints has all files
// one after the other, each behind its name, so a server that an http block includes stands outside
// of it there.
func (r *Result) nginxFiles(text string) ([]directive, error) {
	first, in := File{Text: []byte(text)}, &includes{Result: r, open: r.open}
	if files := printed(text); len(files) > 0 {
		first, in.open = files[0], openPrinted(files)
	}
	return in.directives(first, nil)
}

// printed are the files that nginx -T prints; none: the text is no such print.
func printed(text string) (files []File) {
	marks := fileMark.FindAllStringSubmatchIndex(text, -1)
	if len(marks) == 0 || !isPreamble(text[:marks[0][0]]) {
		return nil
	}
	for i, m := range marks {
		name, end := text[m[2]:m[3]], len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			files = append(files, File{Name: name, Text: []byte(text[m[1]:end])})
		}
	}
	return files
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

// openPrinted opens files of those that were printed, by names relative to the first one's folder.
func openPrinted(printed []File) Open {
	return func(pattern string) (files []File, err error) {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(printed[0].Name), pattern)
		}
		for _, f := range printed {
			if is, err := path.Match(pattern, f.Name); err != nil {
				return nil, err
			} else if is {
				files = append(files, f)
			}
		}
		if len(files) == 0 && !strings.ContainsAny(pattern, "*?[") {
			err = errors.New("it is not in what was printed")
		}
		return files, err
	}
}

// directives are those of a file; above are the names of the files that include it.
func (in *includes) directives(f File, above []string) ([]directive, error) {
	l := &lexer{file: f.Name, text: string(f.Text), line: 1}
	list, err := l.directives(0)
	if err != nil {
		return nil, err
	}
	return in.expand(list, append(above[:len(above):len(above)], f.Name))
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
		var files []File
		switch {
		case path.Base(d.words[1]) == "mime.types": // it has no limits
			continue
		case len(above) > maxNested:
			return nil, fmt.Errorf("%v: files within files, more than %d deep", d.at, maxNested)
		case in.open == nil:
			err = errors.New("import what nginx -T prints, which has all files in one")
		default:
			files, err = in.open(d.words[1])
		}
		if err != nil {
			in.note(d.at, "%s is not read: %v", d.String(), err)
		}
		for _, f := range files {
			if in.read++; in.read > maxIncluded {
				return nil, fmt.Errorf("%v: more than %d files are included", d.at, maxIncluded)
			}
			if slices.Contains(above, f.Name) {
				return nil, fmt.Errorf("%v: %s includes itself", d.at, f.Name)
			}
			within, err := in.directives(f, above)
			if err != nil {
				return nil, err
			}
			all = append(all, within...)
		}
	}
	return all, nil
}
