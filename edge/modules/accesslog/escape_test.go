package accesslog

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// What a client writes moves no terminal's cursor, turns no text round and ends no line, for whoever reads the log and however; and it is
// found there as it was.
func TestAppendJSONText(t *testing.T) {
	for _, text := range []string{"plain", "a\"b\\c\td", "\x1b[2J\x7f", "caf\u00e9 \u65e5\u672c \U0001f600", "\u009b2J\u0085\u2028\u2029\u202e\u200b\ufeff\U000e0041"} {
		line := `"` + string(appendJSONText(nil, []byte(text))) + `"`
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is written as %q", text, line)
		}
		var read string
		if err := json.Unmarshal([]byte(line), &read); err != nil || read != text {
			t.Errorf("%q is read as %q, %v", text, read, err)
		}
	}
	if got := string(appendJSONText(nil, []byte("\xff\x9b"))); got != "\ufffd\ufffd" {
		t.Errorf("%q", got)
	}
}

// A password that a client writes before a host is not written down, and all else is.
func TestWithoutUser(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "/a@b": "/a@b", "//u:p@h/": "//u:p@h/", "*": "*", "h": "h", "h:80": "h:80",
		"http://u:p@h/x?a@b": "http://h/x?a@b", "http://h/a@b": "http://h/a@b", "http://h?a@b": "http://h?a@b", "http://a@u:p@h": "http://h",
		"ftp://u@h/": "ftp://h/", "u:p@h:443": "h:443", "u:p@h": "h", "u:p@h//x": "h//x", "x?u:p@h": "x?u:p@h", "http://u:p@": "http://",
	} {
		if got := string(withoutUser([]byte(text))); got != want {
			t.Errorf("%q is written as %q, want %q", text, got, want)
		}
	}
}
