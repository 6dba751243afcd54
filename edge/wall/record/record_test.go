package record

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

func TestRecordIsReadAsWritten(t *testing.T) {
	for _, r := range []Record{
		{Op: Hello},
		{Op: Hello, A: 10_000, B: 65_536},
		{Op: Port, A: 8080},
		{Op: Port, Code: ForeignPort, A: 22},
		{Op: Add, Prefix: netip.MustParsePrefix("192.0.2.7/32"), A: 10_000},
		{Op: Add, Prefix: netip.MustParsePrefix("0.0.0.0/0"), A: 1},
		{Op: Add, Code: LongLease, Prefix: netip.MustParsePrefix("2001:db8::/64"), A: 60_000, B: 10_000},
		{Op: Delete, Prefix: netip.MustParsePrefix("::/0")},
		{Op: Report, A: 1<<64 - 1, B: 1},
		{Op: Report, Prefix: netip.MustParsePrefix("2001:db8::1/128"), A: 7},
	} {
		b := r.Append(nil)
		if got, err := Parse(b); len(b) != Size || err != nil || got != r {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	}
}

func TestMalformedRecords(t *testing.T) {
	good := Record{Op: Add, Prefix: netip.MustParsePrefix("192.0.2.0/24"), A: 1000}.Append(nil)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":              nil,
		"short":                good[:Size-1],
		"long":                 append(bytes.Clone(good), 0),
		"no magic":             change(0, 'G'),
		"another version":      change(1, 2),
		"no op":                change(2, 0),
		"an unknown op":        change(2, byte(last)+1),
		"an unknown code":      change(3, byte(lastCode)+1),
		"an unknown family":    change(4, 5),
		"too many bits":        change(5, 33),
		"padding":              change(6, 1),
		"an address below":     change(27, 1),
		"bytes behind":         change(30, 1),
		"an add without":       Record{Op: Add, A: 1}.Append(nil),
		"bits without address": change(4, 0),
		"a mapped address":     Record{Op: Add, Prefix: netip.MustParsePrefix("::ffff:192.0.2.1/128"), A: 1}.Append(nil),
	} {
		if r, err := Parse(b); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestErrors: what is wrong is said with what to do.
func TestErrors(t *testing.T) {
	for code := range lastCode + 1 {
		text := Record{Op: Add, Code: code, Prefix: netip.MustParsePrefix("192.0.2.1/32"), A: 60_000, B: 10_000}.Error()
		if text == "" || code == LongLease && !strings.Contains(text, "1m0s") {
			t.Errorf("%d: %q", code, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Record{Op: Hello, A: 10_000, B: 65_536}.Append(nil))
	f.Add(Record{Op: Add, Prefix: netip.MustParsePrefix("192.0.2.0/24"), A: 1000}.Append(nil))
	f.Add(Record{Op: Delete, Code: Full, Prefix: netip.MustParsePrefix("2001:db8::/64"), B: 5}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			return
		}
		if !bytes.Equal(r.Append(nil), b) {
			t.Errorf("%x is read as %+v, which is written as %x", b, r, r.Append(nil))
		}
		if r.Prefix.IsValid() && r.Prefix.Masked() != r.Prefix {
			t.Errorf("%v is not masked", r.Prefix)
		}
		_ = r.Error()
	})
}
