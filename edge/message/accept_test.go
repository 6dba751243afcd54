package message

import (
	"strings"
	"testing"
)

func TestQuality(t *testing.T) {
	f := func(want int, contentType string, lines ...string) {
		t.Helper()
		var h Head
		for _, value := range lines {
			h.Lines = append(h.Lines, Line{Name: []byte("accept"), Value: []byte(value)})
		}
		if got := h.Quality(contentType); got != want {
			t.Errorf("%s where the client accepts %q: %d, want %d", contentType, lines, got, want)
		}
	}
	f(1000, "text/html") // it has said nothing
	f(1000, "text/html", "text/html")
	f(0, "text/html", "application/json")
	f(1000, "text/html; charset=utf-8", "TEXT/HTML;level=1")
	f(500, "text/html", "text/*;q=0.5")
	f(100, "text/html", "*/*;q=0.1, text/*;q=0.5", "text/html;q=0.1") // the narrowest
	f(0, "text/html", "*/*, text/html;q=0")
	f(0, "text/html", "text/html;q=0, text/*, */*")
	f(123, "text/html", "text/html; level=1 ; Q=0.123")
	f(1000, "text/html", "text/html;q=1.000")
	f(0, "text/html", "text/html;q=0.1234")
	f(0, "text/html", "text/html;q=.1")
	f(0, "text/html", "text/html;q=2")
	f(0, "text/html", "text/html;q=")
	f(0, "text/html", "")
	f(0, "text/html", "texts/*", "*")

	// What is long costs no more than what browsers send: it is read up to a bound, and no range by half.
	f(1000, "text/html", strings.Repeat(",", acceptRanges-1)+"text/html")
	f(0, "text/html", strings.Repeat(",", acceptRanges)+"text/html")
	f(0, "text/html", strings.Repeat(",", acceptRanges), "text/html")
	long := "text/plain;x=" + strings.Repeat("y", acceptBytes)
	f(0, "text/html", long+", text/html")
	f(0, "text/plain", long)
	f(1000, "text/html", "text/html, "+long)
	f(1000, "text/html", "text/plain;x="+strings.Repeat("y", acceptBytes/2), "text/html, text/plain;x="+strings.Repeat("y", acceptBytes/2))
	f(0, "text/html", "text/plain;x="+strings.Repeat("y", acceptBytes-20), "text/html;q=0.1234567")
}
