package message

import "bytes"

const (
	// acceptBytes and acceptRanges bound what is read of Accept, of which browsers send a fifth: it
	// is read once for each type that there is, for clients that are refused as well, and an HTTP/2
	// client says a long one in a few bytes.
	acceptBytes  = 1024
	acceptRanges = 64
)

// Quality is how much a client likes a content type, from 0 to 1000 (RFC 9110, 12.5.1): the q of
// the narrowest of its ranges that the type is in. Parameters of types do not matter.
func (h *Head) Quality(contentType string) (q int) {
	kind, _, _ := bytes.Cut([]byte(contentType), []byte{';'})
	kind = bytes.TrimSpace(kind)
	none, narrowest, bytesLeft, ranges := true, 0, acceptBytes, 0
	for i := range h.Lines {
		l := &h.Lines[i]
		if !EqualFold(l.Name, "accept") {
			continue
		}
		none = false
		value := l.Value
		if len(value) > bytesLeft {
			// No half of a range
			value = value[:max(0, bytes.LastIndexByte(value[:bytesLeft], ','))]
		}
		bytesLeft -= len(value)
		for rest, more := value, len(value) > 0; more && ranges < acceptRanges; ranges++ {
			var one []byte
			one, rest, more = bytes.Cut(rest, []byte{','})
			of, params, _ := bytes.Cut(one, []byte{';'})
			if n := narrow(bytes.TrimSpace(of), kind); n > narrowest {
				narrowest, q = n, weight(params)
			}
		}
	}
	if none {
		return 1000
	}
	return q
}

// SaysAccept reports whether a client says what it takes.
func (h *Head) SaysAccept() bool {
	for i := range h.Lines {
		if EqualFold(h.Lines[i].Name, "accept") {
			return true
		}
	}
	return false
}

// narrow is 3 if a range is the very type, 2 if it is all of its kind, 1 if it is everything, and 0
// if the type is not in it.
func narrow(of, kind []byte) int {
	slash := bytes.IndexByte(kind, '/') + 1
	switch {
	case bytes.EqualFold(of, kind):
		return 3
	case slash > 0 && len(of) == slash+1 && of[slash] == '*' &&
		bytes.EqualFold(of[:slash], kind[:slash]):
		return 2
	case string(of) == "*/*":
		return 1
	}
	return 0
}

// weight is q among the parameters of a range, in thousandths: 1000 without one, and 0 if it is no
// number of that kind.
func weight(params []byte) int {
	for more := len(params) > 0; more; {
		var one []byte
		one, params, more = bytes.Cut(params, []byte{';'})
		name, value, _ := bytes.Cut(bytes.TrimSpace(one), []byte{'='})
		if !EqualFold(name, "q") {
			continue
		}
		if len(value) == 0 || len(value) > 5 || value[0] != '0' && value[0] != '1' ||
			len(value) > 1 && value[1] != '.' {
			return 0
		}
		w, unit := int(value[0]-'0')*1000, 100
		for _, c := range value[min(2, len(value)):] {
			if c < '0' || c > '9' {
				return 0
			}
			w += int(c-'0') * unit
			unit /= 10
		}
		return min(w, 1000)
	}
	return 1000
}
