package lists

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gaissmai/bart"

	"sluice/edge/address"
)

// A reading is a list while it is read. One error says what is wrong with the whole list: where it
// begins, how often it is so, and what the list seems to be.
type reading struct {
	*Config
	table *bart.Lite
	n     int    // entries, good and bad
	bad   int    // of these
	first error  // what is wrong with the first of these
	line  string // which says that
	verb  string // of nginx: deny, or allow; "": there was none yet
}

// parse reads a list in one of the forms that lists have: an address, prefix or range a line, alone
// or as nginx and ipset say it; JSON; or a column of CSV.
func parse(l *Config, text []byte) (*bart.Lite, int, error) {
	r := &reading{Config: l, table: new(bart.Lite)}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	begin := bytes.TrimSpace(text)
	var err error
	switch {
	case l.Column != "":
		err = r.columns(text)
	case len(begin) > 0 && (begin[0] == '{' || begin[0] == '[' && !isAddress(begin)):
		err = r.json(text)
	default:
		err = r.lines(text)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case r.bad > 0:
		err = r.first
		if r.bad > 1 {
			err = fmt.Errorf("%w; %d of %s are not", err, r.bad, Entries(r.n))
		}
		if form := seems(begin, r.line); form != "" {
			err = fmt.Errorf("%w: %s", err, form)
		}
		return nil, 0, err
	}
	return r.table, r.n, nil
}

// isAddress reports whether a text begins with an address in brackets, and not as JSON.
func isAddress(text []byte) bool {
	in, _, closed := bytes.Cut(text[1:], []byte{']'})
	_, err := netip.ParseAddr(string(in[:min(len(in), 50)]))
	return closed && err == nil
}

// add takes an entry: an address, a prefix, or a range of addresses.
func (r *reading) add(at, text, line string) error {
	if r.n++; r.n > r.MaxEntries {
		return fmt.Errorf("%s:%s: more than %d entries: raise max_entries of the list, or shorten it",
			r.Where(), at, r.MaxEntries)
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange || from == "" || to == "" {
		p, err := r.entry(text)
		if err != nil {
			r.fail(at, line, err)
			return nil
		}
		r.table.Insert(p)
		return nil
	}
	all, err := between(strings.TrimSpace(from), strings.TrimSpace(to))
	if err != nil && r.URL != "" {
		err = errNone
	}
	for _, p := range all {
		if err = r.check(p); err != nil {
			break
		}
	}
	if err != nil {
		r.fail(at, line, err)
		return nil
	}
	for _, p := range all {
		r.table.Insert(p)
	}
	return nil
}

func (r *reading) fail(at, line string, err error) {
	if r.bad++; r.first == nil {
		r.first, r.line = fmt.Errorf("%s:%s: %w", r.Where(), at, err), line
	}
}

// lines reads an entry a line, with comments behind # or ;.
func (r *reading) lines(text []byte) error {
	for n := 1; len(text) > 0; n++ {
		var one []byte
		one, text, _ = bytes.Cut(text, []byte{'\n'})
		whole := one
		if i := bytes.IndexAny(one, "#;"); i >= 0 {
			one = one[:i]
		}
		if one = bytes.TrimSpace(one); len(one) == 0 {
			continue
		}
		entry := string(one[:min(len(one), 200)])
		if strings.ContainsAny(entry, " \t") {
			var skip bool
			if entry, skip = r.words(entry); skip {
				continue
			}
		}
		line := string(bytes.TrimSpace(whole[:min(len(whole), 200)]))
		if err := r.add(strconv.Itoa(n), entry[:min(len(entry), 100)], line); err != nil {
			return err
		}
	}
	return nil
}

// words finds the entry in a line of several words, and reports whether the line has none.
func (r *reading) words(line string) (entry string, skip bool) {
	w := strings.Fields(line)
	verb := strings.ToLower(w[0])
	switch {
	case verb == "deny" || verb == "allow": // of nginx, or Apache's, which says "from"
		rest := w[1:]
		if len(rest) == 2 && strings.EqualFold(rest[0], "from") {
			rest = rest[1:]
		}
		switch {
		case len(rest) != 1:
			return line, false
		case strings.EqualFold(rest[0], "all"):
			return "", true // which says nothing of anybody
		case r.verb == "":
			r.verb = verb
		case r.verb != verb: // whom one spares, the other means
			return line, false
		}
		return rest[0], false
	case verb == "create" && len(w) > 2, verb == "start" && strings.EqualFold(w[1], "end"):
		return "", true // the head of an ipset, or of a block list with columns
	case verb == "add" && len(w) > 2 && !slices.Contains(w, "nomatch"):
		return w[2], false
	case len(w) == 3 && w[1] == "-":
		return w[0] + "-" + w[2], false
	case len(w) > 2: // the first and the last address, and how many bits they share, as DShield
		bits, err := strconv.Atoi(w[2])
		first, notFirst := netip.ParseAddr(w[0])
		if last, notLast := netip.ParseAddr(w[1]); err == nil && notFirst == nil && notLast == nil {
			if p, err := first.Prefix(bits); err == nil && lastOf(p) == last {
				return w[0] + "-" + w[1], false
			}
		}
	}
	return line, false
}

// between are the prefixes that the addresses from one to another are.
func between(from, to string) (all []netip.Prefix, err error) {
	first, err := netip.ParseAddr(from)
	last, err2 := netip.ParseAddr(to)
	first, last = first.Unmap(), last.Unmap()
	if err != nil || err2 != nil || first.Zone()+last.Zone() != "" ||
		first.BitLen() != last.BitLen() || last.Less(first) {
		return nil, fmt.Errorf("\"%s-%s\" is no range of addresses: want the first and the last, of one family", from, to)
	}
	for {
		var p netip.Prefix
		for bits := range first.BitLen() + 1 {
			p = netip.PrefixFrom(first, bits)
			if p.Masked() == p && !last.Less(lastOf(p)) {
				break
			}
		}
		all = append(all, p)
		if first = lastOf(p).Next(); !first.IsValid() || last.Less(first) {
			return all, nil
		}
	}
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// columns reads a column of CSV: by its number, from 1, or by its name in the first row.
func (r *reading) columns(text []byte) error {
	first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte{'\n'})
	rows := csv.NewReader(bytes.NewReader(text))
	rows.FieldsPerRecord, rows.LazyQuotes, rows.TrimLeadingSpace = -1, true, true
	rows.Comment, rows.ReuseRecord = '#', true
	for _, c := range []rune{';', '\t', '|'} {
		if bytes.ContainsRune(first, c) && !bytes.ContainsRune(first, ',') {
			rows.Comma = c
		}
	}
	column, err := strconv.Atoi(string(r.Column))
	named := err != nil
	if column--; named {
		column = -1
	}
	for n := 0; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		line, _ := rows.FieldPos(0)
		at := strconv.Itoa(line)
		switch {
		case err != nil:
			return fmt.Errorf("%s: it is no CSV: a row is malformed", r.Where())
		case n == 0 && named:
			column = slices.IndexFunc(row, func(name string) bool {
				return strings.EqualFold(strings.TrimSpace(name), string(r.Column))
			})
			if column < 0 {
				return fmt.Errorf("%s:%s: no column is named %q: name one of the first row, or say its number, from 1", r.Where(), at, r.Column)
			}
			continue
		case len(row) == 1 && strings.TrimSpace(row[0]) == "":
			continue
		case column >= len(row):
			r.n++
			r.fail(at, "", fmt.Errorf("the row has no column %s", r.Column))
			continue
		}
		entry := strings.TrimSpace(row[column])
		if _, err := r.entry(entry); n == 0 && err != nil && !strings.ContainsAny(entry, ".:/-") {
			continue // the names of columns
		}
		if err := r.add(at, entry[:min(len(entry), 100)], ""); err != nil {
			return err
		}
	}
}

// prefixFields are the names under which JSON has addresses and prefixes, in small letters and
// without what joins words: those of search engines, clouds, CDNs and block lists.
var prefixFields = []string{"cidr", "cidrs", "ipcidr", "cidrnotation", "ipprefix", "ipv4prefix",
	"ipv6prefix", "prefix", "prefixes", "ipv4prefixes", "ipv6prefixes", "addressprefixes",
	"address", "addresses", "ipaddress", "ipaddresses", "ipv4addresses", "ipv6addresses",
	"ipv4cidrs", "ipv6cidrs", "ip", "ips", "ipv4", "ipv6", "iprange", "ipranges", "network",
	"networks", "subnet", "subnets", "range", "ranges", "cidripv4", "cidripv6"}

// json reads the documents of a text, of which there may be one a line.
func (r *reading) json(text []byte) error {
	docs := json.NewDecoder(bytes.NewReader(text))
	for {
		var doc any
		err := docs.Decode(&doc)
		offset := docs.InputOffset()
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			offset = bad.Offset
		}
		line := strconv.Itoa(1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte{'\n'}))
		switch {
		case errors.Is(err, io.EOF) && r.n == 0:
			return fmt.Errorf("%s: it is JSON, and no field of it that could have prefixes, such as cidr, ip_prefix or addresses, has one", r.Where())
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s:%s: it begins as JSON, and is none", r.Where(), line)
		}
		if err := r.value(line, doc, true); err != nil {
			return err
		}
	}
}

// value reads what JSON has; named says that it is under a name for prefixes.
func (r *reading) value(line string, v any, named bool) error {
	switch v := v.(type) {
	case string:
		if named {
			return r.add(line, v[:min(len(v), 100)], "")
		}
	case []any:
		named = named || r.allPrefixes(v) // of services, by their names
		for _, item := range v {
			if err := r.value(line, item, named); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
			if err := r.value(line, v[name], slices.Contains(prefixFields, plain)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reading) allPrefixes(list []any) bool {
	for _, item := range list {
		text, is := item.(string)
		if _, err := address.ParsePrefix(text); !is || err != nil {
			return false
		}
	}
	return len(list) > 0
}

// seems says what a list looks like that is none, and what to do about it; "": like nothing that is
// known. line is its first bad one.
func seems(text []byte, line string) string {
	lower := strings.ToLower(line)
	w := strings.Fields(strings.NewReplacer(",", " , ", ";", " ; ").Replace(line))
	word := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		return ""
	}
	_, noAddress := netip.ParseAddr(word(0))
	_, noPrefix := netip.ParsePrefix(word(0))
	isEntry := noAddress == nil || noPrefix == nil
	switch {
	case bytes.HasPrefix(text, []byte("\x1f\x8b")) || bytes.HasPrefix(text, []byte("PK\x03\x04")):
		return "it seems to be compressed: unpack it"
	case bytes.HasPrefix(text, []byte{'<'}):
		return "it seems to be HTML or XML: want the list itself, as text or JSON"
	case strings.HasPrefix(line, "//") || strings.HasPrefix(line, "--"):
		return "it seems to have comments that begin with " + line[:2] + ": they begin with #"
	case (lower == "deny" || lower == "allow") || strings.HasPrefix(lower, "deny ") ||
		strings.HasPrefix(lower, "allow "):
		return "it seems to be nginx's, with both deny and allow: make a list of each"
	case strings.HasPrefix(lower, "add ") && strings.Contains(lower, "nomatch"):
		return "it seems to be an ipset with exceptions: give those to match.not"
	case strings.HasPrefix(line, "- "):
		return "it seems to be YAML: write its entries without the dash"
	case isEntry && word(1) == ",", strings.Contains(line, ","):
		return "it seems to be CSV: say which column has the addresses, as in column: 1"
	case isEntry && strings.HasSuffix(line, ";") && len(w) > 2:
		return "it seems to be a geo of nginx: leave out the values behind its prefixes"
	case noAddress == nil && len(w) > 1 && !strings.Contains(word(1), "/"):
		return "it seems to be a file of hosts: want one address or prefix a line, and # before what is said of it"
	case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
		return "an address stands without brackets"
	}
	if _, err := netip.ParseAddrPort(word(0)); err == nil {
		return "it seems to have ports: want addresses without them"
	}
	if len(w) == 1 && strings.Contains(line, ".") && strings.Trim(lower,
		"abcdefghijklmnopqrstuvwxyz0123456789.-*_") == "" && strings.ContainsAny(lower,
		"abcdefghijklmnopqrstuvwxyz") {
		return "it seems to be a list of names: want addresses, because no name is looked up"
	}
	return ""
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

// errNone is about an entry that a URL has. It does not quote it: operators see it who may not see
// all that the edge reaches.
var errNone = errors.New("that is no address and no prefix")

// entry reads an address or a prefix.
func (c *Config) entry(text string) (netip.Prefix, error) {
	p, err := address.ParsePrefix(text)
	switch {
	case err != nil && c.URL != "":
		return p, errNone
	case err != nil:
		return p, err
	}
	return p, c.check(p)
}

// check returns what is wrong with a prefix as an entry.
func (c *Config) check(p netip.Prefix) error {
	wide := p.Bits() < shortest4 && !noClients4.Contains(p.Addr())
	if p.Addr().Is6() {
		wide = p.Bits() < shortest6 && clients6.Overlaps(p)
	}
	switch {
	case c.URL != "" && wide:
		return fmt.Errorf("a /%d is too wide: from a URL, want at least /%d, of IPv6 /%d; a file may have it", p.Bits(), shortest4, shortest6)
	case p.Bits() == 0:
		return fmt.Errorf("%s is every address: a list has some", p)
	}
	return nil
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
