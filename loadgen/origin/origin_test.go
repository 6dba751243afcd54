package origin

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOriginCountsBySource(t *testing.T) {
	o := &Server{Status: 201, Size: 20}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- o.Serve(ln) }()
	base := "http://" + ln.Addr().String()

	client := &http.Client{Transport: &http.Transport{}}
	get := func(path, forwarded string) (int, string) {
		t.Helper()
		q, err := http.NewRequest("GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if forwarded != "" {
			q.Header.Set("X-Forwarded-For", forwarded)
		}
		a, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(b)
	}
	for _, forwarded := range []string{"192.0.2.1", "192.0.2.1, 127.0.0.1", "192.0.2.2,10.0.0.1", "", strings.Repeat("x", 99)} {
		if status, body := get("/", forwarded); status != 201 || body != "0123456789abcdef0123" {
			t.Errorf("answered %d %q", status, body)
		}
	}
	for path, size := range map[string]int{"0": 0, "17": 17, "100000": 100_000, "-1": 20, "x": 20} {
		if status, body := get(BytesPath+path, "192.0.2.3"); status != 201 || len(body) != size {
			t.Errorf("asked for %s: %d, %d bytes", path, status, len(body))
		}
	}
	for _, name := range []string{"a", "b", "b"} {
		get(OncePath+name, "192.0.2.4")
	}
	status, body := get(StatsPath, "192.0.2.1")
	var got Stats
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("stats: %d %q: %v", status, body, err)
	}
	want := Stats{Received: 13, Others: 1, BySource: map[string]int{"192.0.2.1": 2, "192.0.2.2": 1, "192.0.2.3": 5, "192.0.2.4": 3, "": 1}, Most: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	client.CloseIdleConnections()
	if err := o.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}
