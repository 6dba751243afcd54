//go:build system

package ja4

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// Programs have the name that the specification gives to the bytes which they send, twice the same,
// and each another.
func TestProgramsHaveTheirNames(t *testing.T) {
	at, hellos := listen(t)
	url := "https://localhost:" + at[strings.LastIndexByte(at, ':')+1:] + "/"
	seen := make(map[string]string)
	for _, program := range []struct {
		name string
		args []string // after the program's; nil: Go itself
	}{
		{"go", nil},
		{"curl", []string{"-sk", url}},
		{"node", []string{"-e", "require('https').get('" + url + "', {rejectUnauthorized: false}, r => r.resume())"}},
		{"python3", []string{"-c", "import ssl, urllib.request as u; u.urlopen('" + url + "', context=ssl._create_unverified_context()).read()"}},
		{"chromium", []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--ignore-certificate-errors", "--user-data-dir=" + t.TempDir(), "--dump-dom", url}},
	} {
		t.Run(program.name, func(t *testing.T) {
			var names []string
			for range 2 {
				hellos.take()
				if program.args == nil {
					get(t, url)
				} else {
					run(t, program.name, program.args)
				}
				names = append(names, hellos.names(t)...)
			}
			slices.Sort(names)
			names = slices.Compact(names)
			t.Log(names)
			for _, name := range names {
				// A browser resumes what it had, or asks without a name: that is told apart
				if other, is := seen[name]; is {
					t.Errorf("%s is the name of %s as well", name, other)
				}
				seen[name] = program.name
			}
			if program.name != "chromium" && len(names) != 1 {
				t.Errorf("%d names, want 1", len(names))
			}
		})
	}
}

func get(t *testing.T, url string) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	edgetest.Must(t, err)
	resp.Body.Close()
}

func run(t *testing.T, program string, args []string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not on the PATH: its name is not tested here", program)
	}
	ctx, done := context.WithTimeout(context.Background(), 2*time.Minute)
	defer done()
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// heard are the hellos of connections, as bytes and by their names.
type heard struct {
	mu   sync.Mutex
	list []hello
}

type hello struct {
	bytes []byte
	name  Name
}

func (h *heard) take() (list []hello) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, h.list = h.list, nil
	return list
}

// names are those of the connections since take, each as the specification has it.
func (h *heard) names(t *testing.T) (names []string) {
	t.Helper()
	list := h.take()
	if len(list) == 0 {
		t.Fatal("no connection")
	}
	for _, one := range list {
		got, want := string(one.name[:]), bySpecification(one.bytes)
		if got != want {
			t.Errorf("%s, want %s of\n%x", got, want, one.bytes)
		}
		names = append(names, got)
	}
	return names
}

// A recorder remembers the first record that a client sends, which is its hello.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.mu.Lock()
	r.sent = append(r.sent, b[:n]...)
	r.mu.Unlock()
	return n, err
}

type recording struct{ net.Listener }

func (l recording) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &recorder{Conn: c}, nil
}

// listen serves HTTPS, and remembers each hello.
func listen(t *testing.T) (address string, h *heard) {
	t.Helper()
	h = new(heard)
	base := filepath.Join(t.TempDir(), "a")
	edgetest.WriteCertificate(t, base, "localhost")
	certificate, err := tls.LoadX509KeyPair(base+".crt", base+".key")
	edgetest.Must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})}
	go func() {
		_ = server.Serve(tls.NewListener(recording{ln}, &tls.Config{
			Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"},
			GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
				c := info.Conn.(*recorder)
				c.mu.Lock()
				sent := bytes.Clone(c.sent)
				c.mu.Unlock()
				h.mu.Lock()
				h.list = append(h.list, hello{sent, Of(info)})
				h.mu.Unlock()
				return nil, nil
			}}))
	}()
	t.Cleanup(func() { server.Close() })
	return ln.Addr().String(), h
}

// bySpecification is the name of a hello as technical_details/JA4.md says it, of its bytes alone.
func bySpecification(record []byte) string {
	var handshake []byte // of as many records as it takes
	for rest := record; len(rest) > 5 && rest[0] == 22; {
		n := int(binary.BigEndian.Uint16(rest[3:]))
		handshake = append(handshake, rest[5:min(len(rest), 5+n)]...)
		rest = rest[min(len(rest), 5+n):]
	}
	take := func(b *[]byte, lengthBytes int) []byte {
		n := 0
		for _, c := range (*b)[:lengthBytes] {
			n = n<<8 | int(c)
		}
		field := (*b)[lengthBytes : lengthBytes+n]
		*b = (*b)[lengthBytes+n:]
		return field
	}
	numbers := func(b []byte) (list []string) {
		for ; len(b) > 1; b = b[2:] {
			if text := hex.EncodeToString(b[:2]); text[1] != 'a' || text[:2] != text[2:] {
				list = append(list, text)
			}
		}
		return list
	}
	rest := handshake[1:]
	body := take(&rest, 3)[2+32:] // after version and random
	take(&body, 1)                // session
	ciphers := numbers(take(&body, 2))
	take(&body, 1) // compression
	var types, schemes []string
	version, protocol, named := "00", "00", "i"
	for extensions := take(&body, 2); len(extensions) > 0; {
		kind := numbers(extensions[:2])
		extensions = extensions[2:]
		content := take(&extensions, 2)
		if len(kind) == 0 {
			continue // it means nothing (GREASE)
		}
		types = append(types, kind[0])
		switch kind[0] {
		case "0000":
			named = "d"
		case "000d":
			schemes = numbers(content[2:])
		case "0010":
			content = content[2:]
			first := take(&content, 1)
			protocol = string([]byte{first[0], first[len(first)-1]})
		case "002b":
			version = map[string]string{"0304": "13", "0303": "12"}[slices.Max(numbers(content[1:]))]
		}
	}
	sum := func(text string) string {
		h := sha256.Sum256([]byte(text))
		return hex.EncodeToString(h[:6])
	}
	a := fmt.Sprintf("t%s%s%02d%02d%s", version, named, len(ciphers), len(types), protocol)
	slices.Sort(ciphers)
	types = slices.DeleteFunc(types, func(kind string) bool { return kind == "0000" || kind == "0010" })
	slices.Sort(types)
	return a + "_" + sum(strings.Join(ciphers, ",")) + "_" +
		sum(strings.Join(types, ",")+"_"+strings.Join(schemes, ","))
}
