package message

import (
	"strings"
	"testing"
)

// What honest clients send has a form, the same for all that servers take for the same, and what they read differently has none (!).
func TestValues(t *testing.T) {
	credentials := func(buf, value []byte) ([]byte, bool) {
		form, token, ok := AppendCredentials(buf, value)
		if ok && token == NoClient {
			return []byte("nobody"), true
		}
		return form[len(buf)+token:], ok
	}
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXI"
	for _, test := range []struct {
		name   string
		append func(buf, value []byte) ([]byte, bool)
		values string // separated by bars
		want   string
	}{
		{"a header", AppendValue, "k-1/+=| k-1/+= |k-1/+=\t", "k-1/+="},
		{"a browser's name", AppendValue, "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"},
		{"no header", AppendValue, "k\xa0|k\xc2\xa0|k\t1|caf\xc3\xa9|" + strings.Repeat("k", 20) + "\x85", "!"},

		{"one token", credentials, "Bearer t0k.e-n_~+/|bearer  t0k.e-n_~+/|X\tt0k.e-n_~+/==|t0k.e-n_~+/|Token token=\"t0k.e-n_~+/\"|Bearer t0k.e-n_~+/=|token token=t0k.e-n_~+/, x=\"a, b\"", "t0k.e-n_~+/"},
		{"a token with other letters", credentials, "ApiKey ann:k$y@#|ann:k$y@#", "ann:k$y@#"},
		{"a key of Firebase", credentials, "key=AAAA:b", "key=AAAA:b"},
		{"Basic", credentials, "Basic YTpi|BASIC  YTpi", "YTpi"},
		{"no Basic", credentials, "Basic Y.Tpi|Basic YTpiYh==|Basic YTpi!|Basic YTpiYg|Basic a=b, c=d|xBasic YTp", "!"},
		{"a signature in sixteen ways", credentials, "Bearer " + jwt + "|Bearer " + jwt[:len(jwt)-1] + "J|JWT " + jwt[:len(jwt)-1] + "L", jwt},
		{"no JSON Web Token", credentials, "Bearer " + jwt + "!|Bearer " + jwt[:45] + "+" + jwt[45:] + "|" + jwt + " x|Bearer " + jwt + "==junk|Bearer " + jwt + "=junk", "!"},
		{"a second word", credentials, "Bearer t x|Bearer t,|Bearer t, x=1|Bearer t;x=1|Bearer \"t\"|Bearer t\xa0|Bearer\xa0t|Digest a=b c|Digest a=b, c|Token token=\"a\", token=\"b\"|Token token=a;b|Digest a=\"b|Digest a=\"b\" c=d|Bearer =t", "!"},
		{"parameters", credentials, `Digest username="ann", realm="a \"b\" c", nc=00000001, qop=auth|AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host;x-amz-date,Signature=fe5f` +
			`|OAuth realm="",oauth_token="x"|HMAC-SHA256 Credential=a&SignedHeaders=b;c&Signature=d==|Hawk id="a", ts="1", mac="b="` +
			"|Digest username*=UTF-8''J%C3%A4s, realm=\"a\"|Digest username=\"J\xc3\xa4s\", realm=\"a\"", "nobody"},
		{"no parameters", credentials, "Bearer t\xa0, x=1|Bearer x=1,\xa0token=t|Token token=t\xa0|Token token=\"t\xa0\"|Token x=1\ttoken=t", "!"},
		{"a last part that is no signature", credentials, "Bearer team.app.10", "team.app.10"},
		{"another", credentials, "Bearer team.app.11", "team.app.11"},
		{"every part of what is encrypted", credentials, "Bearer eyJh.a0.aXY.Y2k.dGFn|Bearer eyJh.a7.aXZ.Y2k.dGFn|eyJh.aw.aXY.Y2m.dGFn=", "eyJh.aw.aXY.Y2k.dGFn"},
		{"a signed header", AppendValue, jwt + "|" + jwt + "==|" + jwt[:len(jwt)-1] + "J", jwt},
		{"no signed header", AppendValue, jwt + "!!!!|" + jwt + "~|" + jwt + " x", "!"},
		{"a signed cookie", AppendCookie, jwt + "|" + jwt + "%3D|" + jwt[:len(jwt)-1] + "L", jwt},
		{"no signed cookie", AppendCookie, jwt + "!!!!|" + jwt + "%20%20x", "!"},
		{"a signed parameter", AppendParameter, jwt + "|+" + jwt + "=+|" + jwt[:len(jwt)-1] + "K", jwt},
		{"no signed parameter", AppendParameter, jwt + "%21|" + jwt + "*", "!"},
		{"empty", credentials, "", ""},

		{"a cookie", AppendCookie, `s:3ss.-_~|"s:3ss.-_~"|s%3A3ss.-_~| s:3ss.-_~ |s:3ss.-_~%20|s:3ss.-_~+`, "s:3ss.-_~"},
		{"UTF-8 in a cookie", AppendCookie, "caf%C3%A9", "café"},
		{"what is encoded in a cookie", AppendCookie, "j%3A%7B%22a%22%3A1%7D", `j:{"a":1}`},
		{"no cookie", AppendCookie, `a b|a,b|a"b|"a|a\b|"\141"|caf` + "\xc3\xa9" + `|a%ff|a%00|j:"a"|j%3A%20%22a%22|j:1|a` + "\tb", "!"},

		{"a parameter", AppendParameter, "a b|a%20b|a+b|%61+b|a+b+|%C2%A0a+b|a+b%0a|%ef%bb%bfa+b%e3%80%80|%0ba+b%1c", "a b"},
		{"UTF-8 in a parameter", AppendParameter, "%E6%9D%B1%E4%BA%AC", "東京"},
		{"what is no encoding", AppendParameter, "100%zz%", "100%zz%"},
		{"no parameter", AppendParameter, "a%00|%00|%ff|%c3|caf\xc3\xa9|%c0%af|%ed%a0%80", "!"},
	} {
		for _, value := range strings.Split(test.values, "|") {
			form, ok := test.append([]byte("before "), []byte(value))
			if got := strings.TrimPrefix(string(form), "before "); ok != (test.want != "!") || ok && got != test.want {
				t.Errorf("%s: %q is %q %t, want %q", test.name, value, got, ok, test.want)
			}
		}
	}
}

// A cookie or a parameter is found by each name that some server takes for its own, and a cookie that only some see is
// marked as odd.
func TestNames(t *testing.T) {
	var l Lookup
	l.Add([]byte("key"))
	l.Add([]byte("a_b"))
	for text, want := range map[string]string{
		"key=1": "0", "KEY=1": "0", "%6bey=1": "0", "[key]=1": "0", "%5Bkey%5d=1": "0", "key]=1": "0", "key]]]=1": "0", "[[[key=1": "0", "]key=1": "0", "key[]=1": "0", "key[x]=1": "0", "+key=1": "0",
		"key%00x=1": "0", "a.b=1": "1", "a[b=1": "1", "a+b=1": "1", "key": "0", "=1&key": "0",
		"keys=1": "", "ke=1": "", "x[key]=1": "", "x=key": "", "k ey=1": "", "_key=1": "",
	} {
		got := ""
		l.Parameters([]byte(text), Ampersands, func(f Found) { got += string(rune('0' + f.Position)) })
		if got != want {
			t.Errorf("%q has the parameters %q, want %q", text, got, want)
		}
	}
	for line, want := range map[string]string{
		"key=1": "0", "a=b; Key=1": "0", "%6bey=1": "0", "key =1": "0", "a.b=1;key=2": "10",
		"\xa0key=1": "!", "key\xa0=1": "!", "\xc2\xa0key=1": "!", "$Version=1;x=y,key=1": "!", "x=y, key=1": "!", "x=y key=1": "!", `x="key=1"`: "!", `x="; key=1; y="`: "0", "a key=1": "!", "key=1,key=2": "0!",
		"key": "", "x=key=1": "", "x=monkey, a=b": "", "x=1; keys=2": "", "x=a,b key": "",
	} {
		h := &Head{}
		if err := h.Add([]byte("Cookie"), []byte(line), 1); err != nil {
			t.Fatal(err)
		}
		got := ""
		l.Cookies(h, func(f Found) {
			if f.Odd {
				got += "!"
			} else {
				got += string(rune('0' + f.Position))
			}
		})
		if got != want {
			t.Errorf("%q has the cookies %q, want %q", line, got, want)
		}
	}
}

// A query may be decoded by the character set of Content-Type: only by one that leaves ASCII as it is, said as clients say it.
func TestCharsets(t *testing.T) {
	for value, odd := range map[string]bool{
		"": false, "application/json": false, "text/plain;charset=UTF-8": false, `text/plain; Charset="utf-8"; x=y`: false, "a/b; charset=ISO-8859-15": false, "a/b; charset = windows-1252": false, "a/b; charset=": false,
		"a/b; charset=utf-7": true, "a/b;charset=unicode_escape": true, "a/b;charset=hz": true, "a/b;charset=iso-2022-jp": true, "a/b;charset=utf-16": true, "a/b; CHARSET=utf-8; charset=cp037": true,
		"a/b; charset*=''utf-7": true, `a/b; charset="utf-8`: true, "a/b; charset=utf-8, c/d": true, "a/b; charset=iso-8859-": true, "a/b; charset=windows-125x": true, "a/b; charset": true,
	} {
		for _, name := range []string{"Content-Type", "content_type"} {
			h := &Head{}
			if err := h.Add([]byte(name), []byte(value), 1); err != nil {
				t.Fatal(err)
			}
			if h.HasOddCharset() != odd {
				t.Errorf("%s: %q is odd: %t, want %t", name, value, !odd, odd)
			}
		}
	}
}
