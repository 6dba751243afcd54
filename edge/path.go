package edge

import "bytes"

const (
	// maxOddSegments bounds the segments of a path that are empty, . or .. once it is decoded.
	maxOddSegments = 64
	// maxPath bounds a path as it comes, in bytes: regular expressions of rules take 50 to 100 ns for each. Every server takes
	// targets of 8000 (RFC 9112, 3).
	maxPath = 8 << 10
)

// appendCanonicalPath appends the form of a request target's path that rules are matched against:
//
//   - everything from the first ? or # on is gone; an absolute target (http://host/path) is its path;
//   - percent-encodings are decoded, once: %6c is l and %2f is /; what is not an encoding stays;
//   - a backslash is a slash;
//   - several slashes are one; a . segment is gone; a .. segment takes the one before it along, never leaving the root.
//
// So //login, /./login, /x/../login, /%6cogin and /%2flogin are all /login. Letters keep their case, a slash at the end stays,
// and the asterisk of OPTIONS * stays. What is forwarded is the target as it came: only rules see this form.
//
// A path with more than maxOddSegments segments that are empty, . or .. has no such form: nil. Servers behind are slow at them.
//
// Most paths are canonical already and are returned as they are, without a copy: the result is valid as long as target
// and buf.
func appendCanonicalPath(buf, target []byte) []byte {
	path := rawPath(target)
	if isCanonical(path) {
		return path
	}
	if len(path) == 0 {
		return append(buf[:0], '/')
	}
	return canonicalize(buf[:0], path)
}

// rawPath cuts query and fragment off, and scheme and authority of an absolute target.
func rawPath(target []byte) []byte {
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

func isCanonical(path []byte) bool {
	if len(path) == 1 && path[0] == '*' {
		return true
	}
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	slash := false
	for _, c := range path {
		switch c {
		case '%', '\\':
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

func canonicalize(out, path []byte) []byte {
	out = append(out, '/')
	segment, odd := 1, 0 // where the current segment begins in out
	end := func() {
		switch s := out[segment:]; {
		case len(s) == 1 && s[0] == '.':
			odd++
			out = out[:segment]
		case len(s) == 2 && s[0] == '.' && s[1] == '.':
			odd++
			out = out[:max(segment-1, 0)]
			out = out[:bytes.LastIndexByte(out, '/')+1]
			if len(out) == 0 {
				out = append(out, '/')
			}
		}
		segment = len(out)
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			if high, low := unhex(path[i+1]), unhex(path[i+2]); high >= 0 && low >= 0 {
				c = byte(high<<4 | low)
				i += 2
			}
		}
		if c != '/' && c != '\\' {
			out = append(out, c)
			continue
		}
		if len(out) == segment && i > 0 {
			odd++
		}
		end()
		if out[len(out)-1] != '/' {
			out = append(out, '/')
		}
		segment = len(out)
	}
	if end(); odd > maxOddSegments {
		return nil
	}
	return out
}

func unhex(c byte) int {
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
