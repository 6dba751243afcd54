package rules

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

var (
	parsers   = flag.String("parsers", "", "ask real servers' parsers; in this directory are their packages of Node (make spellings)")
	seed      = flag.Uint64("seed", 1, "of the spellings that they are asked about")
	spellings = flag.Int("spellings", 30_000, "how many")
	record    = flag.Bool("record", false, "keep what they have answered in testdata/spellings.jsonl")
)

// A field is something that rules look at, as one of the requests of the search has it.
type field struct {
	name     string
	reads    string   // what the parsers call it
	real     []string // what tells a client, or is asked for; a spelling of one is a spelling of that one
	plain    string   // the request as honest clients write it, with REAL for what is real
	key      string   // "": it is only asked for
	match    func(real string) match.Config
	bare     bool     // what is real is not part of the target, and may be spelled as header lines are
	noise    []string // beside what is tried everywhere
	wordings []string // other forms of plain
}

const jws = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlIG9mIGEgdG9rZW4"

var searched = []field{
	{name: "a header", reads: "x-api-key", real: []string{"kEy+0/1-REAL=="}, plain: "GET / HTTP/1.1\r\nX-Api-Key: REAL\r\n", key: "header:x-api-key", bare: true,
		match: func(real string) match.Config {
			return match.Config{Headers: map[string]match.Value{"x-api-key": {Text: real}}}
		},
		wordings: []string{"GET / HTTP/1.1\r\nX_Api_Key: REAL\r\n", "GET / HTTP/1.1\r\nX-Api-Key: REAL\r\nX-Api-Key: FAKE\r\n"}},
	{name: "a token", reads: "authorization", real: []string{"t0k.REAL/q+w", jws}, plain: "GET / HTTP/1.1\r\nAuthorization: Bearer REAL\r\n", key: "header:authorization", bare: true,
		match: func(real string) match.Config {
			return match.Config{Headers: map[string]match.Value{"authorization": {Text: "Bearer " + real}}}
		},
		noise: []string{"Bearer ", "bearer", "Token token=", "x=", ", x=NNN", "NNN ", " NNN", "=", "==", "!", "JWT ", "~", "-"},
		wordings: []string{"GET / HTTP/1.1\r\nAuthorization: REAL\r\n", "GET / HTTP/1.1\r\nAuthorization: sNNN REAL\r\n", "GET / HTTP/1.1\r\nAuthorization: Token token=\"REAL\", x=NNN\r\n",
			"GET / HTTP/1.1\r\nAuthorization: Bearer token=REAL; x=NNN\r\n", "GET / HTTP/1.1\r\nAuthorization: Bearer REAL NNN\r\n", "GET / HTTP/1.1\r\nAuthorization: JWT REAL\r\n"}},
	{name: "Basic", reads: "authorization", real: []string{"user ann:s3cret!?>"}, plain: "GET / HTTP/1.1\r\nAuthorization: Basic REAL\r\n", key: "header:authorization", bare: true,
		match: func(real string) match.Config {
			return match.Config{Headers: map[string]match.Value{"authorization": {Text: "Basic " + basic(real)}}}
		},
		noise: []string{"=", "==", "!", "-", "_", "=NNN", " NNN"}, wordings: []string{"GET / HTTP/1.1\r\nAuthorization: basic   REAL\r\n"}},
	{name: "a cookie", reads: "session", real: []string{"s:3ss10n.REAL", "s%3ess%2fREAL", "eyJ1IjoxfQ.aSQ1XQ.c2lnbmF0dXJlIG9mIGEgc2Vzc2lvbg"}, plain: "GET / HTTP/1.1\r\nCookie: session=REAL\r\n", key: "cookie:session", bare: true,
		match: func(real string) match.Config {
			return match.Config{Cookies: map[string]match.Value{"session": {Text: real[:1] + "*"}}}
		},
		noise: []string{"session=REAL", "session=FAKE", "; session=REAL", "; session=FAKE", ", session=REAL", ",session=REAL", " session=REAL", "$Version=1; ", "; $Path=/", "a=b; ", "; c=d", "j:", "j%3a", "%22", `\141`, "s:", "\r\nCookie: "},
		wordings: []string{"GET / HTTP/1.1\r\nCookie: \xa0session=REAL; session=FAKE\r\n", "GET / HTTP/1.1\r\nCookie: session=FAKE; \xc2\xa0session=REAL\r\n", "GET / HTTP/1.1\r\nCookie: $Version=1;x=y,session=REAL; session=FAKE\r\n",
			"GET / HTTP/1.1\r\nCookie: a=b; session=\"REAL\"; c=d\r\n", "GET / HTTP/1.1\r\nCookie: session=j:\"REAL\"\r\n", "GET / HTTP/1.1\r\nCookie: session=FAKE; a=b session=REAL\r\n",
			"GET / HTTP/1.1\r\nCookie: a=b\r\nCookie: session=REAL\r\n", "GET / HTTP/1.1\r\nCookie: a=\"; session=FAKE; \"; session=REAL\r\n"}},
	{name: "a parameter", reads: "key", real: []string{"kEy0.REAL", "k y=?"}, plain: "GET /a?key=REAL HTTP/1.1\r\n", key: "query:key",
		match: func(string) match.Config { return match.Config{Query: map[string]match.Value{"key": {Text: "k*"}}} },
		noise: []string{"key=REAL", "key=FAKE", "&key=FAKE", "&key=REAL", ";key=REAL", "&a=b", "a=b&", "?", "]=", "=", "[0]", "__proto__", "%u006b"},
		wordings: []string{"GET /a?[key]=REAL HTTP/1.1\r\n", "GET /a?%5Bkey%5D=REAL HTTP/1.1\r\n", "GET /a?key]=REAL HTTP/1.1\r\n", "GET /a;key=REAL HTTP/1.1\r\n", "GET /a?key[]=REAL HTTP/1.1\r\n",
			"GET /a;key=FAKE?key=REAL HTTP/1.1\r\n", "GET /a?[key]=REAL&key=FAKE HTTP/1.1\r\n", "GET /a?a=b;key=REAL HTTP/1.1\r\n"}},
	{name: "a character set", reads: "key", real: []string{"kEy0.x"}, plain: "GET /a?key=REAL HTTP/1.1\r\nContent-Type: text/plain; charset=utf-8\r\n", key: "query:key", bare: true,
		match: func(string) match.Config { return match.Config{Query: map[string]match.Value{"key": {Text: "k*"}}} },
		noise: []string{"; ", "charset", "charset=", "; charset=utf-7", "; charset=hz", "*", "=", "-7", "utf-8", ";charset=UTF-8", "\r\nContent-Type: ", "latin1"},
		wordings: []string{"GET /a?key=+AGs-Ey0.x HTTP/1.1\r\nContent-Type: text/plain; charset=utf-7\r\n", "GET /a?+AGs-ey=REAL HTTP/1.1\r\nContent-Type: text/plain; charset=\"utf-7\"\r\n",
			"GET /a?key=~{~}REAL HTTP/1.1\r\nContent-Type: text/plain;charset=hz\r\n", "GET /a?key=%1b(BREAL HTTP/1.1\r\nContent-Type: text/plain; charset=iso2022_jp\r\n",
			"GET /a?key=REAL- HTTP/1.1\r\nContent-Type: text/plain; charset=punycode\r\n", "GET /a?key=REAL HTTP/1.1\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"}},
	{name: "a condition", reads: "q", real: []string{"login"}, plain: "GET /c?q=REAL HTTP/1.1\r\n",
		match:    func(real string) match.Config { return match.Config{Query: map[string]match.Value{"q": {Text: real}}} },
		noise:    []string{"q=REAL", "&q=FAKE", "&q=REAL", ";q=REAL", "&a=b", "a=b&", "?", "]=", "[]"},
		wordings: []string{"GET /c?[q]=REAL HTTP/1.1\r\n", "GET /c?%5Bq%5D=REAL HTTP/1.1\r\n", "GET /c;q=REAL HTTP/1.1\r\n", "GET /c?q]=REAL HTTP/1.1\r\n", "GET /c;q=REAL?q=FAKE HTTP/1.1\r\n"}},
	{name: "a path", reads: "path", real: []string{"/login"}, plain: "GET REAL HTTP/1.1\r\n",
		match:    func(string) match.Config { return match.Config{Path: "~(?i)^/login/?$"} }, // as docs/rules/matching.md has it for origins like these
		noise:    []string{"/", ";", ";/", ";x=NNN", "/..", "/.", "..", "?", "/x/..", "%2f", "//"},
		wordings: []string{"GET REAL;/x HTTP/1.1\r\n", "GET REAL;NNN/x HTTP/1.1\r\n", "GET http://aREAL HTTP/1.1\r\n", "GET //xREAL HTTP/1.1\r\n"}},
}

func basic(real string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(real, "user ")))
}

// noise is tried everywhere.
var noise = []string{" ", "\t", "\xa0", "\xc2\xa0", "\x85", "\xc2\x85", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xff", "\x0b", "\x1c", `"`, `""`, "'", ",", ";", "+", "%20", "%2B", "%09", "%0a", "%00", "%C2%A0", "%EF%BB%BF",
	"%85", "%a0", "[", "]", "%5B", "%5D", "[[", "]]", ".", "_", "\\", "NNN", "xNNN", "=", "&", "%", "%zz", "%41", "#", "{", "(", "%E3%80%80", "%e2%80%8b"}

// spell writes the n-th spelling of a field.
func (f *field) spell(r *rand.Rand, n int) (request, real string) {
	real = f.real[r.IntN(len(f.real))]
	form := f.plain
	if len(f.wordings) > 0 && r.IntN(2) == 0 {
		form = f.wordings[r.IntN(len(f.wordings))]
	}
	pieces := slices.Concat(noise, f.noise, f.noise)
	at, end := strings.Index(form, "\r\n")+2, len(form)-2 // the lines that follow
	if !f.bare {
		at, end = len("GET "), strings.Index(form, " HTTP/")
	}
	text := form[at:end]
	for range r.IntN(4) {
		i := r.IntN(len(text) + 1)
		if r.IntN(3) == 0 { // beside what is real, and not anywhere
			if j := strings.Index(text, "REAL"); j >= 0 {
				i = j + 4*r.IntN(2)
			}
		}
		switch piece := pieces[r.IntN(len(pieces))]; r.IntN(8) {
		case 0: // another letter
			if i < len(text) && (text[i]|0x20) >= 'a' && (text[i]|0x20) <= 'z' && f.name != "a path" && !strings.Contains("REALNFK", text[i:i+1]) {
				text = text[:i] + string(text[i]^0x20) + text[i+1:]
			}
		case 1: // encoded
			if i < len(text) && !strings.Contains("REALNFK\r\n", text[i:i+1]) {
				text = text[:i] + fmt.Sprintf("%%%02x", text[i]) + text[i+1:]
			}
		case 2:
			text = text[:i] + strings.Repeat(piece, 1+r.IntN(4)) + text[i:]
		default:
			text = text[:i] + piece + text[i:]
		}
	}
	written := real
	switch f.name {
	case "Basic":
		written = basic(real)
	case "a parameter", "a condition":
		written = strings.NewReplacer(" ", "%20", "=", "%3d", "?", "%3F").Replace(real)
	}
	if r.IntN(6) == 0 && len(written) > 2 && f.name != "a path" { // something within what is real
		i := 1 + r.IntN(len(written)-2)
		switch {
		case f.bare && f.name != "a cookie" && f.name != "a character set":
			written = written[:i] + pieces[r.IntN(len(pieces))] + written[i:]
		case written[i] != '%' && !strings.Contains(written[max(0, i-2):i], "%"):
			written = written[:i] + fmt.Sprintf("%%%02X", written[i]) + written[i+1:]
		}
	}
	text = strings.NewReplacer("REAL", written, "NNN", fmt.Sprint(n), "FAKE", fmt.Sprint("fake", n)).Replace(form[:at] + text + form[end:])
	return text + "Host: a\r\nConnection: close\r\n\r\n", real
}

// A searcher judges requests as an edge does whose rules look at the fields.
type searcher struct {
	keys, matches map[string]*Set
	plain         map[string]string // whom the plain request of a field counts for
	d             Decision
}

func newSearcher(t *testing.T) *searcher {
	s := &searcher{keys: make(map[string]*Set), matches: make(map[string]*Set), plain: make(map[string]string)}
	one := func(change func(*Config)) *Set {
		set, err := New([]Config{ruleOf("r", 5, change)}, Defaults{}, newTally)
		must(t, err)
		return set
	}
	for _, f := range searched {
		for _, real := range f.real {
			name := f.name + real
			s.matches[name] = one(func(c *Config) { c.Match = f.match(real) })
			if f.key != "" {
				s.keys[name] = one(func(c *Config) { c.Key = []string{f.key} })
			}
			written := real
			if f.name == "Basic" {
				written = basic(real)
			} else if !f.bare && f.name != "a path" {
				written = strings.NewReplacer(" ", "%20", "=", "%3d", "?", "%3F").Replace(real)
			}
			who, ok := s.whom(name, strings.ReplaceAll(f.plain, "REAL", written)+"Host: a\r\n\r\n")
			if !ok || strings.Contains(who, "no") {
				t.Fatalf("%s: %s is %q, %t", f.name, real, who, ok)
			}
			s.plain[name] = who
		}
	}
	return s
}

// whom is whom a request counts for under the rule by a field, and whether the rule about it holds; false: it is refused.
func (s *searcher) whom(name, raw string) (who string, ok bool) {
	var q http1.RequestHead
	if q.Parse([]byte(raw), message.MaxLines) != nil {
		return "", false
	}
	for _, sets := range []map[string]*Set{s.keys, s.matches} {
		set := sets[name]
		if set == nil {
			continue
		}
		s.d.Reset()
		s.d.Match(set, q.Host, q.Path, q.Target, q.Method, q.Readings)
		if s.d.AddRules(key.Secret{}, &q.Request, netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")) != nil {
			return "", false
		}
		for _, result := range s.d.Results {
			who += fmt.Sprint(result.Source, " ")
		}
		if len(s.d.Results) == 0 {
			who += "no "
		}
	}
	return who, true
}

// A spelling is one that some server has read as what is real.
type spelling struct {
	Field string   `json:"field"`
	Real  string   `json:"real"`
	By    []string `json:"by"`
	Raw   string   `json:"raw"` // in Latin-1
}

func latin1(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		b.WriteRune(rune(raw[i]))
	}
	return b.String()
}

func bytesOf(latin1 string) string {
	var b []byte
	for _, r := range latin1 {
		b = append(b, byte(r))
	}
	return string(b)
}

// No server reads as one value, or as what a rule asks for, a request that the edge passes on as another: what servers' own parsers have answered
// to spellings of a seeded search is recorded, and make spellings asks them anew.
func TestSpellings(t *testing.T) {
	s := newSearcher(t)
	var list []spelling
	if *parsers != "" {
		list = askParsers(t)
	} else {
		file, err := os.Open("testdata/spellings.jsonl")
		must(t, err)
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var one spelling
			must(t, json.Unmarshal(lines.Bytes(), &one))
			list = append(list, one)
		}
	}
	type tally struct{ read, refused, same, dodged int }
	tallies := make(map[string]*tally)
	for _, one := range list {
		count := tallies[one.Field]
		if count == nil {
			count = new(tally)
			tallies[one.Field] = count
		}
		count.read++
		name := one.Field + one.Real
		switch who, ok := s.whom(name, bytesOf(one.Raw)); {
		case !ok:
			count.refused++
		case who == s.plain[name]:
			count.same++
		default:
			if count.dodged++; count.dodged <= 20 {
				t.Errorf("%s: %q: %v read %q, the edge sees %q, and %q where it is plain", one.Field, bytesOf(one.Raw), one.By, one.Real, who, s.plain[name])
			}
		}
	}
	for _, f := range searched {
		count := tallies[f.name]
		if count == nil || count.same < 40 || count.refused == 0 {
			t.Errorf("%s: %+v: too few are read as what is real", f.name, count)
			continue
		}
		t.Logf("%s: %d spellings are read as what is real: %d seen as that, %d refused, %d dodge", f.name, count.read, count.same, count.refused, count.dodged)
	}
}

// askParsers asks the servers' parsers about spellings, and returns those that one of them reads as what is real.
func askParsers(t *testing.T) (list []spelling) {
	r := rand.New(rand.NewPCG(*seed, 0))
	type asked struct {
		field *field
		real  string
		raw   string
		by    map[string]bool
	}
	all := make([]asked, *spellings)
	for i := range all {
		f := &searched[i%len(searched)]
		raw, real := f.spell(r, i)
		all[i] = asked{f, real, raw, make(map[string]bool)}
	}
	directory, err := filepath.Abs(*parsers)
	must(t, err)
	var group sync.WaitGroup
	var mu sync.Mutex
	versions := []string{}
	for _, command := range [][]string{{"node", "node.js", directory}, {"/usr/bin/python3", "python.py"}, {"ruby", "ruby.rb"}} {
		group.Go(func() {
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Dir, cmd.Stderr = "testdata/parsers", os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Error(err)
				return
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				for _, a := range all {
					line, _ := json.Marshal(map[string]string{"raw": latin1(a.raw)})
					if _, err := in.Write(append(line, '\n')); err != nil {
						return
					}
				}
				in.Close()
			}()
			lines := bufio.NewReader(out)
			first, _ := lines.ReadBytes('\n')
			var said struct{ Versions []string }
			if err := json.Unmarshal(first, &said); err != nil {
				t.Errorf("%s says %q: %v", command[0], first, err)
			}
			mu.Lock()
			versions = append(versions, said.Versions...)
			mu.Unlock()
			for i := range all {
				line, err := lines.ReadBytes('\n')
				var answer map[string]map[string][]string
				if err == nil {
					err = json.Unmarshal(line, &answer)
				}
				if err != nil {
					t.Errorf("%s ends at spelling %d of %d with %q: %v", command[0], i, len(all), line, err)
					break
				}
				mu.Lock()
				for by, read := range answer {
					if slices.Contains(read[all[i].field.reads], all[i].real) {
						all[i].by[by] = true
					}
				}
				mu.Unlock()
			}
			io.Copy(io.Discard, out)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", command[0], err)
			}
		})
	}
	group.Wait()
	for i := range all {
		if slices.Contains(readByGo(all[i].raw)[all[i].field.reads], all[i].real) {
			all[i].by["Go"] = true
		}
		if by := slices.Sorted(maps.Keys(all[i].by)); len(by) > 0 {
			list = append(list, spelling{all[i].field.name, all[i].real, by, latin1(all[i].raw)})
		}
	}
	t.Logf("seed %d, %d spellings, of which %d are read as what is real by one of the servers: %s, Go", *seed, len(all), len(list), strings.Join(versions, ", "))
	if *record {
		var b bytes.Buffer
		for _, one := range list {
			line, _ := json.Marshal(one)
			b.Write(append(line, '\n'))
		}
		must(t, os.WriteFile("testdata/spellings.jsonl", b.Bytes(), 0o644))
	}
	return list
}

// readByGo is how a server of net/http reads a request.
func readByGo(raw string) map[string][]string {
	q, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return nil
	}
	both := func(text string) []string { return []string{text, strings.TrimSpace(text)} }
	read := map[string][]string{"x-api-key": both(q.Header.Get("X-Api-Key")), "key": both(q.URL.Query().Get("key")), "q": both(q.URL.Query().Get("q"))}
	if c, err := q.Cookie("session"); err == nil {
		read["session"] = both(c.Value)
	}
	value := q.Header.Get("Authorization")
	_, after, _ := strings.Cut(value, " ")
	tokens := slices.Concat(both(value), both(after), strings.Fields(value))
	if words := strings.Fields(value); len(words) > 1 {
		tokens = append(tokens, words[1])
	}
	for _, t := range slices.Clone(tokens) {
		if i := strings.LastIndexByte(t, '.'); i > 0 && strings.Count(t, ".") == 2 {
			if signature, err := base64.RawURLEncoding.DecodeString(t[i+1:]); err == nil {
				tokens = append(tokens, t[:i+1]+base64.RawURLEncoding.EncodeToString(signature))
			}
		}
	}
	if user, password, ok := q.BasicAuth(); ok {
		tokens = append(tokens, "user "+user+":"+password)
	}
	read["authorization"] = tokens
	if strings.EqualFold(strings.TrimSuffix(q.URL.Path, "/"), "/login") {
		read["path"] = []string{"/login"}
	}
	return read
}
