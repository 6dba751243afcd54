package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// lineMax is how much of a line is looked at. Who and when stand at its beginning, so the rest of a
// longer one is not missed.
const lineMax = 64 << 10

// parser reads a line into r, which it finds zero. It returns why the line gives no request, or "".
type parser func(line []byte, r *record) (skipped string)

// file reads one file into g.
func (g *builder) file(index int32, name string) (err error) {
	in, end, err := open(name)
	if err != nil {
		return err
	}
	defer end()
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".gz")
	g.file32, g.name = index, filepath.Base(name)
	g.seed = Mix(g.options.Seed) ^ Hash(g.name)

	buffered := bufio.NewReaderSize(in, lineMax)
	head, err := buffered.Peek(lineMax)
	if err != nil && err != io.EOF {
		head = nil // what was read before is read again, up to the error
	}
	f, wrapped, err := formatOf(&g.options, filepath.Ext(base), head)
	if err != nil {
		return err
	}
	parse, title := f.make(&g.options), f.title
	if wrapped {
		parse, title = unwrapped(parse), cmp.Or(title, "access log")+", in JSON of what carried it"
	}
	t := g.trace
	lines, before, requests, forms := t.Lines, maps.Clone(t.Skipped), len(t.Requests), g.forms
	clear(g.examples)
	if err := g.lines(buffered, parse); err != nil {
		return err
	}
	lines = t.Lines - lines
	for f := range g.forms {
		if n := g.forms[f] - forms[f]; f > 0 && n > 0 && title == "" {
			t.ReadAs = append(t.ReadAs, fmt.Sprintf("%v, %d of %d lines", form(f), n, lines))
		}
	}
	skipped := make(map[string]int)
	unread, read := 0, lines
	for reason, n := range t.Skipped {
		if n -= before[reason]; n > 0 {
			skipped[reason] = n
			if reason != SkippedRange && reason != SkippedSample {
				read -= n
			}
			if isUnread(reason) {
				unread += n
			}
		}
	}
	if title != "" {
		t.ReadAs = append(t.ReadAs, fmt.Sprintf("%s, %d of %d lines", title, read, lines))
	}
	if why := g.why(skipped); why != "" {
		t.Unread = append(t.Unread, strings.TrimPrefix(why, ": "))
	}
	if unread*100 <= lines || g.options.Skip {
		return nil
	}
	if len(t.Requests) == requests && skipped[SkippedRange] == 0 {
		return fmt.Errorf("none of its %d lines is a request (%s)%s: %s", lines,
			SkippedText(skipped), g.why(skipped), g.wanted(skipped))
	}
	return fmt.Errorf("%d of %d lines are no requests, and more than 1 %% is an error (%s)%s: %s; or --skip leaves such lines out",
		unread, lines, SkippedText(skipped), g.why(skipped), g.wanted(skipped))
}

// isUnread reports whether lines that were skipped for this reason may have been requests.
func isUnread(reason string) bool {
	switch reason {
	case SkippedSource, SkippedClient, SkippedTime, SkippedSyntax:
		return true
	}
	return false
}

// wanted says what Read knows, for who has lines such as the one that why shows.
func (g *builder) wanted(skipped map[string]int) string {
	for _, reason := range byFrequency(skipped) {
		if e, ok := g.examples[reason]; ok && isUnread(reason) {
			return wanted(e.whole)
		}
	}
	return wanted("")
}

// why shows the first line that gave no request, for the reason that most have.
func (g *builder) why(skipped map[string]int) string {
	for _, reason := range byFrequency(skipped) {
		if e, ok := g.examples[reason]; ok && isUnread(reason) {
			return fmt.Sprintf(": %v: %s", e, reason)
		}
	}
	return ""
}

// open opens a file, and takes it out of its gzip. The caller names the file in errors, and calls
// end.
func open(name string) (in io.Reader, end func() error, err error) {
	f, err := os.Open(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, err
	}
	if !strings.HasSuffix(strings.ToLower(name), ".gz") {
		return f, f.Close, nil
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("it ends in .gz, but %w", err)
	}
	return z, f.Close, nil
}

// Digest is the SHA-256 of a log, uncompressed, in hexadecimal: by it others know whether they
// measure the same.
func Digest(name string) (string, error) {
	in, end, err := open(name)
	if err == nil {
		defer end()
		h := sha256.New()
		if _, err = io.Copy(h, in); err == nil {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
	}
	return "", fmt.Errorf("loadgen: digest of %s: %w", name, err)
}

// logParser reads access logs of whatever name, for rotated ones are called all kinds of things:
// lines that are JSON objects, and any others.
type logParser struct{ clfParser }

func (p *logParser) parse(line []byte, r *record) string {
	if line[0] == '{' {
		return parseJSON(line, r)
	}
	return p.clfParser.parse(line, r)
}

// lines feeds g the lines of b.
func (g *builder) lines(b *bufio.Reader, parse parser) error {
	n := 0
	for {
		line, err := b.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull && len(line) == 0 {
			break
		}
		n++
		g.trace.Lines++
		skipped, failed := g.line(line, n, parse)
		if failed != nil {
			return failed
		}
		if skipped != "" {
			g.trace.Skipped[skipped]++
			g.example(skipped, line, n)
		}
		for err == bufio.ErrBufferFull {
			_, err = b.ReadSlice('\n')
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if _, err := b.ReadByte(); err != nil && err != io.EOF {
		return fmt.Errorf("after line %d: %w", n, err)
	}
	return nil
}

// example is a line that gave no request.
type example struct {
	number int
	text   string
	whole  string
}

func (e example) String() string { return fmt.Sprintf("line %d: %q", e.number, e.text) }

// exampleMax is how much of such a line is kept.
const exampleMax = 160

// example keeps the first line that gave no request for a reason, to show it in an error.
func (g *builder) example(skipped string, line []byte, n int) {
	if _, is := g.examples[skipped]; !is {
		g.examples[skipped] = example{n,
			strings.TrimSpace(string(line[:min(len(line), exampleMax)])),
			strings.TrimSpace(string(line))}
	}
}

func (g *builder) line(line []byte, n int, parse parser) (skipped string, err error) {
	if n == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return SkippedEmpty, nil
	}
	var r record
	if skipped := parse(line, &r); skipped != "" {
		return skipped, nil
	}
	return g.add(&r, n)
}
