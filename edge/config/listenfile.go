package config

import (
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/listen"
)

// A Listener is where clients connect.
type Listener struct {
	Address string `json:"address" want:"address"` // host:port, or unix:/path
	// Of listen_tls: its own certificates; zero: those of Config.TLS
	TLS listen.TLSConfig `json:"tls,omitempty"`
	// Trusted peers begin with a PROXY header; nil: as Config.Source says
	ProxyProtocol *bool `json:"proxy_protocol,omitempty"`
	// Of listen: the port of the https address that every request is sent to; 0: requests are
	// served
	Redirect Redirect `json:"redirect,omitempty"`
}

// Redirect is a port that requests are sent to.
type Redirect int

// RedirectToTLS is a Redirect to the port of the first of listen_tls.
const RedirectToTLS Redirect = -1

// MarshalJSON shows a redirect as a file has it.
func (to Redirect) MarshalJSON() ([]byte, error) {
	if to == RedirectToTLS {
		return []byte("true"), nil
	}
	return json.Marshal(int(to))
}

// At are listeners at these addresses, with nothing else said of them.
func At(addresses ...string) (list []Listener) {
	for _, a := range addresses {
		list = append(list, Listener{Address: a})
	}
	return list
}

// HSTS is the header Strict-Transport-Security of answers over TLS (RFC 6797). The zero HSTS sends
// none.
type HSTS struct {
	// How long browsers use https alone; 0 has them forget; nil: nothing is sent
	MaxAge     *time.Duration `json:"max_age" want:"none, or 0, or 1s to 87600h"`
	Subdomains bool           `json:"include_subdomains"`
	// Browsers may have the domain on the list that they are made with
	Preload bool `json:"preload"`
}

// Value is what the header says; nil: it is not sent.
func (h HSTS) Value() []byte {
	if h.MaxAge == nil {
		return nil
	}
	b := strconv.AppendInt([]byte("max-age="), int64(*h.MaxAge/time.Second), 10)
	if h.Subdomains {
		b = append(b, "; includeSubDomains"...)
	}
	if h.Preload {
		b = append(b, "; preload"...)
	}
	return b
}

// listeners reads an address, a mapping, or a list of these.
func (r *reader) listeners(what string, to *[]Listener) func(ast.Node) {
	return func(n ast.Node) {
		var all []Listener
		switch v := n.(type) {
		case *ast.SequenceNode:
			for _, v := range v.Values {
				r.listener(what, v, &all)
			}
			if len(all) == 0 && len(v.Values) == 0 {
				r.fail(n, "%s: the list is empty: give an address, or none", what)
			}
		case *ast.MappingNode, *ast.MappingValueNode:
			r.listener(what, v, &all)
		default:
			if scalar(v) == "none" && what == "listen_tls" {
				break
			}
			r.listener(what, v, &all)
		}
		*to = all
	}
}

// listener reads one, and adds it to those before it.
func (r *reader) listener(what string, n ast.Node, to *[]Listener) {
	var l Listener
	f := r.settings(what+".", &l)
	if what == "listen_tls" {
		delete(f, "redirect")
	} else {
		delete(f, "tls")
		f["redirect"] = func(n ast.Node) { r.redirect(n, &l.Redirect) }
	}
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		errs := len(r.errs)
		if seen := r.mapping(v, what, f); seen["address"] == nil && len(r.errs) == errs {
			r.fail(v, "%s: an entry without address: give address, such as \":8080\"", what)
		}
		if (l.TLS.Certificate == "") != (l.TLS.Key == "") {
			r.fail(v, "%s.tls: certificate and key belong together: give both", what)
		}
	default:
		r.setting(what, `want:"address"`, &l.Address)(v)
	}
	if l.Address == "" { // it is wrong
		return
	}
	for _, other := range *to {
		if other.Address == l.Address && !strings.HasSuffix(l.Address, ":0") {
			r.fail(n, "%s: %s is there twice: remove one", what, l.Address)
			return
		}
	}
	*to = append(*to, l)
}

// redirect reads true, false, or a port.
func (r *reader) redirect(n ast.Node, to *Redirect) {
	switch v := n.(type) {
	case *ast.BoolNode:
		if *to = 0; v.Value {
			*to = RedirectToTLS
		}
	case *ast.IntegerNode:
		integer(r, "listen.redirect", 1, 65535, (*int)(to))(v)
	default:
		r.fail(n,
			"listen.redirect: want true or false, or the port of the https address, from 1 to 65535")
	}
}

// leastPreload is how long browsers want max_age to be of domains on their list (hstspreload.org).
const leastPreload = 365 * 24 * time.Hour

// checkListeners reports what no single listener shows.
func (c *Config) checkListeners() error {
	shared := c.TLS != listen.TLSConfig{} || c.certified()
	for _, l := range c.ListenTLS {
		if l.TLS == (listen.TLSConfig{}) && !shared {
			return errors.New("listen_tls is " + l.Address +
				" but there is no certificate: give tls.certificate and tls.key, tls.folder, or acme.hosts")
		}
		if c.listensAt(c.Listen, l.Address) {
			return errors.New("listen and listen_tls are both " + l.Address +
				": give them different addresses")
		}
	}
	for _, l := range append(append([]Listener(nil), c.Listen...), c.ListenTLS...) {
		if l.ProxyProtocol != nil && *l.ProxyProtocol && len(c.Source.Trust) == 0 {
			return errors.New("proxy_protocol is on at " + l.Address +
				" but no proxy is trusted: name the proxies that send the header under source.trust")
		}
		if l.Redirect == RedirectToTLS {
			if len(c.ListenTLS) == 0 {
				return errors.New("listen: " + l.Address +
					" redirects to https, and nothing listens for TLS: give listen_tls, or, where a proxy before this edge does, the port (redirect: 443)")
			}
			if strings.HasPrefix(c.ListenTLS[0].Address, "unix:") {
				return errors.New("listen: " + l.Address +
					" redirects to https, and listen_tls is a Unix socket: give the port that clients use (redirect: 443)")
			}
		}
	}
	switch h := c.HSTS; {
	case len(c.ListenTLS) == 0 && shared:
		return errors.New("tls has certificates but nothing listens for TLS: give listen_tls, such as \":8443\"")
	case h.MaxAge != nil && len(c.ListenTLS) == 0:
		return errors.New("hsts is for answers over TLS, and nothing listens for TLS: give listen_tls, or have the proxy that does say it")
	case h.MaxAge == nil && (h.Subdomains || h.Preload):
		return errors.New("hsts: without max_age nothing is sent: give hsts.max_age, such as 8760h")
	case h.Preload && (!h.Subdomains || *h.MaxAge < leastPreload):
		return errors.New("hsts.preload: browsers take a domain with include_subdomains: true and max_age: 8760h or more only: give both, or remove preload")
	}
	return nil
}

// listensAt reports whether one of the listeners has an address that only one can have.
func (c *Config) listensAt(list []Listener, address string) bool {
	for _, l := range list {
		if l.Address == address && !strings.HasSuffix(address, ":0") {
			return true
		}
	}
	return false
}

// forClients reports whether clients are listened for at an address.
func (c *Config) forClients(address string) bool {
	return c.listensAt(c.Listen, address) || c.listensAt(c.ListenTLS, address)
}

// HTTPSPort is the port that a listener redirects to, where the first of listen_tls has this
// address.
func (l *Listener) HTTPSPort(secure net.Addr) uint16 {
	if l.Redirect != RedirectToTLS {
		return uint16(l.Redirect) //nolint:gosec // 0 to 65535
	}
	if tcp, ok := secure.(*net.TCPAddr); ok {
		return tcp.AddrPort().Port()
	}
	return 443
}

// shownListeners are listeners as the file can say them.
func shownListeners(list []Listener) []any {
	all := []any{}
	for i := range list {
		one := shownStruct(reflect.ValueOf(&list[i]).Elem())
		if len(one) == 1 {
			all = append(all, one["address"])
		} else {
			all = append(all, one)
		}
	}
	return all
}
