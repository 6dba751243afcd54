package lists

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/gaissmai/bart"

	"sluice/edge/address"
)

// mostErrors is how many bad lines of a list are named.
const mostErrors = 5

// parse reads a list: an address or a prefix a line, with comments behind # or ;. The error names the first bad lines.
func parse(where string, text []byte, most int) (*bart.Lite, int, error) {
	t, n, line := new(bart.Lite), 0, 0
	var errs []error
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for len(text) > 0 {
		var one []byte
		one, text, _ = bytes.Cut(text, []byte{'\n'})
		line++
		if i := bytes.IndexAny(one, "#;"); i >= 0 {
			one = one[:i]
		}
		if one = bytes.TrimSpace(one); len(one) == 0 {
			continue
		}
		if n++; n > most {
			return nil, 0, fmt.Errorf("%s:%d: more than %d entries: raise max_entries of the list, or shorten it", where, line, most)
		}
		p, err := address.ParsePrefix(string(one[:min(len(one), 100)]))
		if err == nil && p.Bits() == 0 {
			err = fmt.Errorf("%s is every address: a list has some", p)
		}
		if err != nil {
			if errs = append(errs, fmt.Errorf("%s:%d: %w", where, line, err)); len(errs) == mostErrors {
				break
			}
			continue
		}
		t.Insert(p)
	}
	if len(errs) > 0 {
		return nil, 0, errors.Join(errs...)
	}
	return t, n, nil
}

// bounded reads at most so many bytes as the list may have.
func bounded(l *list, from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(l.MaxBytes)+1))
	if err == nil && len(text) > l.MaxBytes {
		err = fmt.Errorf("%s: more than %d bytes: raise max_bytes of the list, or shorten it", l.Where(), l.MaxBytes)
	}
	return text, err
}
