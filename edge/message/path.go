package message

import (
	"bytes"
	"math/bits"
	"net/http"
)

const (
	// maxOddSegments bounds the segments of a path that are empty, . or .. once it is decoded.
	maxOddSegments = 64
	// MaxPath bounds a path as it comes, in bytes. Every server takes targets of 8000 (RFC 9112,
	// 3). Of what is shown to regular expressions there is less (rules.MaxSearched).
	MaxPath = 8 << 10
	// MaxOddPath bounds one that origins read in several ways: every reading is matched.
	MaxOddPath = 1 << 10
)

// TooLong is the answer to a path that is longer than MaxPath, or than can be matched.
var TooLong = Refuse(http.StatusRequestURITooLong, "target_too_long",
	"The path is longer than this server accepts.")

// AppendPath appends the form of a request target's path that rules are matched against:
//
//   - everything from the first ? or # on is gone; an absolute target (http://host/path) is its
//     path;
//   - percent-encodings are decoded, once: %6c is l and %2f is /; what is not an encoding stays;
//   - a backslash is a slash;
//   - several slashes are one; a . segment is gone; a .. segment takes the one before it along,
//     never leaving the root.
//
// So //login, /./login, /x/../login, /%6cogin and /%2flogin are all /login. Letters keep their
// case, a slash at the end stays, and the asterisk of OPTIONS * stays. What is forwarded is the
// target as it came: only rules see this form, and those in which other origins read the path,
// where there are any.
//
// Most paths are canonical already and are returned as they are, without a copy: the result is
// valid as long as target and buf.
func AppendPath(buf, target []byte) ([]byte, Interpretation) {
	path := RawPath(target)
	if IsCanonical(path) {
		return path, 0
	}
	if len(path) == 0 {
		return append(buf[:0], '/'), 0
	}
	return Canonicalize(buf[:0], path, 0)
}

// An Interpretation is how origins take a path that others take otherwise; they go together in any
// way. The edge cannot know which origin is behind it, so a rule is about a request if it is about
// any interpretation of its path: else /api/x%2f..%2f..%2fzzz would be /zzz for the rules and a
// page below /api/ for the origin.
type Interpretation uint8

const (
	// Nothing resolves .. (Express and what else routes on the raw path)
	upKept Interpretation = 1 << iota
	// An encoded slash or a backslash is a letter like others (GitLab's group%2fproject)
	SlashKept
	// A segment ends at its semicolon (servlets: /api/..;/x, /api;x/y)
	ParamsCut
	// //host/x is /x, as of a relative reference (new URL in JavaScript)
	HostCut
	// The path ends at its first semicolon, and what follows is the query (find-my-way: /api;/x)
	QueryCut

	// TooMany is no interpretation: origins disagree on what the path is in more ways than are
	// worth trying. Real clients send no such path: one with a .. that is, or goes back over, what
	// only some take for a segment; with a control byte, of which a null byte ends the path for
	// some and a line feed is overlooked by others' patterns; with encoded slashes within
	// parameters and without; with what only some decode (%u002f, a slash in overlong UTF-8); with
	// more than maxOddSegments segments that are empty, . or .., at which servers behind are slow.
	TooMany
)

// RawPath cuts query and fragment off, and scheme and authority of an absolute target.
func RawPath(target []byte) []byte {
	if i := bytes.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if len(target) > 0 && target[0] != '/' {
		if _, rest, ok := bytes.Cut(target, []byte("://")); ok {
			i := bytes.IndexByte(rest, '/')
			if i < 0 {
				return nil
			}
			return rest[i:]
		}
	}
	return target
}

func IsCanonical(path []byte) bool {
	if len(path) == 1 && path[0] == '*' {
		return true
	}
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	slash := false
	for _, c := range path {
		switch c {
		case '%', '\\', ';':
			return false
		case '/', '.':
			if slash { // "//", "/." of any kind: the slow way decides
				return false
			}
		}
		slash = c == '/'
	}
	return true
}

// Several is how many readings there are, beside the canonical one, if these are.
func (r Interpretation) Several() int {
	n := 1 << bits.OnesCount8(uint8(r&^TooMany))
	if r&semicolons == semicolons {
		n -= n / 4
	}
	return n - 1
}

// Has reports whether one of a path's readings is as.
func (r Interpretation) Has(as Interpretation) bool { return as&^r == 0 && as&semicolons != semicolons }

// semicolons are what servers do at one, of which each does one thing.
const semicolons = ParamsCut | QueryCut

// Canonicalize appends the path in one reading, where 0 is the canonical one. With that it finds
// the other readings.
func Canonicalize(out, path []byte, as Interpretation) ([]byte, Interpretation) {
	found := Interpretation(0)
	if i := bytes.IndexByte(path, ';'); i >= 0 {
		found = QueryCut
		if as&QueryCut != 0 {
			path = path[:i]
		}
	}
	if len(path) > 1 && path[0] == '/' && (path[1] == '/' || path[1] == '\\') {
		found |= HostCut
		if as&HostCut != 0 {
			path = bytes.TrimLeft(path, `/\`)
			if i := bytes.IndexAny(path, `/\`); i >= 0 {
				path = path[i+1:]
			} else {
				path = nil
			}
		}
	}
	var (
		segment = 1     // where the current segment begins in out
		coded   = false // it has an encoded dot
		doubted = false // not every server takes it for a separate segment
		cut     = false // it is over, what follows are its parameters
		odd     = false // there was one that is empty or doubted,
		empty   = 0     // segments that are empty, . or ..
		solid   = 0     // and so many since that a .. can go back over
		ups     [2]bool // there are .. segments, written so, and encoded
		param   = false // what comes are parameters, up to a plain slash
		// There are encoded slashes or backslashes, outside of parameters and within
		slashes [2]bool
	)
	out = append(out, '/')
	end := func() {
		switch s := out[segment:]; {
		case len(s) == 1 && s[0] == '.':
			empty++
			out = out[:segment]
			// A server that resolves first and decodes then goes back over it
			doubted = doubted || coded
		case len(s) == 2 && s[0] == '.' && s[1] == '.':
			empty++
			found |= upKept
			ups[0], ups[1] = ups[0] || !coded, ups[1] || coded
			if doubted || odd && solid == 0 || ups[0] && ups[1] {
				found |= TooMany
			}
			solid = max(solid-1, 0)
			if as&upKept != 0 {
				break
			}
			out = out[:max(segment-1, 0)]
			out = out[:bytes.LastIndexByte(out, '/')+1]
			if len(out) == 0 {
				out = append(out, '/')
			}
		default:
			solid++
		}
		if doubted {
			odd, solid = true, 0
		}
		segment = len(out)
	}
	last := byte(0)
	for i := 0; i < len(path); i++ {
		c, encoded := path[i], false
		if c == '%' && i+2 < len(path) {
			if high, low := Unhex(path[i+1]), Unhex(path[i+2]); high >= 0 && low >= 0 {
				c, encoded = byte(high<<4|low), true
				i += 2
			} else if i+3 < len(path) && path[i+1]|0x20 == 'u' && path[i+2] == '0' &&
				path[i+3] == '0' {
				found |= TooMany
			}
		}
		if c < ' ' || c == 0x7f || isOverlong(last, c) {
			found |= TooMany
		}
		last = c
		switch {
		case c == '/' && !encoded:
			param = false
		case c == '/' || c == '\\':
			found, doubted = found|SlashKept, true
			slashes[0], slashes[1] = slashes[0] || !param, slashes[1] || param
			switch {
			case as&SlashKept == 0:
			case cut:
				continue
			case c == '/':
				out = append(out, "%2f"...)
				continue
			default:
				out = append(out, c)
				continue
			}
		default:
			if c == ';' {
				if s := out[segment:]; len(s) == 2 && s[0] == '.' && s[1] == '.' {
					found |= TooMany
				}
				found, doubted, param = found|ParamsCut, true, true
				cut = cut || as&ParamsCut != 0
			}
			if !cut {
				coded = coded || encoded && c == '.'
				out = append(out, c)
			}
			continue
		}
		if len(out) == segment && i > 0 {
			doubted = true
			empty++
		}
		end()
		if out[len(out)-1] != '/' {
			out = append(out, '/')
		}
		// What follows an encoded slash belongs, for some, to the segment before it.
		segment, coded, doubted, cut = len(out), false, c != '/' || encoded, false
	}
	end()
	if empty > maxOddSegments || bits.OnesCount8(uint8(found)) > 3 || slashes[0] && slashes[1] {
		found |= TooMany
	}
	return out, found
}

// isOverlong reports whether two bytes are, or begin, a slash, a dot or a backslash in more bytes
// of UTF-8 than it needs. Other pairs may be letters of older encodings (GBK).
func isOverlong(first, second byte) bool {
	switch first {
	case 0xc0:
		return second == 0xae || second == 0xaf
	case 0xc1:
		return second == 0x9c
	case 0xe0:
		return second == 0x80 || second == 0x81
	case 0xf0:
		return second == 0x80
	}
	return false
}

func Unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
