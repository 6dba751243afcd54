package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// lineMax is how much of a line is looked at. Who and when stand at its beginning, so the rest of a longer one is not missed.
const lineMax = 64 << 10

// parser reads a line into r, which it finds zero. It returns why the line gives no request, or "".
type parser func(line []byte, r *record) (skipped string)

// file reads one file into g.
func (g *builder) file(index int32, name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			return path.Err // the caller names the file
		}
		return err
	}
	defer f.Close()

	var in io.Reader = f
	base := strings.ToLower(filepath.Base(name))
	if trimmed, ok := strings.CutSuffix(base, ".gz"); ok {
		base = trimmed
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 256<<10))
		if err != nil {
			return fmt.Errorf("it ends in .gz, but %w", err)
		}
		in = z
	}
	g.file32, g.name = index, filepath.Base(name)
	g.seed = Mix(g.options.Seed) ^ Hash(g.name)

	var parse parser
	switch filepath.Ext(base) {
	case ".jsonl", ".ndjson":
		parse = parseJSON
	case ".csv":
		parse = new(csvParser).parse
	default:
		parse = new(logParser).parse
	}
	return g.lines(in, parse)
}

// logParser reads access logs of whatever name, for rotated ones are called all kinds of things: lines that are JSON objects,
// and any others.
type logParser struct{ clfParser }

func (p *logParser) parse(line []byte, r *record) string {
	if line[0] == '{' {
		return parseJSON(line, r)
	}
	return p.clfParser.parse(line, r)
}

// lines feeds g the lines of in.
func (g *builder) lines(in io.Reader, parse parser) error {
	b := bufio.NewReaderSize(in, lineMax)
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
