package nginx

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sluice/edge/modules/importer/limit"
)

const (
	maxIncluded = 1000
	maxNested   = 20 // files within files
)

var (
	// fileMark is what nginx -T prints before each file.
	fileMark = regexp.MustCompile(`(?m)^# configuration file (.+):\r?$\n?`)
	// ofPrint is how a print begins: before it is nothing but what nginx says on standard error.
	ofPrint = regexp.MustCompile(`^(?:\s|nginx:.*\n|.*\[warn\].*\n)*# configuration file .+:\s`)
)

// nginxFiles reads a file, with what it includes in its place. What nginx -T prints has all files
// one after the other, each behind its name, so a server that an http block includes stands outside
// of it there.
func readFiles(r *limit.Result, text string) ([]directive, error) {
	first := limit.File{Text: []byte(text)}
	if files := printed(text); len(files) > 0 {
		first, r.Open = files[0], openPrinted(files)
	}
	return (&lexer{Result: r, included: new(int)}).file(first)
}

// printed are the files that nginx -T prints; none: the text is no such print.
func printed(text string) (files []limit.File) {
	if !ofPrint.MatchString(text) {
		return nil
	}
	marks := fileMark.FindAllStringSubmatchIndex(text, -1)
	for i, m := range marks {
		name, end := text[m[2]:m[3]], len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		if !slices.ContainsFunc(files, func(f limit.File) bool { return f.Name == name }) {
			files = append(files, limit.File{Name: name, Text: []byte(text[m[1]:end])})
		}
	}
	return files
}

// openPrinted opens files of those that were printed, by names relative to the first one's folder.
func openPrinted(printed []limit.File) limit.Open {
	return func(pattern string) (files []limit.File, err error) {
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

// file reads one that is included, or the first.
func (l *lexer) file(f limit.File) ([]directive, error) {
	files := append(l.files[:len(l.files):len(l.files)], f.Name)
	inner := &lexer{l.Result, l.included, files, string(f.Text), 1}
	return inner.directives(0)
}

// include reads what stands in the place of a directive.
func (l *lexer) include(d directive) (all []directive, err error) {
	var files []limit.File
	switch {
	case path.Base(d.words[1]) == "mime.types": // it has no limits
		return nil, nil
	case len(l.files) > maxNested:
		return nil, fmt.Errorf("%v: files within files, more than %d deep", d.at, maxNested)
	case l.Open == nil:
		err = errors.New("import what nginx -T prints, which has all files in one")
	default:
		files, err = l.Open(d.words[1])
	}
	if err != nil {
		l.Note(d.at, "%s is not read: %v", d.String(), err)
	}
	for _, f := range files {
		if *l.included++; *l.included > maxIncluded {
			return nil, fmt.Errorf("%v: more than %d files are included", d.at, maxIncluded)
		}
		if slices.Contains(l.files, f.Name) {
			return nil, fmt.Errorf("%v: %s includes itself", d.at, f.Name)
		}
		within, err := l.file(f)
		if err != nil {
			return nil, err
		}
		all = append(all, within...)
	}
	return all, nil
}
