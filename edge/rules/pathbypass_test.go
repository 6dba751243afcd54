package rules_test

import (
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

// Ways to ask for /login that a rule on /login must see, ways that are another path and so fall under other rules, and ways
// that are refused. Where an origin takes more for the same page than this (small and capital letters alike, parameters after
// a semicolon, a slash at the end), its rule must say so: docs/rules/matching.md has the pattern.
func TestPathTricksAgainstRuleOnLogin(t *testing.T) {
	const same, other, refused = 429, 200, 400
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
rules:
  - {name: login, match: {hosts: [a], path: /login}, limit: 1, window: 1h}
  - {name: wide, match: {hosts: [b], path: "~(?i)^/login/?(;|$)"}, limit: 1, window: 1h}
`)
	for _, host := range []string{"a", "b"} {
		if resp, _ := e.Talk().Say("GET /login HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
	}
	for target, want := range map[string]struct{ exact, wide int }{
		"/login":                 {same, same},
		"/login?x":               {same, same},
		"/login?/../x":           {same, same},
		"//login":                {same, same},
		"///login":               {same, same},
		"/./login":               {same, same},
		"/a/../login":            {same, same},
		"/../login":              {same, same},
		"/login/.":               {other, same}, // as /login/
		"/login/../login":        {same, same},
		"/a/b/../../login":       {same, same},
		"/%6cogin":               {same, same},
		"/%6C%6F%67%69%6E":       {same, same},
		"/%2flogin":              {same, same},
		"/%2e%2e/login":          {same, same},
		"/a/%2e%2e/login":        {same, same},
		"/\\login":               {same, same},
		"/%5clogin":              {same, same},
		"/login;x":               {same, same}, // servlets cut it there
		"/;x/login":              {same, same},
		"/x;y/../login":          {refused, refused},
		"//x/login":              {same, same}, // new URL takes x for the host
		"/a//b/../c":             {other, other},
		"/%c0%b4":                {other, other}, // a letter in GBK
		"http://HOST/login":      {same, same},
		"HTTP://HOST//login?x":   {same, same},
		"http://HOST/a/../login": {same, same},

		"/login/":      {other, same},
		"/LOGIN":       {other, same},
		"/login;x=1/y": {same, same}, // find-my-way takes what follows for the query
		"/login.php":   {other, other},
		"/loginx":      {other, other},
		"/log%69n%20":  {other, other},
		"/%256cogin":   {other, other}, // decoded once, as it is by an origin
		"/?/login":     {other, other},

		"/a\\..\\login":      {refused, refused}, // a segment with .. between what only some take for slashes
		"/a/%2e%2e%2flogin":  {refused, refused},
		"/a%2fb/../login":    {refused, refused},
		"/a/..;/login":       {refused, refused},
		"/a//../login":       {refused, refused},
		"/a/%2e%2e/../login": {refused, refused},
		"/login%0a":          {refused, refused},
		"/login%7f":          {refused, refused},
		"/%c0%aflogin":       {refused, refused},
		"/%e0%80%aflogin":    {refused, refused},
		"/%c1%9clogin":       {refused, refused},
		"/%u006cogin":        {refused, refused},

		"/login%00":          {refused, refused},
		"/login%00.jpg":      {refused, refused},
		"/login\x00":         {refused, refused},
		"/login\t":           {refused, refused},
		"/login#x":           {refused, refused},
		"\\login":            {refused, refused},
		"login":              {refused, refused},
		"http://other/login": {refused, refused},
	} {
		for host, want := range map[string]int{"a": want.exact, "b": want.wide} {
			before := len(o.Requests())
			target := strings.ReplaceAll(target, "HOST", host)
			resp, _ := e.Talk().Say("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
			if resp.StatusCode != want {
				t.Errorf("%s: %d, want %d", target, resp.StatusCode, want)
			}
			got := o.Requests()[before:]
			if want != other {
				if len(got) > 0 {
					t.Errorf("%s: the origin got %q", target, got)
				}
			} else if len(got) != 1 || !strings.HasPrefix(got[0], "GET "+target+" HTTP/1.1\r\n") {
				t.Errorf("%s: the origin got %q, want the target as it came", target, got)
			}
		}
	}
	// A method that some origins take for POST is none here.
	if resp, _ := e.Talk().Say("post /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"); resp.StatusCode != refused {
		t.Errorf("post: %d", resp.StatusCode)
	}
	e.Rest()
}
