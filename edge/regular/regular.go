// Package regular opens files that operators name, where only a regular file makes sense. By
// mistake a name may lead elsewhere: to a pipe, whose reader waits for a writer that may never
// come, or to a device or a log without end.
package regular

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

var (
	errFolder = errors.New("that is a folder")
	errOther  = errors.New("that is no regular file")
)

// Open opens a regular file for reading, and waits for nobody. Errors are *fs.PathError.
func Open(name string) (*os.File, fs.FileInfo, error) {
	// What is open is looked at, and not what has the name: that may be another by then. A pipe
	// opened so waits for no writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: errOther}
	}
	if err != nil {
		return nil, nil, err
	}
	about, err := f.Stat()
	switch {
	case err != nil:
	case about.IsDir():
		err = &fs.PathError{Op: "open", Path: name, Err: errFolder}
	case !about.Mode().IsRegular():
		err = &fs.PathError{Op: "open", Path: name, Err: errOther}
	default:
		return f, about, nil
	}
	f.Close()
	return nil, nil, err
}

// Read reads a regular file of at most so many bytes. Errors are *fs.PathError.
func Read(name string, most int64) ([]byte, error) {
	f, about, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := bytes.NewBuffer(make([]byte, 0, min(about.Size(), most)+bytes.MinRead))
	_, err = text.ReadFrom(io.LimitReader(f, most+1)) // it may be longer by now
	if err == nil && int64(text.Len()) > most {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes",
			most)}
	}
	if err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// TryWrite returns why a file cannot be appended to, or made; nil: it can. Errors are *fs.PathError.
func TryWrite(file string) error {
	if info, err := os.Stat(file); err == nil {
		if info.IsDir() {
			return &fs.PathError{Op: Writing, Path: file, Err: syscall.EISDIR}
		}
		return Access(file, MayWrite)
	}
	return Access(filepath.Dir(file), MayWrite|MaySearch)
}

// Arguments of Access, and what its errors say is being done.
const (
	Writing   = "write"
	MaySearch = 1
	MayWrite  = 2
)

// Access returns why this process may not use a file or a folder so (access(2)).
func Access(path string, how uint32) error {
	if err := syscall.Access(path, how); err != nil {
		return &fs.PathError{Op: Writing, Path: path, Err: err}
	}
	return nil
}
