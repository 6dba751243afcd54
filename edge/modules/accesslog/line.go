package accesslog

import (
	"bytes"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sluice/edge"
)

const (
	// maxField is how many bytes are written of each name and value that a client sent. What is cut
	// ends in cutMark.
	maxField = 1024
	cutMark  = "…"
)

// appendCombined appends a line as Apache and nginx write it.
func appendCombined(b []byte, e *edge.Outcome, sample uint64) []byte {
	b = e.Client.AppendTo(b)
	b = append(b, " - - ["...)
	b = e.At.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	if e.Head.Method == nil {
		b = append(b, "- - -"...)
	} else {
		b = appendEscaped(b, e.Head.Method)
		b = append(b, ' ')
		b = appendEscaped(b, withoutUser(e.Head.Target))
		b = append(b, ' ')
		b = appendEscaped(b, e.Version)
	}
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	b = append(b, ' ')
	if n := e.Length; n >= 0 {
		b = strconv.AppendInt(b, n, 10)
	} else {
		b = append(b, '-')
	}
	for _, name := range [...]string{"referer", "user-agent"} {
		b = append(b, ` "`...)
		if v := e.Head.Head.First(name); len(v) > 0 {
			if name == "referer" {
				v = withoutUser(v)
			}
			b = appendEscaped(b, v)
		} else {
			b = append(b, '-')
		}
		b = append(b, '"')
	}
	if sample > 1 {
		b = append(b, " sample="...)
		b = strconv.AppendUint(b, sample, 10)
	}
	return append(b, '\n')
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// appendJSON appends a line that is an object, with why.
func appendJSON(b []byte, e *edge.Outcome, edge string, sample uint64) []byte {
	b = append(b, `{"time":"`...)
	b = e.At.UTC().AppendFormat(b, timeFormat)
	b = append(b, `","t":`...)
	b = strconv.AppendFloat(b, float64(e.At.UnixMicro())/1e6, 'f', 6, 64)
	b = appendText(b, "id", e.ID)
	b = appendText(b, "edge", []byte(edge))
	b = append(b, `,"source":"`...)
	b = e.Client.AppendTo(b)
	b = append(b, '"')
	if e.Head.Method != nil {
		b = appendText(b, "host", withoutUser(e.Head.RawHost))
		b = appendText(b, "method", e.Head.Method)
		b = appendText(b, "path", withoutUser(e.Head.Target))
		b = appendText(b, "referer", withoutUser(e.Head.Head.First("referer")))
		b = appendText(b, "user_agent", e.Head.Head.First("user-agent"))
	}
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	if n := e.Length; n >= 0 {
		b = append(b, `,"bytes":`...)
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, `,"seconds":`...)
	b = strconv.AppendFloat(b, time.Since(e.At).Seconds(), 'f', 6, 64)
	b = appendName(b, "from", e.From)
	if len(e.Version) > 0 {
		b = append(b, `,"protocol":"`...)
		b = appendJSONText(b, e.Version)
		b = append(b, '"')
	}
	b = appendName(b, "rule", e.Rule)
	b = appendName(b, "policy", e.Policy)
	b = appendName(b, "verdict", e.Verdict)
	b = appendName(b, "action", e.Action)
	if e.Key != nil {
		b = appendText(b, "key", e.Key)
		b = appendText(b, "key_of", []byte(e.KeyOf))
		b = appendText(b, "key_start", e.KeyStart)
	}
	if e.Facts != nil {
		for i := 0; ; i++ {
			f, value := e.Facts.Found(i)
			if f == nil {
				break
			}
			if f.Numbers && len(value) > 0 {
				b = append(append(append(append(b, `,"`...), f.Name...), `":`...), value...)
				continue
			}
			b = appendText(b, f.Name, value)
		}
	}
	if e.Limit > 0 {
		b = append(b, `,"estimate":`...)
		b = strconv.AppendFloat(b, e.Estimate, 'f', 2, 64)
		b = append(b, `,"limit":`...)
		b = strconv.AppendUint(b, uint64(e.Limit), 10)
		b = append(b, `,"window":`...)
		b = strconv.AppendFloat(b, e.Window.Seconds(), 'f', -1, 64)
	}
	if !e.Until.IsZero() {
		b = append(b, `,"until":"`...)
		b = e.Until.UTC().AppendFormat(b, timeFormat)
		b = append(b, '"')
	}
	b = appendName(b, "by", e.By)
	b = appendText(b, "who", []byte(e.Who))
	b = appendText(b, "reason", []byte(e.Reason))
	if sample > 1 {
		b = append(b, `,"sample":`...)
		b = strconv.AppendUint(b, sample, 10)
	}
	return append(b, "}\n"...)
}

// appendText appends a field of what a client sent, unless it is empty, and appendName one of a
// name of ours, in which there is nothing to escape.
func appendText(b []byte, field string, text []byte) []byte {
	if len(text) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":"`...)
	return append(appendJSONText(b, text), '"')
}

func appendName(b []byte, field, name string) []byte {
	if name == "" {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":"`...)
	return append(append(b, name...), '"')
}

const hexDigits = "0123456789abcdef"

// withoutUser is a URL, an authority or a path without the user and the password that may be before
// its host. Requests with any are refused, and the log is no place for a password.
func withoutUser(text []byte) []byte {
	if len(text) == 0 || text[0] == '/' || bytes.IndexByte(text, '@') < 0 {
		return text
	}
	start, end := 0, len(text)
	if i := bytes.Index(text, []byte("//")); i >= 0 && !bytes.ContainsAny(text[:i], "/?#@") {
		start = i + len("//")
	}
	if i := bytes.IndexAny(text[start:], "/?#"); i >= 0 {
		end = start + i
	}
	at := bytes.LastIndexByte(text[start:end], '@')
	if at < 0 {
		return text
	}
	return slices.Concat(text[:start], text[start+at+1:])
}

// appendEscaped writes what a client sent so that it stays within its quotes and its line, as nginx
// and Apache do.
func appendEscaped(b, text []byte) []byte {
	text, cut := cutField(text)
	for _, c := range text {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			continue
		}
		b = append(b, c)
	}
	return append(b, cut...)
}

// cutField returns what is written of a field, and the mark that comes after it.
func cutField(text []byte) ([]byte, string) {
	if len(text) <= maxField {
		return text, ""
	}
	return text[:maxField], cutMark
}

// appendJSONText writes text as the inside of a JSON string; bytes that are no UTF-8 become U+FFFD.
// What is not to be seen is escaped: some readers take U+0085 or U+2028 for the end of a line, and
// a terminal obeys U+009B.
func appendJSONText(b, text []byte) []byte {
	text, cut := cutField(text)
	for len(text) > 0 {
		c := text[0]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune(text)
			if unicode.IsPrint(r) {
				b = utf8.AppendRune(b, r)
			} else {
				var units [2]uint16
				for _, u := range utf16.AppendRune(units[:0], r) {
					b = append(b, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15],
						hexDigits[u>>4&15], hexDigits[u&15])
				}
			}
			text = text[n:]
			continue
		}
		text = text[1:]
	}
	return append(b, cut...)
}
