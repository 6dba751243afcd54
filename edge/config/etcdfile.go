package config

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// maxEtcdPrefix leaves room for the rest of a key in what etcd takes.
const maxEtcdPrefix = 128

func (r *reader) etcd(n ast.Node, e *Etcd) {
	f := r.settings("etcd.", e)
	f["endpoints"] = r.texts("etcd.endpoints", func(n ast.Node, text string) {
		switch u, err := parseEndpoint(text); {
		case err != nil:
			r.fail(n, "etcd.endpoints: %v", err)
		case len(e.Endpoints) > 0 && !strings.HasPrefix(e.Endpoints[0], u.Scheme+":"):
			r.fail(n,
				"etcd.endpoints: %s is %s, and the first is not: write all with http, or all with https", text, u.Scheme)
		default:
			e.Endpoints = append(e.Endpoints, text)
		}
	})
	seen := r.mapping(n, "etcd", f)
	if (e.Username == "") != (e.PasswordFile == "") {
		r.fail(cmp.Or(seen["username"], seen["password_file"], n),
			"etcd: username and password_file belong together: give both")
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		r.fail(cmp.Or(seen["cert_file"], seen["key_file"], n),
			"etcd: cert_file and key_file belong together: give both")
	}
	switch given := cmp.Or(e.Username, e.CAFile, e.CertFile); {
	case len(e.Endpoints) == 0 && given != "" && seen["endpoints"] == nil:
		r.fail(n, "etcd: no endpoints: name the nodes, such as https://10.0.0.1:2379")
	case len(e.Endpoints) > 0 && strings.HasPrefix(e.Endpoints[0], "http:") &&
		cmp.Or(e.CAFile, e.CertFile) != "":
		r.fail(cmp.Or(seen["ca_file"], seen["cert_file"], n),
			"etcd: %s has no TLS: write the endpoints with https, or remove ca_file and cert_file",
			e.Endpoints[0])
	}
}

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.Port() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil,
			fmt.Errorf("%q is not a node of etcd: want https://HOST:PORT or http://HOST:PORT", text)
	}
	return u, nil
}

func checkEtcdPrefix(text string) error {
	if len(text) < 2 || len(text) > maxEtcdPrefix || text[0] != '/' || text[len(text)-1] != '/' ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= 0x20 || c >= 0x7f }) {
		return fmt.Errorf("%q is not possible: want up to %d bytes that begin and end with a slash, such as /sluice/", text, maxEtcdPrefix)
	}
	return nil
}

// weakness returns what others than its edges can do to etcd, as far as the configuration shows;
// "": nothing.
func (e *Etcd) weakness() string {
	for _, text := range e.Endpoints {
		u, err := parseEndpoint(text)
		if err != nil || IsLocal(u.Host) {
			continue
		}
		switch {
		case u.Scheme == "http" && e.Username == "":
			return "etcd: " + text +
				" is plain text without a password: anyone who reaches it, or is on the way, can change the rules of all edges; write https, and give username or cert_file"
		case u.Scheme == "http":
			return "etcd: " + text +
				" is plain text: anyone on the way reads the password, and can change the rules of all edges; write https"
		case e.Username == "" && e.CertFile == "":
			return "etcd: no username and no cert_file: if " + text +
				" takes that, anyone who reaches it can change the rules of all edges"
		}
	}
	return ""
}
