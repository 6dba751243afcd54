package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// A bundle is a tar archive in the making, compressed, in which all belongs to root and is of one
// time.
type bundle struct {
	buffer bytes.Buffer
	zip    *gzip.Writer
	tar    *tar.Writer
	under  string // what all names begin with
	when   time.Time
	seen   map[string]bool
	err    error
}

func newBundle(under string, when time.Time) *bundle {
	b := &bundle{under: under, when: when, seen: make(map[string]bool)}
	b.zip, b.err = gzip.NewWriterLevel(&b.buffer, gzip.BestCompression)
	b.tar = tar.NewWriter(b.zip)
	return b
}

// folder puts a folder in, after those that it is in.
func (b *bundle) folder(name string) {
	if name == "." || b.seen[name] {
		return
	}
	b.folder(path.Dir(name))
	b.seen[name] = true
	b.write(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil)
}

func (b *bundle) file(name string, mode int64, content []byte) {
	b.folder(path.Dir(name))
	b.write(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))},
		content)
}

func (b *bundle) write(h *tar.Header, content []byte) {
	if b.err != nil {
		return
	}
	h.Name = b.under + h.Name
	h.ModTime, h.Uname, h.Gname, h.Format = b.when, "root", "root", tar.FormatGNU
	if b.err = b.tar.WriteHeader(h); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

func (b *bundle) bytes() ([]byte, error) {
	err := errors.Join(b.err, b.tar.Close(), b.zip.Close())
	return b.buffer.Bytes(), err
}

// archive holds the programs, the terms of what is linked into them, what one needs to run them,
// and the documents.
func archive(folder, bin, name string, terms []byte, when time.Time) ([]byte, error) {
	b := newBundle(name+"/", when)
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		b.file(program, 0o755, content)
	}
	b.file("NOTICES", 0o644, terms)
	for _, what := range []string{"CHANGELOG.md", "CHANGELOG-0.1.md",
		"CHANGELOG-commands.md", "CHANGELOG-tools.md", "LICENSE", "README.md",
		"SECURITY.md", "deploy", "docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(folder, what), func(file string, d fs.DirEntry,
			err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			below, err := filepath.Rel(folder, file)
			b.file(filepath.ToSlash(below), mode(content), content)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return b.bytes()
}

// mode is that of a file, whatever the umask of the checkout was: scripts can be run.
func mode(content []byte) int64 {
	if bytes.HasPrefix(content, []byte("#!")) {
		return 0o755
	}
	return 0o644
}
