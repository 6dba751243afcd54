//go:build system

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/pop/across"
)

// Strangers who flood a listener of operators or peers cut nobody off whose request is under way and who has shown that he knows the token or
// the peers' secret: what such a client had sent half of before the flood is answered after it. There are strangers who say nothing, who have
// sent a part of a head, and who announce a body and do not send it.
func TestStrangersPushOutNobody(t *testing.T) {
	t.Parallel()
	const strangers = 120
	dir, secret, peers := t.TempDir(), "a token of operators", freePort(t)
	for name, text := range map[string]string{"token": secret, "peers": peersKey, "pop": popKey} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	p := start(t, origin(t), "--memcached", startMemcached(t), "--config", write(t, fmt.Sprintf("admin_token_file: %[1]s/token\n"+
		"pop: {name: ams, secret_file: %[1]s/pop, peers: [{name: fra, edges: [\"127.0.0.1:1\"]}], peers_listen: %[2]q, peers_secret_file: %[1]s/peers}\n"+
		"rules: [{name: all, limit: 5}]\n", dir, peers)))
	key := across.KeyOf([]byte(peersKey))
	for name, friend := range map[string]struct {
		address string
		says    func() (head, body string)
	}{
		"operators": {p.back, func() (head, body string) {
			return "PUT /v1/mitigations/all/192.0.2.1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + secret + "\r\n", `{"for": "1m"}`
		}},
		"peers": {peers, func() (string, string) {
			body, mac := key.Seal(&across.Message{From: "fra", To: "ams", Edge: "e", At: time.Now()})
			return "POST /v1/blocks HTTP/1.1\r\nHost: a\r\nSluice-Signature: " + mac + "\r\nSluice-Ticket: " + key.Ticket("ams", time.Now()) + "\r\n", string(body)
		}},
	} {
		head, _ := friend.says()
		for what, begins := range map[string]string{
			"nothing": "", "a part of a head": "GET / HTTP/1.1\r\nHost: localh",
			"a head": strings.SplitN(head, "\r\n", 2)[0] + "\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n",
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				dial := func() net.Conn {
					c, err := net.Dial("tcp", friend.address)
					must(t, err)
					t.Cleanup(func() { c.Close() })
					must(t, c.SetDeadline(time.Now().Add(patience)))
					return c
				}
				ours := dial()
				head, body := friend.says()
				fmt.Fprintf(ours, "%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", head, len(body))
				said := bufio.NewReader(ours)
				if resp, err := http.ReadResponse(said, nil); err != nil || resp.StatusCode != 100 { // it is under way
					t.Fatal(resp, err)
				}
				for range strangers {
					c := dial()
					_, _ = io.WriteString(c, begins)
					if strings.HasSuffix(begins, "\r\n\r\n") { // it is taken, or refused
						if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 100 && resp.StatusCode != 401 {
							t.Fatal(resp, err)
						}
					}
				}
				last := dial() // connections are accepted in order
				_, _ = io.WriteString(last, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if _, err := http.ReadResponse(bufio.NewReader(last), nil); err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(ours, body)
				if resp, err := http.ReadResponse(said, nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v, %v", resp, err)
				}
			})
		}
	}
}
