package trace

import (
	"bytes"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// clfParser reads lines of access logs: the common log format, combined, vhost_combined (a host and
// port before the client), any of them with more fields behind or with the prefix of a program that
// carried the log before them, and HAProxy's log of HTTP.
//
//	[prefix …] [host[:port]] client ident user [day/month/year:hour:minute:second zone] "method target version" status …
//	[prefix …] client:port [day/month/year:hour:minute:second.ms] frontend backend/server times status … "request"
type clfParser struct {
	trust []netip.Prefix // proxies in a list of addresses; none: the first address is the client

	date  [11]byte // of the line before: days come in runs
	days  int64    // since 1970, at that date
	valid bool
	words [][]byte // of the line, to use their space again
}

// stamped is a time of a line.
type stamped struct {
	at     int64
	end    int  // how many bytes it took
	coarse bool // of whole seconds
	zoned  bool
}

func (p *clfParser) parse(line []byte, r *record) string {
	if len(line) == 0 {
		return SkippedEmpty
	}
	if c := line[0]; c == '<' || c == '1' {
		line = cutSyslog(line)
	}
	// The first '[' that a stamp follows ends the names: a user or an IPv6 client may hold one,
	// too. A prefix may hold a stamp as well: then no client stands before it.
	open, skipped := -1, SkippedTime
	var t stamped
	for i := 0; i < len(line); i++ {
		j := bytes.IndexByte(line[i:], '[')
		if j < 0 || open >= 0 && bytes.IndexByte(line[open:i+j], '"') >= 0 {
			return skipped
		}
		i += j
		next, ok := p.stamp(line[i+1:])
		if !ok {
			continue
		}
		t = next
		reason := p.names(line[:i], !t.coarse && !t.zoned, r)
		if open < 0 {
			skipped = reason
		}
		if open = i; reason == "" {
			skipped = ""
			break
		}
	}
	if skipped != "" {
		return skipped
	}
	end := open + 1 + t.end
	r.at, r.coarse = t.at, t.coarse
	if i := bytes.LastIndexByte(line, ' '); i > end &&
		bytes.HasPrefix(line[i+1:], []byte("sample=")) {
		if n, ok := decimal(line[i+1+len("sample="):]); ok {
			r.sample = int64(n)
		}
	}
	request(line[end:], r)
	if r.form == formHAProxy {
		rest, word := line[end:], []byte(nil)
		for i := range 4 { // frontend, backend/server, times, status
			word, rest = field(rest)
			if i == 2 && bytes.Count(word, []byte("/")) != 4 {
				return SkippedOther // of a connection of TCP, or of a handshake that failed
			}
		}
		if n, ok := decimal(word); ok && n >= 100 && n <= 999 {
			r.status = int16(n)
		}
	}
	return ""
}

// stamp reads "04/May/2017:14:00:00 +0200]", or with a fraction behind the seconds.
func (p *clfParser) stamp(b []byte) (t stamped, ok bool) {
	if len(b) < 21 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return stamp8601(b)
	}
	if !p.valid || [11]byte(b[:11]) != p.date {
		d, ok1 := decimal(b[0:2])
		m, ok2 := month(b[3:6])
		y, ok3 := decimal(b[7:11])
		if !ok1 || !ok2 || !ok3 || d < 1 || d > daysIn(y, m) || y < 1970 || y > 2200 {
			return t, false
		}
		p.date, p.days, p.valid = [11]byte(b[:11]), daysSince1970(y, m, d), true
	}
	h, ok1 := decimal(b[12:14])
	m, ok2 := decimal(b[15:17])
	s, ok3 := decimal(b[18:20])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || s > 60 {
		return t, false
	}
	sec := p.days*86400 + int64(h*3600+m*60+min(s, 59)) // a leap second is the one before once more
	n := bytes.IndexByte(b[:min(len(b), 40)], ']')
	if n < 0 {
		return t, false
	}
	rest, ns := b[20:n], int64(0)
	if t.coarse = len(rest) == 0 || rest[0] != '.'; !t.coarse {
		var digits int
		if ns, digits = fraction(rest[1:]); digits == 0 {
			return t, false
		}
		rest = rest[1+digits:]
	}
	rest = bytes.TrimSpace(rest)
	zone, ok := zone(rest)
	t.at, t.end, t.zoned = (sec-zone)*int64(time.Second)+ns, n+1, len(rest) > 0
	return t, ok
}

// fraction reads the digits that b begins with as a fraction of a second, in nanoseconds.
func fraction(b []byte) (ns int64, digits int) {
	unit := int64(time.Second)
	for digits < len(b) && b[digits] >= '0' && b[digits] <= '9' {
		unit /= 10
		ns += unit * int64(b[digits]-'0')
		digits++
	}
	return ns, digits
}

// stamp8601 reads the stamp that some servers write instead: "2017-05-04T14:00:00+02:00]".
func stamp8601(b []byte) (t stamped, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 40)], ']')
	if n < 19 || b[4] != '-' {
		return t, false
	}
	at, err := time.Parse(time.RFC3339, string(b[:n]))
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {
		return t, false
	}
	return stamped{at.UnixNano(), n + 1, bytes.IndexByte(b[:n], '.') < 0, true}, true
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

// names reads what stands before the stamp. The client is the address before ident and user, of
// which nearly every server writes the first as "-": so the leftmost address before "-", because
// whatever stands behind the client may be of its own choice. Where no address stands so, the line
// has no prefix, and a host name may be the client.
func (p *clfParser) names(b []byte, haproxy bool, r *record) (skipped string) {
	first, rest := field(b)
	second, rest := field(rest)
	if isDash(second) && isAddr(first) {
		r.client = trimClient(first)
		return ""
	}
	third, rest := field(rest)
	if fourth, _ := field(rest); isDash(third) && len(fourth) > 0 && isAddr(second) {
		if host, _ := cutPort(first); isHost(host) { // which ends in no comma
			r.host, r.client = host, trimClient(second)
			return ""
		}
	}
	return p.prefixed(b, haproxy, r)
}

// prefixed reads names of lines of any other form.
func (p *clfParser) prefixed(b []byte, haproxy bool, r *record) (skipped string) {
	words := p.words[:0]
	for {
		var word []byte
		if word, b = field(b); len(word) == 0 {
			break
		}
		words = append(words, word)
	}
	p.words = words
	n := len(words)
	if n == 0 || len(trimClient(words[0])) == 0 {
		return SkippedSource
	}
	for i := 0; i+2 < n; i++ {
		if isDash(words[i+1]) && !isDash(words[i]) && p.client(words, i, r) {
			if i > 0 && !r.listed && len(r.host) == 0 {
				r.form = formPrefixed
			}
			return ""
		}
	}
	if haproxy {
		host, port := cutPort(words[n-1])
		if a, ok := parseClient(string(host)); ok && len(port) > 0 {
			r.client, r.form = []byte(a.String()), formHAProxy
			return ""
		}
	}
	first := words[0]
	switch host, port := cutPort(first); {
	case isDash(first): // nobody, which the builder knows
		r.client = first
	case isAddr(first):
		r.client = trimClient(first)
	case n >= 4 && isAddr(words[1]) && isHost(host):
		r.host, r.client = host, trimClient(words[1])
	case len(port) > 0 && n == 4 && isHostName(words[1]):
		r.host, r.client = host, words[1]
	case n == 3 && isHostName(first):
		r.client = first
	case n >= 3 && p.client(words, n-3, r): // ident is no "-"
	case len(port) > 0 && n < 3:
		if _, ok := parseClient(string(first)); !ok {
			return SkippedClient
		}
		r.client = first
	default:
		return SkippedClient
	}
	return ""
}

// client takes the client that ends with word i: an address, or a list of them as proxies write it,
// "203.0.113.7, 10.1.2.3".
func (p *clfParser) client(words [][]byte, i int, r *record) bool {
	last, ok := address(words[i])
	if !ok {
		return false
	}
	from := i
	for from > 0 && words[from-1][len(words[from-1])-1] == ',' {
		from--
	}
	r.client = last
	if from < i || bytes.IndexByte(words[i], ',') >= 0 {
		list := bytes.Join(words[from:i+1], nil)
		r.client, r.listed = p.untrusted(bytes.Split(list, []byte(","))), true
	}
	if from == 0 {
		return true
	}
	// A prefix's last word is no host, but for one with a port.
	if host, port := cutPort(words[from-1]); isHost(host) && (from == 1 || len(port) > 0) {
		r.host = host
	}
	return true
}

// untrusted is the client in a list of addresses that proxies have made longer at its end: as an
// edge finds it, the last that is no trusted proxy, or the first where no proxies are named or all
// are trusted.
func (p *clfParser) untrusted(list [][]byte) (client []byte) {
	for i := len(list) - 1; i >= 0; i-- {
		word, ok := address(list[i])
		if !ok {
			continue
		}
		client = word
		if a, _ := parseClient(string(word)); len(p.trust) > 0 &&
			!slices.ContainsFunc(p.trust, func(t netip.Prefix) bool { return t.Contains(a) }) {
			break
		}
	}
	return client
}

// address is the address that a word is, in quotes perhaps, with a port, or behind the name of a
// file and the number of a line as grep writes them.
func address(b []byte) (addr []byte, ok bool) {
	if i := bytes.IndexByte(b, 'm'); i > 0 && b[0] == '\x1b' { // the end of a colour
		b = b[i+1:]
	}
	b = bytes.Trim(b, `",`)
	if i := bytes.LastIndexByte(b, ','); i >= 0 {
		b = b[i+1:]
	}
	if isAddr(b) {
		return b, true
	}
	if _, ok := parseClient(string(b)); ok {
		return b, true
	}
	for rest := b; ; {
		i := bytes.IndexByte(rest, ':')
		if i < 0 {
			return addr, addr != nil
		}
		rest = rest[i+1:]
		a, ok := parseClient(string(rest))
		if ok && (a.Is4() || a.As16()[0]&0xe0 == 0x20) {
			return rest, true // of 2000::/3: no number of a line is part of it
		}
		if ok && addr == nil {
			addr = rest
		}
	}
}

// cutSyslog cuts off the header of RFC 5424, in which "-" stands for what is not known:
// "<190>1 TIME HOST APP PROCESS MESSAGE DATA ".
func cutSyslog(b []byte) []byte {
	rest := b
	if len(rest) > 0 && rest[0] == '<' {
		i := bytes.IndexByte(rest[:min(len(rest), 5)], '>')
		if i < 0 {
			return b
		}
		rest = rest[i+1:]
	}
	version, rest := field(rest)
	at, rest := field(rest)
	if string(version) != "1" || !isDash(at) && (len(at) < 19 || at[4] != '-' || at[10] != 'T') {
		return b
	}
	for range 4 {
		_, rest = field(rest)
	}
	rest = bytes.TrimLeft(rest, " ")
	if len(rest) > 0 && rest[0] == '-' {
		rest = rest[1:]
	}
	quoted := false
	for i := 0; i < len(rest) && rest[0] == '['; i++ {
		switch {
		case quoted && rest[i] == '\\':
			i++
		case rest[i] == '"':
			quoted = !quoted
		case !quoted && rest[i] == ']':
			rest, i = rest[i+1:], -1
			if len(rest) == 0 {
				return rest
			}
		}
	}
	return bytes.TrimPrefix(bytes.TrimLeft(rest, " "), []byte("\xef\xbb\xbf"))
}

func isDash(b []byte) bool { return len(b) == 1 && b[0] == '-' }

// isHost reports whether b, without its port, may be a host that was asked. The time or the number
// that a prefix or a format of one's own puts there is none.
func isHost(b []byte) bool {
	letter := false
	for _, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			letter = true
		case c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return bytes.IndexByte(b, ',') < 0 && isAddr(b)
		}
	}
	return letter || isAddr(b)
}

// isAddr reports whether b looks like an address: cheap for IPv4, because it runs on every line.
// What looks like one of IPv6 is parsed, because a time of day looks like it, too.
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

// isHostName reports whether b is the name of a host, as servers log it that look clients' names
// up: with a dot, so that a word is none, or localhost. A name of digits alone at its end is a
// broken address.
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
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-',
			c == '_':
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

// parseClient reads a client's address: plain, in brackets, with a port or a zone. An IPv4 address
// in IPv6 clothes is IPv4.
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
	requestLine(line, r)
}

// requestLine reads "method target version", or one without a version.
func requestLine(line []byte, r *record) {
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
		if !bytes.HasPrefix(target, []byte("http://")) &&
			!bytes.HasPrefix(target, []byte("https://")) {
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

// agent is what stands in the second pair of quotes of what follows a request's status; the first
// has the referer.
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

// unescape undoes what Apache does to bytes that would break a log line: \" \\ \n \t \xHH and so
// on.
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
