package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/edge/listen"
)

// A listener is an address or fields, alone or in a list.
func TestListeners(t *testing.T) {
	yes, no := true, false
	for text, want := range map[string][2][]Listener{
		"":                            {At(":8080"), nil},
		"listen: ':80'":               {At(":80"), nil},
		"listen: [':80', 'unix:/s']":  {At(":80", "unix:/s"), nil},
		"listen_tls: none":            {At(":8080"), nil},
		"listen_tls: ':443'":          {At(":8080"), At(":443")},
		"listen: {address: ':80'}":    {At(":80"), nil},
		"listen:\n  address: ':80'\n": {At(":80"), nil},
		"listen: [':0', ':0']":        {At(":0", ":0"), nil},
		"listen: [{address: ':80', redirect: true}, {address: ':81', redirect: 8443, proxy_protocol: false}]": {
			{{Address: ":80", Redirect: RedirectToTLS}, {Address: ":81", Redirect: 8443, ProxyProtocol: &no}}, nil},
		"listen_tls: [':443', {address: ':444', proxy_protocol: true, tls: {folder: /c}}]": {At(":8080"),
			{{Address: ":443"}, {Address: ":444", ProxyProtocol: &yes, TLS: listen.TLSConfig{Folder: "/c"}}}},
	} {
		c, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := [2][]Listener{c.Listen, c.ListenTLS}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// What no single listener shows is wrong: a redirect that leads nowhere, an address that two have, a header that no answer can carry.
func TestListenersThatDoNotFit(t *testing.T) {
	const tls = "listen_tls: ':443'\ntls: {folder: /c}\n"
	for text, want := range map[string]string{
		"listen: {address: ':80', redirect: true}":                                           "redirects to https, and nothing listens for TLS",
		"listen: {address: ':80', redirect: 443}":                                            "",
		tls + "listen: {address: ':80', redirect: true}":                                     "",
		"listen_tls: 'unix:/s'\ntls: {folder: /c}\nlisten: {address: ':80', redirect: true}": "give the port that clients use",
		tls + "listen: ':443'":                                                               "listen and listen_tls are both :443",
		tls + "admin: ':443'\nadmin_insecure: true":                                          "listen_tls and admin are both :443",
		"listen: [':80', '127.0.0.1:8081']":                                                  "listen and admin are both 127.0.0.1:8081",
		"listen_tls: [':443', {address: ':444', tls: {folder: /c}}]":                         "listen_tls is :443 but there is no certificate",
		"listen_tls: [{address: ':444', tls: {folder: /c}}]":                                 "",
		"listen: {address: ':80', proxy_protocol: true}":                                     "no proxy is trusted",
		"source: {trust: [10.0.0.1]}\nlisten: {address: ':80', proxy_protocol: true}":        "",
		"hsts: {max_age: 1h}":                                                                "nothing listens for TLS",
		tls + "hsts: {include_subdomains: true}":                                             "give hsts.max_age",
		tls + "hsts: {max_age: 8760h, preload: true}":                                        "hsts.preload: browsers take",
		tls + "hsts: {max_age: 8760h, preload: true, include_subdomains: true}":              "",
	} {
		c, err := Parse("f", []byte("origins: [{servers: [http://a]}]\n"+text))
		if err == nil {
			err = c.Check()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The header says what RFC 6797, 6.1 has. A max_age of 0 is said, because it has browsers forget.
func TestHSTSValue(t *testing.T) {
	for want, h := range map[string]HSTS{
		"":                                {},
		"max-age=0":                       {MaxAge: new(time.Duration)},
		"max-age=31536000":                {MaxAge: new(365 * 24 * time.Hour)},
		"max-age=3600; includeSubDomains": {MaxAge: new(time.Hour), Subdomains: true},
		"max-age=3600; includeSubDomains; preload": {MaxAge: new(time.Hour), Subdomains: true, Preload: true},
	} {
		if got := string(h.Value()); got != want {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}
