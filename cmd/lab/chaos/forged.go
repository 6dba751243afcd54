package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"sluice/loadgen/lab"
)

// Guests that say that they are somebody else, or that are one and look like many.

const (
	proxyV2      = "\r\n\r\n\x00\r\nQUIT\n\x21"
	behindHeader = "PROXY TCP4 %s 192.0.2.1 4000 80\r\n"
)

// forged names another source in each request, in every header that proxies write. All must count as of one source, and none may reach the origin
// under a forged address.
func (st *stage) forged(ctx context.Context, edge *lab.Member, times int) error {
	c, err := guestTo(ctx, edge)
	if err != nil {
		return err
	}
	defer c.Close()
	began, admitted, r := time.Now(), 0, bufio.NewReader(c)
	for i := range times {
		forged := fmt.Sprintf("203.0.113.%d", i%256)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: demo.test\r\nX-Forwarded-For: %s\r\nX-Real-IP: %s\r\nForwarded: for=%s\r\nTrue-Client-IP: %s\r\n\r\n", forged, forged, forged, forged)
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return fmt.Errorf("loadgen: chaos: a guest with a forged source: %w", err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			admitted++
		}
	}
	due := int(st.limit) * int(1+time.Since(began)/st.window)
	st.find(admitted > due, "forged sources admitted", "admitted of %d requests with forged sources: %d of %d", times, admitted, due)
	return st.underForged(ctx)
}

// underForged finds how much came to the origin under a forged address.
func (st *stage) underForged(ctx context.Context) error {
	stats, err := st.reached(ctx)
	if err != nil {
		return err
	}
	under := 0
	for source, n := range stats.BySource {
		if strings.HasPrefix(source, "203.0.113.") {
			under += n
		}
	}
	st.find(under > 0, "forged sources at the origin", "under a forged address at the origin: %d of 0", under)
	return nil
}

// forgedProxy begins connections with PROXY headers, which nobody believes who is not trusted. Each must be refused: with 400, or with 429 once the
// source that it has is blocked, since they count.
func (st *stage) forgedProxy(ctx context.Context, edge *lab.Member, times int) error {
	refused := make(map[int]int)
	for i := range times {
		header := fmt.Sprintf("PROXY TCP4 203.0.113.%d 192.0.2.1 4000 80\r\n", i%256)
		if i%2 > 0 {
			header = string(append([]byte(proxyV2+"\x11\x00\x0c"), 203, 0, 113, byte(i), 192, 0, 2, 1, 15, 160, 0, 80))
		}
		status, err := once(ctx, guestAddr, edge, header, "")
		if err != nil {
			return err
		}
		refused[status]++
	}
	bad, blocked := refused[http.StatusBadRequest], refused[http.StatusTooManyRequests]
	st.find(bad == 0 || bad+blocked < times, "forged PROXY headers not refused", "of %d forged PROXY headers refused with 400: %d, with 429: %d", times, bad, blocked)
	return st.underForged(ctx)
}

// mapped has a trusted proxy name one client in all the ways in which an IPv4 address can be written. It must count as one source.
func (st *stage) mapped(ctx context.Context, edge *lab.Member, times int) error {
	client := netip.MustParseAddr("198.51.100.7")
	in6 := client.As16()
	behind := fmt.Sprintf(behindHeader, behindAddr)
	spellings := []struct{ header, more string }{
		{"PROXY TCP4 198.51.100.7 192.0.2.1 4000 80\r\n", ""},
		{"PROXY TCP6 ::ffff:198.51.100.7 2001:db8::1 4000 80\r\n", ""},
		{"PROXY TCP6 ::ffff:c633:6407 2001:db8::1 4000 80\r\n", ""},
		{proxyV2 + "\x11\x00\x0c" + string(client.AsSlice()) + "\xc0\x00\x02\x01\x0f\xa0\x00\x50", ""},
		{proxyV2 + "\x21\x00\x24" + string(in6[:]) + string(in6[:]) + "\x0f\xa0\x00\x50", ""},
		{behind, "X-Forwarded-For: 198.51.100.7\r\n"},
		{behind, "X-Forwarded-For: ::ffff:198.51.100.7\r\n"},
		{behind, "X-Forwarded-For: ::FFFF:C633:6407\r\n"},
	}
	began, seen := time.Now(), make(map[int]int)
	for i := range times {
		s := spellings[i%len(spellings)]
		status, err := once(ctx, proxyAddr, edge, s.header, s.more)
		if err != nil {
			return err
		}
		seen[status]++
	}
	admitted, due := seen[http.StatusOK], int(st.limit)*int(1+time.Since(began)/st.window)
	st.find(admitted > due, "mapped addresses admitted", "admitted of %d requests of one client, in %d spellings: %d of %d", times, len(spellings), admitted, due)
	st.find(admitted+seen[http.StatusTooManyRequests] < times, "mapped addresses misread", "of these answered with anything but 200 and 429: %d of 0", times-admitted-seen[http.StatusTooManyRequests])
	stats, err := st.reached(ctx)
	if err == nil {
		under := stats.BySource[client.String()]
		st.find(under != admitted, "mapped addresses at the origin", "at the origin under that address: %d of %d", under, admitted)
	}
	return err
}

// once asks an edge once, on a connection of its own that begins with a header, and returns the status; 0: there was no answer.
func once(ctx context.Context, from netip.Addr, edge *lab.Member, header, more string) (status int, err error) {
	c, err := guestFrom(ctx, from, edge)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	io.WriteString(c, header+"GET / HTTP/1.1\r\nHost: demo.test\r\n"+more+"Connection: close\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, nil
	}
	return answer.StatusCode, nil
}
