package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// LimitAPI is where programs ask over HTTP whether somebody may go on. The zero value is nowhere.
type LimitAPI struct {
	Listen            string // host:port, or unix:/path; "": nowhere
	CertFile, KeyFile string // "": no TLS
	ClientCAFile      string // of the programs that may ask; "": any that has the token
	TokenFile         string // of what programs must send; "": anyone that reaches it may ask
	Insecure          bool   // it may be listened for beyond this machine without ClientCAFile and TokenFile
}

func (r *reader) limitAPI(n ast.Node, l *LimitAPI) {
	const name = "limit_api"
	r.mapping(n, name, fields{
		"listen":         r.addressOrNone(name+".listen", &l.Listen),
		"cert_file":      r.orNone(name+".cert_file", &l.CertFile),
		"key_file":       r.orNone(name+".key_file", &l.KeyFile),
		"client_ca_file": r.orNone(name+".client_ca_file", &l.ClientCAFile),
		"token_file":     r.orNone(name+".token_file", &l.TokenFile),
		"insecure":       r.boolean(name+".insecure", &l.Insecure),
	})
}

// checkLimitAPI reports what no single field of it shows.
func (c *Config) checkLimitAPI() error {
	l := &c.LimitAPI
	switch {
	case l.Listen == "" && l.TokenFile+l.CertFile+l.KeyFile+l.ClientCAFile != "":
		return errors.New("limit_api has files but listens nowhere: give limit_api.listen, such as \"127.0.0.1:8083\"")
	case (l.CertFile == "") != (l.KeyFile == ""):
		return errors.New("limit_api: cert_file and key_file belong together: give both")
	case l.ClientCAFile != "" && l.CertFile == "":
		return errors.New("limit_api.client_ca_file: a program shows a certificate over TLS only: give cert_file and key_file")
	case l.Listen == "":
		return nil
	}
	if c.isTaken(l.Listen) || l.Listen == c.RateLimitService.Listen && !strings.HasSuffix(l.Listen, ":0") {
		return errors.New("limit_api.listen is " + l.Listen + ", where something else listens already: give it an address of its own")
	}
	return l.CheckAddress(l.Listen)
}

// CheckAddress reports whether programs may be listened for at an address: beyond this machine they must have a token or a certificate,
// because anyone who asks counts for others, and so can have any source blocked.
func (l *LimitAPI) CheckAddress(address string) error {
	if l.TokenFile != "" || l.ClientCAFile != "" || l.Insecure || isLocal(address) {
		return nil
	}
	return errors.New("limit_api.listen is " + address + ", which others than this machine may reach, and anyone who does may count for any source, until it is blocked: " +
		"give limit_api.token_file, or cert_file, key_file and client_ca_file, listen on 127.0.0.1, or say insecure: true")
}
