package rules_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// What is left, and what is refused, is in units of what requests cost.
func TestCost(t *testing.T) {
	o := edgetest.StartRecorder(t, func(_ int, request string) string {
		cost, _, _ := strings.Cut(strings.TrimPrefix(request, "POST /"), " ")
		line := ""
		for _, c := range strings.Split(cost, "+") {
			if c != "" {
				line += "X-Cost: " + c + "\r\n"
			}
		}
		return "HTTP/1.1 200 OK\r\n" + line + "X-Other: a\r\nContent-Length: 2\r\n\r\nok"
	})
	body := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", n, strings.Repeat("a", n)) }
	chunked := func(n int) string {
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("a", n))
	}
	type step struct {
		path, Rest string
		status     int
		left       string
	}
	for cost, steps := range map[string][]step{
		"4":             {{"", body(0), 200, "6"}, {"", body(9999), 200, "2"}, {"", body(0), 429, "0"}},
		"{bytes: 1KiB}": {{"", body(0), 200, "9"}, {"", body(1024), 200, "8"}, {"", body(1025), 200, "6"}, {"", chunked(3000), 200, "5"}, {"", body(0), 200, "2"}, {"", body(2049), 429, "0"}, {"", body(2048), 200, "0"}, {"", body(0), 429, "0"}},
		"{header: x-cost}": {{"", body(0), 200, "9"}, {"2", body(0), 200, "7"}, {"0", body(0), 200, "6"}, {"-3", body(0), 200, "5"}, {"2x", body(0), 200, "4"}, {"1+2", body(0), 200, "3"}, {"1000001", body(0), 200, "2"},
			{"1000000", body(0), 200, "0"}, {"1", body(0), 429, "0"}},
	} {
		t.Run(cost, func(t *testing.T) {
			e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 10, window: 1h, mitigation_timeout: 0, cost: "+cost+"}]\n")
			c := e.Talk()
			for n, s := range steps {
				resp, _ := c.Say("POST /" + s.path + " HTTP/1.1\r\nHost: a\r\n" + s.Rest)
				left := resp.Header.Get("X-RateLimit-Remaining")
				if resp.StatusCode != s.status || left != s.left && !strings.Contains(s.Rest, "chunked") { // which is settled when its body is there, or behind its answer
					t.Fatalf("request %d: %d, %s left, want %d, %s", n, resp.StatusCode, left, s.status, s.left)
				}
				if strings.HasPrefix(cost, "{h") != (resp.Header.Get("X-Cost") == "") && resp.StatusCode == 200 && s.path != "" || resp.StatusCode == 200 && resp.Header.Get("X-Other") != "a" {
					t.Errorf("request %d: the client gets %v", n, resp.Header)
				}
			}
		})
	}
}

// What a request costs is between the origin and the edge, wherever in an answer it stands; only the head of the answer itself is believed.
func TestCostIsNotToldToClients(t *testing.T) {
	o := edgetest.StartRecorder(t, func(int, string) string {
		return "HTTP/1.1 103 Early Hints\r\nX-Cost: 5\r\nLink: </x>\r\nX_Cost: 6\r\n\r\nHTTP/1.1 200 OK\r\nx-cost: 2\r\nX_cost: 2\r\nTransfer-Encoding: chunked\r\nTrailer: X-Cost, X-Sum\r\n\r\n" +
			"2\r\nok\r\n0\r\nX-Cost: 7\r\nX-Sum: a\r\n\r\n"
	})
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 10, window: 1h, cost: {header: x-cost}}]\n")
	c := e.Dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Link: </x>", "X-RateLimit-Remaining: 8", "X-Sum: a"} {
		if !strings.Contains(string(answer), line+"\r\n") {
			t.Errorf("no line %s: %q", line, answer)
		}
	}
	for line := range strings.Lines(strings.ReplaceAll(strings.ToLower(string(answer)), "_", "-")) {
		if strings.HasPrefix(line, "x-cost:") {
			t.Errorf("the client gets %q", line)
		}
	}
}

// A body that does not say its length counts for what has come of it, also if the origin answers before its end.
func TestCostOfABodyBehindItsAnswer(t *testing.T) {
	o := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.ReadFull(r.Body, make([]byte, 500))
		}
	})
	e := edgetest.Start(t, o, "rules: [{name: r, limit: 100, window: 1h, cost: {bytes: 10}}]\n")
	left := func(resp *http.Response, _ string) int {
		n, err := strconv.Atoi(resp.Header.Get("X-RateLimit-Remaining"))
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		return n
	}
	if n := left(e.Talk().Say("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n" + strings.Repeat("a", 500) + "\r\n")); n != 99 {
		t.Errorf("before its end: %d left, want 99", n)
	}
	for n := range 20 { // it ends on another connection, a moment behind its answer
		if got := left(e.Get("/")); got == 100-50-1-n {
			return
		}
	}
	t.Error("what came of the body does not count")
}
