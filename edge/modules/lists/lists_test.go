package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/address"
	"sluice/edge/events"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func named(name string) Config {
	return Config{Name: name, Refresh: time.Minute, MaxEntries: 1000, MaxBytes: 1 << 16}
}

// begin has lists in force.
func begin(t *testing.T, b *Store, configs ...Config) map[string]*address.List {
	t.Helper()
	all, use, err := b.Prepare(configs)
	if err != nil {
		t.Fatal(err)
	}
	use()
	return all
}

func has(t *testing.T, l *address.List, addr string, want bool) {
	t.Helper()
	if got := l.Has(netip.MustParseAddr(addr)); got != want {
		t.Errorf("%s is in the list: %v, want %v", addr, got, want)
	}
}

// entriesOf is how many entries a text has and which prefixes they are, or what is wrong with it.
func entriesOf(c *Config, text string) string {
	l, n, err := parse(c, []byte(text))
	if err != nil {
		return err.Error()
	}
	got := fmt.Sprint(n)
	for p := range l.AllSorted() {
		got += " " + p.String()
	}
	return got
}

func TestParse(t *testing.T) {
	from := Config{File: "f", MaxEntries: 3}
	f := func(text, want string) {
		t.Helper()
		if got := entriesOf(&from, text); got != want {
			t.Errorf("%q\n got %s\nwant %s", text, got, want)
		}
	}
	f("", "0")
	f("\xef\xbb\xbf192.0.2.1\r\n\r\n# all\n 198.51.100.0/24 ; SBL1\n2001:db8::/32#x", "3 192.0.2.1/32 198.51.100.0/24 2001:db8::/32")
	f("::ffff:192.0.2.1\n192.0.2.1\n", "2 192.0.2.1/32")
	f("192.0.2.1\nnobody\n192.0.2.1/24\n", "f:2: \"nobody\" is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address; 2 of 3 entries are not")
	f("0.0.0.0/0", "f:1: 0.0.0.0/0 is every address: a list has some")
	f("fe80::1%eth0\n192.0.2.1", `f:1: "fe80::1%eth0" has a zone: write the address alone`)
	f("0.0.0.0/1\n2000::/3", "2 0.0.0.0/1 2000::/3")
	f("1.1.1.1\n1.1.1.2\n1.1.1.3\n1.1.1.4", "f:4: more than 3 entries: raise max_entries of the list, or shorten it")

	from = Config{URL: "http://u", MaxEntries: 3} // whoever answers there may err, and its words are for nobody else
	f("secret\n192.0.2.1/24\nfe80::1%eth0", "http://u:1: that is no address and no prefix; 3 of 3 entries are not")
	f("10.0.0.0/8\n2001::/16", "2 10.0.0.0/8 2001::/16")
	for _, wide := range []string{"0.0.0.0/0", "0.0.0.0/1", "192.0.0.0/2", "10.0.0.0/7", "::/0", "2000::/3", "::/1", "2a00::/15"} {
		f(wide, "http://u:1: a /"+wide[strings.Index(wide, "/")+1:]+" is too wide: from a URL, want at least /8, of IPv6 /16; a file may have it")
	}
	f("224.0.0.0/3\nfc00::/7\n4000::/2", "3 224.0.0.0/3 4000::/2 fc00::/7") // no client of the internet has such an address
}

// A file is in force whole or not at all, and a bad one leaves the last good content.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "partners")
	c := named("partners")
	c.File = File(file)
	happened := events.New(100, nil)
	b := &Store{Events: happened}
	if _, _, err := b.Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "lists: partners: open "+file) {
		t.Fatal(err)
	}
	write(t, file, "192.0.2.0/24\n")
	l := begin(t, b, c)["partners"]
	has(t, l, "192.0.2.9", true)
	has(t, l, "198.51.100.1", false)

	write(t, file, "198.51.100.1\noops\n")
	b.ReadFiles(t.Context())
	b.ReadFiles(t.Context())
	has(t, l, "192.0.2.9", true)
	if s := b.Status()[0]; s.Failures != 2 || s.Entries != 1 || !strings.Contains(s.Error, file+":2: \"oops\"") {
		t.Errorf("%+v", s)
	}
	write(t, file, "198.51.100.1\n198.51.100.2\n")
	b.ReadFiles(t.Context())
	has(t, l, "192.0.2.9", false)
	has(t, l, "198.51.100.2", true)
	if s := b.Status()[0]; s.Entries != 2 || s.Error != "" {
		t.Errorf("%+v", s)
	}
	if again := begin(t, b, c)["partners"]; again != l {
		t.Error("a list that stays as it is configured is another")
	}
	c.MaxBytes = 10
	if _, _, err := b.Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Error(err)
	}
	has(t, l, "198.51.100.2", true)
}

// A URL is asked for what is new; what it answered last outlives its failures, and the process.
func TestURL(t *testing.T) {
	var body, tag atomic.Value
	var status, asked, unchanged atomic.Int64
	body.Store("192.0.2.0/24\n")
	tag.Store(`"1"`)
	status.Store(200)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if code := int(status.Load()); code != 200 {
			w.WriteHeader(code)
			return
		}
		w.Header().Set("ETag", tag.Load().(string))
		if r.Header.Get("If-None-Match") == tag.Load() {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, body.Load())
	}))
	defer s.Close()
	c := named("tor")
	c.URL = URL(s.URL + "/list?key=secret")
	b := &Store{Dir: filepath.Join(t.TempDir(), "lists")}
	l := begin(t, b, c)["tor"]
	has(t, l, "192.0.2.1", true)
	var before time.Time // when the failures began
	again := func(addr string, want bool, failures uint64) {
		t.Helper()
		b.again(context.Background(), b.lists["tor"])
		has(t, l, addr, want)
		if got := b.Status()[0]; got.Failures != failures || strings.Contains(got.Error, "secret") {
			t.Errorf("%+v, want %d failures", got, failures)
		} else if got.FailingSince.IsZero() != (got.Error == "") || !before.IsZero() && got.Error != "" && got.FailingSince != before {
			t.Errorf("%+v, failing since %v before", got, before)
		} else {
			before = got.FailingSince
		}
	}
	again("192.0.2.1", true, 0)
	if unchanged.Load() != 1 {
		t.Error("it was sent again")
	}
	status.Store(503)
	again("192.0.2.1", true, 1)
	status.Store(200)
	tag.Store(`"2"`)
	body.Store("<html>sign in\n")
	again("192.0.2.1", true, 2)
	body.Store("")
	again("192.0.2.1", true, 3)
	body.Store("198.51.100.1\n")
	again("192.0.2.1", false, 3)
	has(t, l, "198.51.100.1", true)

	tried := c
	tried.URL = URL(s.URL + "/tried")
	if _, _, err := b.Prepare([]Config{tried}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	asked.Store(0)
	b.keep(b.lists["tor"])
	next := &Store{Dir: b.Dir}
	has(t, begin(t, next, c)["tor"], "198.51.100.1", true)
	c.URL = URL(s.URL + "/other")
	if _, _, err := next.Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "has no good copy of an earlier answer") {
		t.Errorf("the copy of another URL is used: %v", err)
	}
	if _, _, err := (&Store{}).Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "with state_dir") {
		t.Error(err)
	}
	begin(t, &Store{Offline: true}, c)
	if left, err := os.ReadDir(b.Dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v: want the copy of the URL in force alone", left, err)
	}
}

// A look takes no lock and allocates nothing.
func BenchmarkHas(b *testing.B) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "%d.%d.%d.0/24\n", 1+i>>16, i>>8&255, i&255)
	}
	t, _, err := parse(&Config{File: "f", MaxEntries: 1 << 20}, []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	l := new(address.List)
	l.Set(t)
	addrs, random := make([]netip.Addr, 1<<16), rand.New(rand.NewPCG(1, 2))
	for i := range addrs { // half of them are in it
		n := random.Uint32N(200_000)
		addrs[i] = netip.AddrFrom4([4]byte{byte(1 + n>>16), byte(n >> 8), byte(n), 7})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Has(addrs[i%len(addrs)])
	}
}

// answers is a client's way to a server of the test.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Run looks again after Refresh, sooner after a failure, and at once at a list that comes. Each change and each failure is
// told once.
func TestRun(t *testing.T) {
	var asked atomic.Int64
	client.Transport = answers(func(r *http.Request) (*http.Response, error) {
		if asked.Add(1) <= 3 {
			return nil, errors.New("no route")
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("192.0.2.1\n"))}, nil
	})
	defer func() { client.Transport = nil }()
	dir := t.TempDir()
	file, remote := named("partners"), named("tor")
	file.File, file.Refresh = File(filepath.Join(dir, "partners")), 5*time.Minute
	remote.URL, remote.Refresh = "http://lists.example/tor", time.Hour
	write(t, string(file.File), "192.0.2.0/24\n")
	keep := filepath.Join(dir, "kept")
	synctest.Test(t, func(t *testing.T) {
		b := &Store{Dir: keep, Events: events.New(100, nil)}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		all := begin(t, b, file)
		synctest.Wait()
		write(t, string(file.File), "192.0.2.0/24\noops\n")
		time.Sleep(4 * time.Minute)
		has(t, all["partners"], "192.0.2.9", true)
		if s := b.Status()[0]; s.Failures != 0 {
			t.Errorf("it was looked at before it was due: %+v", s)
		}
		time.Sleep(3*time.Minute + 10*time.Second)
		if s := b.Status()[0]; s.Failures != 3 {
			t.Errorf("%+v, want a failure after 5 minutes and each minute from then on", s)
		}
		write(t, string(file.File), "198.51.100.7\n")
		time.Sleep(time.Minute + time.Second)
		has(t, all["partners"], "198.51.100.7", true)

		if err := b.write(&list{Config: remote}, &answer{text: []byte("198.51.100.1\n")}); err != nil {
			t.Fatal(err)
		}
		all = begin(t, b, file, remote)
		has(t, all["tor"], "198.51.100.1", true) // its copy
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("the URL was asked %d times at once, want once", n)
		}
		time.Sleep(3*time.Minute + time.Second)
		has(t, all["tor"], "192.0.2.1", true)
		if s := b.Status()[1]; asked.Load() != 4 || s.Error != "" || s.Failures != 3 {
			t.Errorf("asked %d times: %+v", asked.Load(), s)
		}
		cancel()
		running.Wait()
		var told []string
		for _, e := range slices.Backward(b.Events.Since(0)) {
			told = append(told, e.Text)
		}
		want := []string{
			"list partners cannot be read: its last good content stays in force: " + string(file.File) + `:2: "oops" is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address`,
			"list partners has changed",
			"list tor cannot be read: its last good content stays in force: http://lists.example/tor: no route",
			"list tor has changed",
		}
		if !slices.Equal(told, want) {
			t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
	})
}

// hang is a server that never answers.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func ok(text string) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
}

// run has a Store run until the end of a test.
func run(t *testing.T, b *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// A URL that hangs delays neither other lists nor the end of Run or of a reload.
func TestHangingURL(t *testing.T) {
	var asked, hung atomic.Int64
	client.Transport = answers(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "hangs" {
			if hung.Add(1) == 1 {
				return ok("192.0.2.1\n"), nil
			}
			return hang(r)
		}
		asked.Add(1)
		return ok("192.0.2.2\n"), nil
	})
	defer func() { client.Transport = nil }()
	synctest.Test(t, func(t *testing.T) {
		a, c := named("a"), named("c")
		a.URL, a.Refresh = "http://hangs/", 5*time.Second
		c.URL, c.Refresh = "http://answers/", 5*time.Second
		b := new(Store)
		begin(t, b, a, c)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		time.Sleep(fetchTime + 4*time.Second) // from 5 s on the one hangs, until 25 s
		if asked.Load() != 5 || hung.Load() != 2 {
			t.Errorf("asked %d times, and the one that hangs %d times: want 5 and 2", asked.Load(), hung.Load())
		}
		time.Sleep(7 * time.Second)
		if s := b.Status()[0]; s.Failures != 1 || hung.Load() != 3 {
			t.Errorf("asked again %d times, %+v", hung.Load(), s)
		}
		began := time.Now()
		a.URL += "other"
		var reading sync.WaitGroup
		reading.Go(func() { b.Fetch(ctx, []Config{a})() })
		synctest.Wait()
		cancel()
		running.Wait()
		reading.Wait()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it ended after %v, want at once", waited)
		}
	})
}

// What a list had been told before it was replaced is of no concern.
func TestReplacedMeanwhile(t *testing.T) {
	client.Transport = answers(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "hangs" {
			return hang(r)
		}
		return ok("192.0.2.2\n"), nil
	})
	defer func() { client.Transport = nil }()
	synctest.Test(t, func(t *testing.T) {
		c := named("a")
		c.URL, c.Refresh = "http://hangs/", 5*time.Second
		b := &Store{Dir: t.TempDir(), Events: events.New(10, nil)}
		if err := b.write(&list{Config: c}, &answer{text: []byte("192.0.2.1\n")}); err != nil {
			t.Fatal(err)
		}
		begin(t, b, c)
		run(t, b)
		synctest.Wait()
		c.URL = "http://answers/"
		begin(t, b, c)
		time.Sleep(time.Minute)
		for _, e := range b.Events.Since(0) {
			t.Error(e.Text)
		}
	})
}

// Copies are of the lists in force, whoever prepares others meanwhile. Each is written when it has changed, and until that
// works.
func TestCopies(t *testing.T) {
	var asked atomic.Int64
	var said atomic.Pointer[answer]
	said.Store(&answer{text: []byte("192.0.2.1\n")})
	client.Transport = answers(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		a := said.Load()
		resp := ok(string(a.text))
		if tag := a.tags.ETag; tag != "" {
			resp.Header.Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				resp.StatusCode = http.StatusNotModified
			}
		}
		return resp, nil
	})
	defer func() { client.Transport = nil }()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "lists")
		c, other := named("a"), named("b")
		c.URL, other.URL = "http://lists.example/a", "http://lists.example/b"
		b := &Store{Dir: dir, Events: events.New(100, nil)}
		run(t, b)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		told := func(want ...string) {
			t.Helper()
			var got []string
			for _, e := range slices.Backward(b.Events.Since(0)) {
				got = append(got, e.Text)
			}
			if !slices.Equal(got, want) {
				t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		file := func(c Config) string { return filepath.Join(dir, (&list{Config: c}).copyName()) }
		copies := func(want ...Config) {
			t.Helper()
			synctest.Wait()
			var names, wanted []string
			files, _ := os.ReadDir(dir)
			for _, f := range files {
				names = append(names, filepath.Join(dir, f.Name()))
			}
			for _, c := range want {
				wanted = append(wanted, file(c))
			}
			if !slices.Equal(names, wanted) {
				t.Errorf("copies %q, want %q", names, wanted)
			}
		}

		forget := b.Fetch(t.Context(), []Config{c}) // of one reload
		begin(t, b, other)                          // another one
		copies(other)
		begin(t, b, c, other)
		forget()
		copies(c, other)
		begin(t, b, c)
		copies(c)

		written, err := os.Stat(file(c))
		if err != nil {
			t.Fatal(err)
		}
		asked.Store(0)
		pass(c.Refresh + time.Second)
		if now, err := os.Stat(file(c)); err != nil || !os.SameFile(now, written) || asked.Load() != 1 {
			t.Errorf("asked %d times, %v: the same is written again", asked.Load(), err)
		}

		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil { // so nothing can be written
			t.Fatal(err)
		}
		said.Store(&answer{[]byte("192.0.2.1\n192.0.2.2\n"), validators{ETag: `"2"`}})
		pass(3 * c.Refresh)
		told("list a has changed", "list a cannot be kept for the next start: mkdir "+dir+": not a directory")
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		pass(c.Refresh)
		copies(c)

		next := &Store{Dir: dir, Events: b.Events, Offline: true}
		has(t, begin(t, next, c)["a"], "192.0.2.2", true)
		whole, err := os.ReadFile(file(c))
		if err != nil {
			t.Fatal(err)
		}
		write(t, file(c), string(whole[:len(whole)-len("192.0.2.2\n")])) // half of it is a list, too
		begin(t, next)
		has(t, begin(t, next, c)["a"], "192.0.2.1", false)
		if err := errors.Join(os.Remove(file(c)), os.Mkdir(file(c), 0o700)); err != nil {
			t.Fatal(err)
		}
		begin(t, next)
		has(t, begin(t, next, c)["a"], "192.0.2.1", false)
		told("list a has changed", "list a cannot be kept for the next start: mkdir "+dir+": not a directory",
			"the copy of list a cannot be used: it is not as it was written",
			"the copy of list a cannot be used: open "+file(c)+": that is a folder")
	})
}

// What Fetch has read, Prepare does not read again, be it good or bad, until it is forgotten.
func TestFetch(t *testing.T) {
	asked, status := 0, 200
	client.Transport = answers(func(*http.Request) (*http.Response, error) {
		asked++
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader("192.0.2.1\n"))}, nil
	})
	defer func() { client.Transport = nil }()
	c := named("tor")
	c.URL = "http://lists.example/tor"
	b := new(Store)
	forget := b.Fetch(t.Context(), []Config{c})
	l := begin(t, b, c)["tor"]
	has(t, l, "192.0.2.1", true)
	forget()
	b.Fetch(t.Context(), []Config{c})()
	if begin(t, b, c)["tor"] != l || asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	c.URL, status = "http://lists.example/away", 503
	forget = b.Fetch(t.Context(), []Config{c})
	for range 2 {
		if _, _, err := b.Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "it answers 503") {
			t.Error(err)
		}
	}
	forget()
	if asked != 2 {
		t.Errorf("asked %d times, want twice", asked)
	}
	status = 200
	begin(t, b, c)
}

// A pipe in place of a file is an error at once: nobody may ever write to it.
func TestPipe(t *testing.T) {
	c := named("a")
	c.File = File(filepath.Join(t.TempDir(), "pipe"))
	if err := syscall.Mkfifo(string(c.File), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := new(Store).Prepare([]Config{c}); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v, want that it is no regular file", err)
	}
}

// A list stays at the host that is configured: whom the answer names next could be inside, and its words are for nobody
// else. Errors quote nothing of an answer.
func TestAnswers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host is asked") }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to := r.URL.Query().Get("to"); r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, to, http.StatusFound)
		case "/again":
			http.Redirect(w, r, "/again", http.StatusFound)
		case "/raw":
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, to)
		case "/big":
			_, _ = w.Write(make([]byte, 1<<17))
		default:
			fmt.Fprintln(w, "192.0.2.1")
		}
	}))
	defer s.Close()
	f := func(path, want string) {
		t.Helper()
		c := named("a")
		c.URL = URL(s.URL + path)
		_, _, err := new(Store).Prepare([]Config{c})
		got := "nil"
		if err != nil {
			got = strings.TrimSuffix(strings.TrimPrefix(err.Error(), "lists: a: "+c.Where()+": "), "; with state_dir, what was read last would be kept for such a start")
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", path, got, want)
		}
	}
	f("/redirect?to=/list", "nil")
	f("/again", "more than 5 redirects")
	f("/redirect?to="+elsewhere.URL+"/secret?secret", "it redirects to another host, "+elsewhere.URL+": if that is right, configure the URL there")
	f("/redirect?to="+strings.Replace(s.URL, "http:", "https:", 1), "it redirects to another host, "+strings.Replace(s.URL, "http:", "https:", 1)+": if that is right, configure the URL there")
	f("/raw?to=secret%0d%0a%0d%0a", "net/http: HTTP/1.x transport connection broken: malformed HTTP response …")
	f("/raw?to=HTTP/1.1+503+secret%0d%0aContent-Length:+0%0d%0a%0d%0a", "it answers 503 Service Unavailable")
	f("/raw?to=HTTP/1.1+599+secret%0d%0aContent-Length:+0%0d%0a%0d%0a", "it answers 599")
	f("/raw?to=HTTP/1.1+200+OK%0d%0aContent-Length:+20%0d%0a%0d%0a192.0.2.1%0a", "unexpected EOF")
	f("/raw?to=HTTP/1.1+304+Not+Modified%0d%0aContent-Length:+0%0d%0a%0d%0a", "it answers 304 Not Modified")
	f("/big", "more than 65536 bytes: raise max_bytes of the list, or shorten it")
}

// A plain URL may lead to the same over TLS, and no other way around.
func TestSameHost(t *testing.T) {
	f := func(from, to string, want bool) {
		t.Helper()
		a, errA := url.Parse(from)
		b, errB := url.Parse(to)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := sameHost(a, b); got != want {
			t.Errorf("from %s to %s: %v, want %v", from, to, got, want)
		}
	}
	f("http://a.example/1", "http://A.example:80/2", true)
	f("https://a.example:443/1", "https://a.example/2", true)
	f("http://a.example/1", "https://a.example/1", true)
	f("http://a.example:80/1", "https://a.example:443/1", true)
	f("https://a.example/1", "http://a.example/1", false)
	f("http://a.example:8080/1", "https://a.example/1", false)
	f("http://a.example/1", "http://a.example:22/1", false)
	f("http://a.example/1", "http://b.a.example/1", false)
	f("http://a.example/1", "ftp://a.example/1", false)
}
