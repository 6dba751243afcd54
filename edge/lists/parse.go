package lists

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/gaissmai/bart"

	"sluice/edge/address"
)

// mostErrors is how many bad lines of a list are named.
const mostErrors = 5

// parse reads a list: an address or a prefix a line, with comments behind # or ;. The error names
// the first bad lines.
func parse(l *Config, text []byte) (*bart.Lite, int, error) {
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
		if n++; n > l.MaxEntries {
			return nil, 0,
				fmt.Errorf("%s:%d: more than %d entries: raise max_entries of the list, or shorten it", l.Where(), line, l.MaxEntries)
		}
		p, err := l.entry(string(one[:min(len(one), 100)]))
		if err != nil {
			if errs = append(errs, fmt.Errorf("%s:%d: %w", l.Where(), line,
				err)); len(errs) == mostErrors {
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

// The shortest prefixes that a URL may have, so that a wrong line there does not name half of the
// internet. Where no client's address is, blocklists have shorter ones.
const (
	shortest4 = 8
	shortest6 = 16
)

var (
	noClients4 = netip.MustParsePrefix("224.0.0.0/3")
	clients6   = netip.MustParsePrefix("2000::/3")
)

// entry reads an entry. An error about one that a URL has does not quote it: operators see it who
// may not see all that the edge reaches.
func (c *Config) entry(text string) (netip.Prefix, error) {
	p, err := address.ParsePrefix(text)
	wide := p.Bits() < shortest4 && !noClients4.Contains(p.Addr())
	if p.Addr().Is6() {
		wide = p.Bits() < shortest6 && clients6.Overlaps(p)
	}
	switch {
	case err != nil && c.URL != "":
		err = errors.New("that is no address and no prefix")
	case err != nil:
	case c.URL != "" && wide:
		err = fmt.Errorf("a /%d is too wide: from a URL, want at least /%d, of IPv6 /%d; a file may have it", p.Bits(), shortest4, shortest6)
	case p.Bits() == 0:
		err = fmt.Errorf("%s is every address: a list has some", p)
	}
	return p, err
}

// bounded reads at most so many bytes as the list may have.
func bounded(l *list, from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(l.MaxBytes)+1))
	if err == nil && len(text) > l.MaxBytes {
		err = fmt.Errorf("more than %d bytes: raise max_bytes of the list, or shorten it",
			l.MaxBytes)
	}
	return text, err
}
