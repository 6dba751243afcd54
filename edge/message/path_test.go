package message

import (
	"bytes"
	"math/rand/v2"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestCanonicalPath(t *testing.T) {
	f := func(target, want string) {
		t.Helper()
		if got, _ := AppendPath(nil, []byte(target)); string(got) != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
	for _, login := range []string{"/login", "//login", "/./login", "/x/../login", "/%6cogin", "/%6Cogin", "/%2flogin", "/%2e/login",
		"/x/%2e%2e/login", "/..//../login", `\login`, `/\login`, "/%5clogin", "/login?next=/x", "/login#x", "http://example.com/login",
		"HTTPS://example.com//login?x", "/a/b/../../login", "/login/x/..%2f..%2flogin"} {
		f(login, "/login")
	}
	f("/", "/")
	f("", "/")
	f("*", "*")
	f("http://example.com", "/")
	f("http://example.com?x", "/")
	f("?x", "/")
	f("/login/", "/login/")
	f("/login/.", "/login/")
	f("/login/x/..", "/login/")
	f("/..", "/")
	f("/a/..", "/")
	f("/.well-known/x", "/.well-known/x")
	f("/...", "/...")
	f("/a/.../b", "/a/.../b")
	f("/Login", "/Login")
	f("/%zz%", "/%zz%")
	f("/%256cogin", "/%6cogin") // once
	f("/a%3fb", "/a?b")         // a question mark in the path is part of it
	f("/login;x=1", "/login;x=1")
	f("/%00", "/\x00")
}

func TestCanonicalPathCopiesOnlyWhatChanges(t *testing.T) {
	target, buf := []byte("/a/b/c.html?x=1"), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { AppendPath(buf, target) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	target = []byte("/a//b/%63.html?x=1")
	if n := testing.AllocsPerRun(100, func() { AppendPath(buf, target) }); n != 0 {
		t.Errorf("%v allocations for a path that changes", n)
	}
}

// Whatever comes in, what comes out is a path from the root without empty or dot segments, stays what it is if it needs no
// decoding, agrees with plainer and slower steps, and is the same however the path is written.
func FuzzCanonicalPath(f *testing.F) {
	for _, s := range []string{"/a/../b", "//", "/%2e%2e/x", "http://h/x", "/a/.", `/\..\x`, "/%", "?"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, target []byte) {
		before := bytes.Clone(target)
		got, _ := AppendPath(nil, target)
		if !bytes.Equal(before, target) {
			t.Fatal("the target was changed")
		}
		if string(got) == "*" || len(target) > 0 && target[0] != '/' && !bytes.Contains(target, []byte("://")) {
			return // no form that reaches the rules
		}
		if got == nil {
			return // too many odd segments
		}
		s := string(got)
		if !strings.HasPrefix(s, "/") || strings.Contains(s, "//") || strings.Contains(s+"/", "/./") || strings.Contains(s+"/", "/../") {
			t.Fatalf("%q is not canonical", s)
		}
		if !strings.Contains(s, "%") {
			if again, _ := Canonicalize(nil, got, 0); string(again) != s {
				t.Fatalf("%q becomes %q", s, again)
			}
		}
		if want := pathByHand(string(target)); s != want {
			t.Fatalf("%q: %q, by hand %q", target, s, want)
		}
		if len(target) > 0 && target[0] == '/' { // ways to write the same path
			for _, prefix := range []string{"/", "/.", "/x/..", "/%2e", "/..", "/%2E%2e", "/.//x/../.", "http://h"} {
				if got, as := AppendPath(nil, append([]byte(prefix), target...)); as&TooMany == 0 && string(got) != s {
					t.Fatalf("%q: %q, but %q with %s before it", target, s, got, prefix)
				}
			}
		}
	})
}

// pathByHand is the canonical path in plain steps, with the standard library's own cleaning.
func pathByHand(target string) string {
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if !strings.HasPrefix(target, "/") {
		if _, rest, ok := strings.Cut(target, "://"); ok {
			_, target, _ = strings.Cut(rest, "/")
		}
	}
	for i := 0; i+2 < len(target); i++ {
		if c, err := strconv.ParseUint(target[i+1:i+3], 16, 8); target[i] == '%' && err == nil {
			target = target[:i] + string([]byte{byte(c)}) + target[i+3:]
		}
	}
	target = "/" + strings.ReplaceAll(target, `\`, "/")
	clean := path.Clean(target)
	if last := target[strings.LastIndexByte(target, '/')+1:]; clean != "/" && (last == "" || last == "." || last == "..") {
		clean += "/"
	}
	return clean
}

func TestCanonicalHost(t *testing.T) {
	f := func(host, want string, ok bool) {
		t.Helper()
		if got, valid := AppendHost(nil, []byte(host)); valid != ok || ok && string(got) != want {
			t.Errorf("%q: %q, %t; want %q, %t", host, got, valid, want, ok)
		}
	}
	f("Example.COM", "example.com", true)
	f("example.com.", "example.com", true)
	f("example.com:8080", "example.com", true)
	f("example.com.:80", "example.com", true)
	f("[2001:DB8::1]:443", "[2001:db8::1]", true)
	f("[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]", true)
	f("[fe80::1%25eth0]", "[fe80::1%25eth0]", true)
	f("192.0.2.1:1", "192.0.2.1", true)
	f("my_host", "my_host", true)
	for _, bad := range []string{"", ".", ":80", "a:b", "a:1:2", "a b", "a/b", "a@b", "[::1", "[::1]x", "a,b", "a:123456", "a\x00", "a]b", "ä", "[v1.fe80::a]", "[v7.a:b]", "[V1.a]", "[::g]", "[a]", "[192.0.2.1]", "[]", "[.:]", "..", ".a", "a..b", "a.."} {
		f(bad, "", false)
	}
}

// However an origin reads a path that is not refused, the rules have seen that reading. The origins are slow and obvious: they cut
// parameters off or not, end the path at a semicolon or not, decode %2f and backslashes or not, and resolve .. never, or where it is written so, or after decoding, with
// empty segments as segments or not; some take what comes after two slashes for a host.
func TestRulesSeeWhatOriginsRead(t *testing.T) {
	pieces := []string{"/", "/", "/", "/", "a", "b", "..", "..", ".", "%2e", "%2e%2e", "%2f", "%5C", "\\", ";", ";x", "%61"}
	random := rand.New(rand.NewPCG(1, 2))
	read, refused := 0, 0
	for range 10_000 {
		path := "/"
		for range random.IntN(12) {
			path += pieces[random.IntN(len(pieces))]
		}
		canonical, readings := AppendPath(nil, []byte(path))
		if readings&TooMany != 0 {
			refused++
			continue
		}
		read++
		plain := func(p []byte) string { return "/" + strings.Trim(string(p), "/") }
		seen := map[string]bool{plain(canonical): true}
		for as := Interpretation(1); as <= readings; as++ {
			if readings.Has(as) {
				other, _ := Canonicalize(nil, []byte(path), as)
				seen[plain(other)] = true
			}
		}
		if len(seen) > 8 {
			t.Fatalf("%s: %d readings", path, len(seen))
		}
		for origin := range 1 << 7 {
			if got := readBy(path, origin); !seen[got] {
				t.Fatalf("%s: an origin of kind %07b reads %s, rules see %v", path, origin, got, seen)
			}
		}
	}
	if read < 2_000 || refused < 2_000 {
		t.Errorf("%d paths were read and %d refused: no good mix", read, refused)
	}
}

var (
	parameters = regexp.MustCompile(";[^/]*")
	slashes    = strings.NewReplacer("%2f", "/", "%5C", "/", "\\", "/")
	dots       = strings.NewReplacer("%2e", ".", "%61", "a")
)

// readBy is how one kind of origin reads a path, without empty and . segments, which no rule has.
func readBy(path string, kind int) string {
	host, decodes, cuts, literal, resolves, merges := kind&1 != 0, kind&2 != 0, kind&4 != 0, kind&8 != 0, kind&16 != 0, kind&32 != 0
	if kind&64 != 0 { // takes what follows for the query
		path, _, _ = strings.Cut(path, ";")
	}
	if rest := strings.TrimLeft(path, "/\\"); host && len(path) > 1 && (path[1] == '/' || path[1] == '\\') {
		path = "/"
		if i := strings.IndexAny(rest, "/\\"); i >= 0 {
			path = rest[i:]
		}
	}
	if decodes && !literal {
		path = slashes.Replace(path)
	} else if path != "" && path[0] == '\\' {
		path = "/" + path[1:]
	}
	if cuts {
		path = parameters.ReplaceAllString(path, "")
	}
	if !literal {
		path = dots.Replace(path)
	}
	var kept []string
	for i, s := range strings.Split(path, "/") {
		switch {
		case i == 0 || s == "." || s == "" && merges:
		case s == ".." && resolves:
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
		}
	}
	path = dots.Replace("/" + strings.Join(kept, "/"))
	if decodes {
		path = slashes.Replace(path)
	}
	kept = kept[:0]
	for _, s := range strings.Split(path, "/") {
		if s != "" && s != "." {
			kept = append(kept, strings.ReplaceAll(s, "%5C", "\\"))
		}
	}
	return "/" + strings.Join(kept, "/")
}
