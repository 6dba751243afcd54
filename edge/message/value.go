package message

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"unicode"
	"unicode/utf8"
)

// What rules look at has one form for all that servers take for the same, and what servers read
// differently has none: a request that has such a thing where a rule in force looks is refused.
// What no rule looks at is passed on as it is, whatever it holds. The functions here are all that
// decide on that, for the keys of rules, their conditions, tokens, and the clients that operators
// name:
//
//	a header         AppendValue        visible ASCII and spaces, without the white space around it
//	Authorization    AppendCredentials  its token, whatever its scheme
//	a cookie         AppendCookie       what RFC 6265 lets one have, without quotes around it, decoded
//	a parameter      AppendParameter    visible ASCII, decoded
//	Host, a path     AppendHost, AppendPath
//
// Names are read by Lookup, those of headers by Head.Header. TestSpellings in edge/rules holds all
// of it against real servers' parsers.

// AppendValue appends the value of a header. It reports false for one with bytes beyond ASCII,
// which some servers take for white space (U+00A0) and trim, or with a tab, which honest clients do
// not send in one.
func AppendValue(buf, value []byte) ([]byte, bool) {
	value = TrimSpace(value)
	if !isVisible(value) {
		return buf, false
	}
	return appendSigned(append(buf, value...), len(buf))
}

// appendSigned brings buf[from:] into the form of a token if it is one that is signed or encrypted
// (RFC 7515, RFC 7516, Flask's sessions): servers decode its parts, and pass over what is no letter
// of them.
func appendSigned(buf []byte, from int) ([]byte, bool) {
	text := buf[from:]
	// eyJ is {"
	if len(text) < 3 || text[0] != 'e' || text[1] != 'y' || text[2] != 'J' ||
		bytes.Count(text, []byte{'.'}) < 2 {
		return buf, true
	}
	return appendToken(buf[:from], text), isBare(text)
}

// isVisible reports whether text is visible ASCII and spaces, eight bytes at a time.
func isVisible(s []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		v := binary.LittleEndian.Uint64(s)
		del := v ^ 0x7f*ones
		if (v|(v-0x20*ones)|(del-ones))&high != 0 {
			return false
		}
		s = s[8:]
	}
	for _, c := range s {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// NoClient says that credentials do not distinguish clients.
const NoClient = -1

var strictBase64 = base64.StdEncoding.Strict()

// AppendCredentials appends a value of Authorization (RFC 9110, 11.4): its scheme in small letters,
// a space, and what follows; token is where its token begins in that. Servers look for the token
// behind whatever scheme, or behind none: so it is the token that distinguishes clients. Equals
// signs at its end are left out, because decoders pass over them, and of a signature (RFC 7515) the
// bits that no byte needs. One word is the token.
//
// Schemes with parameters (Digest, AWS4-HMAC-SHA256, OAuth) sign each request anew, so they
// distinguish no clients, except by a parameter of the name token (RFC 9577, Rails), which is the
// token.
//
// It reports false for a second word, as in "Bearer TOKEN x", which some servers pass over; for a
// token with quotes, commas, semicolons or backslashes, where some end it; for Basic that is no
// plain base64 (RFC 7617), and a JSON Web Token that is none; and for what is no visible ASCII.
func AppendCredentials(buf, value []byte) (_ []byte, token int, ok bool) {
	value = TrimSpace(value)
	from, i := len(buf), bytes.IndexAny(value, " \t")
	if i < 0 {
		return appendToken(buf, value), 0, isVisible(value) && isBare(value)
	}
	scheme, rest := value[:i], TrimSpace(value[i:])
	// A JSON Web Token, ended by a space
	if !isVisible(scheme) || bytes.IndexByte(rest, '\t') >= 0 || isJSON(scheme) &&
		bytes.IndexByte(scheme, '.') > 0 {
		return buf, 0, false
	}
	for _, c := range scheme {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		buf = append(buf, c)
	}
	basic := bytes.Contains(buf[from:], []byte("basic")) // passport-http looks no closer
	buf = append(buf, ' ')
	token = len(buf) - from
	switch word := bytes.TrimRight(rest, "="); {
	case basic:
		n := len(buf)
		buf = slices.Grow(buf, base64.StdEncoding.DecodedLen(len(rest)))
		if _, err := strictBase64.Decode(buf[n:cap(buf)], rest); err != nil {
			return buf, 0, false
		}
	case bytes.IndexByte(word, '=') >= 0:
		sent, ok := tokenOf(rest)
		if !ok || sent == nil {
			return append(buf, rest...), NoClient, ok
		}
		rest = sent
	case bytes.IndexByte(word, ' ') >= 0 || !isBare(word):
		return buf, 0, false
	}
	return appendToken(buf, rest), token, isVisible(rest)
}

// isBare reports whether a token has nothing at which some servers would end it, and one that is a
// JSON Web Token nothing that decoders of base64 pass over (Python's), or take for another letter
// (Node's).
func isBare(token []byte) bool {
	if bytes.ContainsAny(token, "\",;\\") {
		return false
	}
	if !isJSON(token) || bytes.Count(token, []byte{'.'}) < 2 {
		return true
	}
	for _, c := range bytes.TrimRight(token, "=") {
		if c != '.' && bytes.IndexByte(letters, c) < 0 {
			return false
		}
	}
	return true
}

// isJSON reports whether base64 begins with a brace, and a quote or white space.
func isJSON(s []byte) bool { return len(s) > 1 && s[0] == 'e' && (s[1] == 'y' || s[1] == 'w') }

// tokenOf is the parameter token of credentials; nil: they have none. It reports false if they are
// no list of parameters, which must not be taken for one: NAME=VALUE, separated by commas, each
// value in quotes or one word.
func tokenOf(list []byte) (token []byte, ok bool) {
	for more := true; more; {
		name, rest, assigned := bytes.Cut(TrimSpace(list), []byte{'='})
		if !assigned || !isParameter(name) || len(rest) == 0 || rest[0] == '=' {
			return nil, false
		}
		var value []byte
		if rest[0] == '"' {
			end := 1
			for end < len(rest) && (rest[end] != '"' || escaped(rest[:end])) {
				end++
			}
			if end == len(rest) {
				return nil, false
			}
			value, list = rest[1:end], TrimSpace(rest[end+1:])
			if more = len(list) > 0; more && list[0] != ',' {
				return nil, false
			}
			list = list[min(1, len(list)):]
		} else if value, list, more = bytes.Cut(rest, []byte{','}); len(value) == 0 ||
			bytes.ContainsAny(TrimSpace(value), " \"") {
			return nil, false
		}
		if !EqualFold(name, "token") {
			continue
		}
		if value = TrimSpace(value); token != nil || len(value) == 0 || !isBare(value) ||
			bytes.IndexByte(value, ' ') >= 0 {
			return nil, false
		}
		token = value
	}
	return token, true
}

// isParameter reports whether a name is one of a parameter of credentials, and not what decoders of
// base64 read of a token, which end at its first equals sign: letters, as in all of the schemes
// that are registered, and the asterisk of RFC 8187 (username* of Digest).
func isParameter(name []byte) bool {
	name = bytes.TrimSuffix(name, []byte{'*'})
	for _, c := range name {
		if l := c | 0x20; (l < 'a' || l > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return 0 < len(name) && len(name) <= 32
}

// escaped reports whether what comes after text stands behind a backslash that is not itself
// escaped.
func escaped(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}

// appendToken appends a token. Decoders of base64 pass over equals signs at its end, and over the
// bits of the last letter that are of no byte: else one signature could be written in sixteen ways,
// and each part of what is encrypted (RFC 7516). A short last part is no signature, and may be what
// distinguishes two tokens.
func appendToken(buf, token []byte) []byte {
	const shortest = 16 // letters of a signature
	token = bytes.TrimRight(token, "=")
	from := len(buf)
	buf = append(buf, token...)
	text := buf[from:]
	switch bytes.Count(text, []byte{'.'}) {
	case 2:
		if signature := text[bytes.LastIndexByte(text, '.')+1:]; isJSON(text) ||
			len(signature) >= shortest {
			clearSpare(signature)
		}
	case 4:
		for isJSON(buf[from:]) && len(text) > 0 {
			i := bytes.IndexByte(text, '.')
			if i < 0 {
				i = len(text)
			}
			clearSpare(text[:i])
			text = text[min(i+1, len(text)):]
		}
	}
	return buf
}

// clearSpare clears the bits of the last letter of base64 that are of no byte.
func clearSpare(text []byte) {
	spare := [4]int{2: 4, 3: 2}[len(text)%4] // bits
	if spare == 0 {
		return
	}
	if last := &text[len(text)-1]; bytes.IndexByte(letters, *last) >= 0 {
		*last = letters[bytes.IndexByte(letters, *last)>>spare<<spare]
	}
}

// letters are those of base64 for URLs (RFC 4648, 5), by what they stand for.
var letters = []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

// AppendCookie appends the value of a cookie as it is after whatever servers do to one: some take
// quotes around it away, some decode %61, some take a plus for a space. It reports false for what
// no browser sends unprompted and servers read differently (RFC 6265, 4.1.1): other quotes,
// backslashes (Python takes "\141" for a), commas and white space, at which some begin another
// cookie, and bytes beyond ASCII; for what AppendParameter does not take; and for what
// cookie-parser reads as JSON that is no list and no object, because it has any number of
// spellings.
func AppendCookie(buf, value []byte) ([]byte, bool) {
	value = TrimSpace(value)
	if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	from := len(buf)
	buf, ok := appendDecoded(buf, value, true)
	if s := buf[from:]; len(s) > 2 && s[0] == 'j' && s[1] == ':' && s[2] != '{' && s[2] != '[' {
		return buf, false
	}
	return buf, ok
}

// AppendParameter appends the value of a parameter, decoded, without white space and control
// characters around it. It reports false for bytes beyond ASCII that are not encoded, for what is
// no UTF-8 once it is decoded, which servers replace in several ways, and for a null byte, which
// ends it for some.
func AppendParameter(buf, value []byte) ([]byte, bool) { return appendDecoded(buf, value, false) }

func appendDecoded(buf, value []byte, cookie bool) ([]byte, bool) {
	from, plain := len(buf), true
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case '-' <= c && c <= 'z' && c != '\\': // nearly all are
			buf = append(buf, c)
			continue
		case c >= 0x80 || cookie && (c <= ' ' || c == 0x7f || c == '"' || c == '\\' || c == ','):
			return buf, false
		case c == '%':
			if b, ok := Escaped(value[i:]); ok {
				c = b
				i += 2
			}
		}
		switch c {
		case 0:
			return buf, false
		case '+': // also where it is encoded: servers that take none for a space read the same
			c = ' '
		}
		plain = plain && c < 0x80
		buf = append(buf, c)
	}
	text := buf[from:]
	if !plain && !utf8.Valid(text) {
		return buf, false
	}
	for len(text) > 0 {
		r, size := rune(text[len(text)-1]), 1
		if r >= 0x80 {
			r, size = utf8.DecodeLastRune(text)
		}
		if !isTrimmed(r) {
			break
		}
		text = text[:len(text)-size]
	}
	first := 0
	for first < len(text) {
		r, size := rune(text[first]), 1
		if r >= 0x80 {
			r, size = utf8.DecodeRune(text[first:])
		}
		if !isTrimmed(r) {
			break
		}
		first += size
	}
	return appendSigned(append(buf[:from], text[first:]...), from)
}

// isTrimmed reports whether some server takes a character away that stands at an end of a text:
// Java all up to the space, JavaScript the byte order mark, older .NET characters without width,
// Python what separates files.
func isTrimmed(r rune) bool {
	if r < 0x7f {
		return r <= ' '
	}
	return unicode.IsSpace(r) || unicode.IsControl(r) || r == 0xfeff || r == 0x180e || r == 0x200b
}
