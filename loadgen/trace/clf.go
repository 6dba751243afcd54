package trace

import (
	"bytes"
	"math"
	"net/netip"
	"strings"
	"time"
)

// clfParser reads lines of access logs: the common log format, combined, vhost_combined (a host and port before the
// client), and any of them with more fields behind.
//
//	[host[:port]] client ident user [day/month/year:hour:minute:second zone] "method target version" status …
type clfParser struct {
	date  [11]byte // of the line before: days come in runs
	days  int64    // since 1970, at that date
	valid bool
}

func (p *clfParser) parse(line []byte, r *record) string {
	// The first '[' that a stamp follows ends the names: a user or an IPv6 client may hold one, too.
	open, at, end := -1, int64(0), 0
	for i := 0; i < len(line); i++ {
		j := bytes.IndexByte(line[i:], '[')
		if j < 0 {
			break
		}
		i += j
		if t, n, ok := p.stamp(line[i+1:]); ok {
			open, at, end = i, t, i+1+n
			break
		}
	}
	if open < 0 {
		return SkippedTime
	}
	if skipped := names(line[:open], r); skipped != "" {
		return skipped
	}
	r.at, r.coarse = at, true
	if i := bytes.LastIndexByte(line, ' '); i > end && bytes.HasPrefix(line[i+1:], []byte("sample=")) {
		if n, ok := decimal(line[i+1+len("sample="):]); ok {
			r.sample = int64(n)
		}
	}
	request(line[end:], r)
	return ""
}

// stamp reads "04/May/2017:14:00:00 +0200]" and returns how many bytes it took.
func (p *clfParser) stamp(b []byte) (at int64, n int, ok bool) {
	if len(b) < 21 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return stamp8601(b)
	}
	if !p.valid || [11]byte(b[:11]) != p.date {
		d, ok1 := decimal(b[0:2])
		m, ok2 := month(b[3:6])
		y, ok3 := decimal(b[7:11])
		if !ok1 || !ok2 || !ok3 || d < 1 || d > daysIn(y, m) || y < 1970 || y > 2200 {
			return 0, 0, false
		}
		p.date, p.days, p.valid = [11]byte(b[:11]), daysSince1970(y, m, d), true
	}
	h, ok1 := decimal(b[12:14])
	m, ok2 := decimal(b[15:17])
	s, ok3 := decimal(b[18:20])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || s > 60 {
		return 0, 0, false
	}
	sec := p.days*86400 + int64(h*3600+m*60+min(s, 59)) // a leap second is the one before once more
	n = bytes.IndexByte(b[:min(len(b), 32)], ']')
	if n < 0 {
		return 0, 0, false
	}
	zone, ok := zone(bytes.TrimSpace(b[20:n]))
	return (sec - zone) * int64(time.Second), n + 1, ok
}

// stamp8601 reads the stamp that some servers write instead: "2017-05-04T14:00:00+02:00]".
func stamp8601(b []byte) (at int64, n int, ok bool) {
	n = bytes.IndexByte(b[:min(len(b), 40)], ']')
	if n < 19 || b[4] != '-' {
		return 0, 0, false
	}
	t, err := time.Parse(time.RFC3339, string(b[:n]))
	if err != nil || t.Year() < 1970 || t.Year() > 2200 {
		return 0, 0, false
	}
	return t.Truncate(time.Second).UnixNano(), n + 1, true
}

// zone reads "+0200" as seconds east of UTC; nothing at all is UTC.
func zone(b []byte) (int64, bool) {
	if len(b) == 0 {
		return 0, true
	}
	if len(b) != 5 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, ok1 := decimal(b[1:3])
	m, ok2 := decimal(b[3:5])
	s := int64(h*3600 + m*60)
	if b[0] == '-' {
		s = -s
	}
	return s, ok1 && ok2 && h <= 15 && m < 60
}

// names reads what stands before the stamp: host (sometimes), client, ident, user. The client is an address, or a host
// name where nothing but ident and user stands behind it: in any other line a word may be the prefix of a program that
// carried the log (syslog, a container's), and the client stands further on.
func names(b []byte, r *record) (skipped string) {
	first, rest := field(b)
	second, rest := field(rest)
	third, rest := field(rest)
	fourth, rest := field(rest)
	fifth, _ := field(rest)
	r.client = trimClient(first)
	switch host, port := cutPort(first); {
	case len(r.client) == 0:
		return SkippedSource
	case isAddr(first) || len(first) == 1 && first[0] == '-': // the latter is nobody, which the builder knows
	case len(fourth) > 0 && isAddr(second):
		r.host, r.client = host, trimClient(second)
	case len(port) > 0 && len(fourth) > 0 && len(fifth) == 0 && isHostName(second):
		r.host, r.client = host, second
	case len(third) > 0 && len(fourth) == 0 && isHostName(first):
	case len(port) > 0:
		if _, ok := parseClient(string(r.client)); !ok {
			return SkippedClient
		}
	default:
		return SkippedClient
	}
	return ""
}

// isAddr reports whether b looks like an address: cheap for IPv4, because it runs on every line. What looks like one of
// IPv6 is parsed, because a time of day looks like it, too.
func isAddr(b []byte) bool {
	b = trimClient(b)
	dots := 0
	for _, c := range b {
		switch {
		case c == '.':
			dots++
		case c < '0' || c > '9':
			if bytes.Count(b, []byte(":")) < 2 {
				return false
			}
			_, ok := parseClient(string(b))
			return ok
		}
	}
	return dots == 3
}

// isHostName reports whether b is the name of a host, as servers log it that look clients' names up: with a dot, so
// that a word is none, or localhost. A name of digits alone at its end is a broken address.
func isHostName(b []byte) bool {
	if string(b) == "localhost" {
		return true
	}
	dot := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte(".")), '.')
	if dot < 1 || b[dot+1] >= '0' && b[dot+1] <= '9' {
		return false
	}
	for _, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

func trimClient(b []byte) []byte {
	return bytes.TrimSuffix(b, []byte(","))
}

// cutPort splits "host:80" and "[::1]:80".
func cutPort(b []byte) (host, port []byte) {
	i := bytes.LastIndexByte(b, ':')
	if i < 0 || i == len(b)-1 {
		return b, nil
	}
	for _, c := range b[i+1:] {
		if c < '0' || c > '9' {
			return b, nil
		}
	}
	return b[:i], b[i+1:]
}

// field cuts the next word off.
func field(b []byte) (word, rest []byte) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	i := 0
	for i < len(b) && b[i] != ' ' && b[i] != '\t' {
		i++
	}
	return b[:i], b[i:]
}

// parseClient reads a client's address: plain, in brackets, with a port or a zone. An IPv4 address in IPv6 clothes is IPv4.
func parseClient(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		p, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		a = p.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// request reads the quoted request line and the status. What is odd in it stays out.
func request(b []byte, r *record) {
	open := bytes.IndexByte(b, '"')
	if open < 0 {
		return
	}
	b = b[open+1:]
	end, escaped := -1, false
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' {
			escaped = true
			i++
		} else if b[i] == '"' {
			end = i
			break
		}
	}
	if end < 0 {
		return
	}
	line := b[:end]
	status, rest := field(b[end+1:])
	r.agent = agent(rest)
	if n, ok := decimal(status); ok && n >= 100 && n <= 999 {
		r.status = int16(n)
	}
	if escaped {
		line = unescape(line)
	}
	method, rest := field(line)
	target, rest := field(rest)
	version, rest := field(rest)
	if len(rest) > 0 || len(version) > 0 && !bytes.HasPrefix(version, []byte("HTTP/")) {
		return
	}
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return
		}
	}
	if len(method) == 0 || len(target) == 0 {
		return
	}
	if target[0] != '/' && (string(target) != "*" || string(method) != "OPTIONS") {
		if !bytes.HasPrefix(target, []byte("http://")) && !bytes.HasPrefix(target, []byte("https://")) {
			return
		}
		slash := bytes.IndexByte(target[8:], '/')
		if slash < 0 {
			target = []byte("/")
		} else {
			target = target[8+slash:]
		}
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			target = percent(target)
			break
		}
	}
	r.method, r.path = method, target
}

// agent is what stands in the second pair of quotes of what follows a request's status; the first has the referer.
func agent(b []byte) []byte {
	var quoted []byte
	for range 2 {
		i := bytes.IndexByte(b, '"')
		if i < 0 {
			return nil
		}
		b = b[i+1:]
		end := 0
		for end < len(b) && b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(b) {
			return nil
		}
		quoted, b = b[:end], b[end+1:]
	}
	if len(quoted) == 1 && quoted[0] == '-' {
		return nil
	}
	return quoted
}

// unescape undoes what Apache does to bytes that would break a log line: \" \\ \n \t \xHH and so on.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'x':
			if i+2 < len(b) {
				if hi, lo := unhex(b[i+1]), unhex(b[i+2]); hi >= 0 && lo >= 0 {
					out = append(out, byte(hi<<4|lo))
					i += 2
					continue
				}
			}
			out = append(out, '\\', 'x')
		default:
			out = append(out, c)
		}
	}
	return out
}

// percent makes a target of bytes that may stand in one.
func percent(b []byte) []byte {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(b)+16)
	for _, c := range b {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return out
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// decimal reads up to nine decimal digits and nothing else.
func decimal(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= math.MaxInt32
}

func month(b []byte) (int, bool) {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	i := strings.Index(names, string(b))
	return i/3 + 1, i >= 0 && i%3 == 0
}

func daysIn(y, m int) int {
	switch m {
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func daysSince1970(y, m, d int) int64 {
	return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Unix() / 86400
}
