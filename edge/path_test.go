package edge

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"testing"
)

func TestCanonicalPath(t *testing.T) {
	f := func(target, want string) {
		t.Helper()
		if got := string(appendCanonicalPath(nil, []byte(target))); got != want {
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
	if n := testing.AllocsPerRun(100, func() { appendCanonicalPath(buf, target) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	target = []byte("/a//b/%63.html?x=1")
	if n := testing.AllocsPerRun(100, func() { appendCanonicalPath(buf, target) }); n != 0 {
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
		got := appendCanonicalPath(nil, target)
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
			if again := string(canonicalize(nil, got)); again != s {
				t.Fatalf("%q becomes %q", s, again)
			}
		}
		if want := pathByHand(string(target)); s != want {
			t.Fatalf("%q: %q, by hand %q", target, s, want)
		}
		if len(target) > 0 && target[0] == '/' { // ways to write the same path
			for _, prefix := range []string{"/", "/.", "/x/..", "/%2e", "/..", "/%2E%2e", "/.//x/../.", "http://h"} {
				if got := appendCanonicalPath(nil, append([]byte(prefix), target...)); got != nil && string(got) != s {
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
		if got, valid := appendCanonicalHost(nil, []byte(host)); valid != ok || ok && string(got) != want {
			t.Errorf("%q: %q, %t; want %q, %t", host, got, valid, want, ok)
		}
	}
	f("Example.COM", "example.com", true)
	f("example.com.", "example.com", true)
	f("example.com:8080", "example.com", true)
	f("example.com.:80", "example.com", true)
	f("[2001:DB8::1]:443", "[2001:db8::1]", true)
	f("192.0.2.1:1", "192.0.2.1", true)
	f("my_host", "my_host", true)
	for _, bad := range []string{"", ".", ":80", "a:b", "a:1:2", "a b", "a/b", "a@b", "[::1", "[::1]x", "a,b", "a:123456", "a\x00", "a]b", "ä", "..", ".a", "a..b", "a.."} {
		f(bad, "", false)
	}
}
