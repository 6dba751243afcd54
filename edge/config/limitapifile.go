package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// LimitAPI is where programs ask over HTTP whether somebody may go on. The zero value is nowhere.
type LimitAPI struct {
	Callers
	// Of what programs must send, unless ClientCAFile says who may ask; "": anyone that reaches it
	// may ask
	TokenFile string
}

func (r *reader) limitAPI(n ast.Node, l *LimitAPI) {
	const name = "limit_api"
	all := r.callers(name, &l.Callers)
	all["token_file"] = r.orNone(name+".token_file", &l.TokenFile)
	r.mapping(n, name, all)
}

// checkLimitAPI reports what no single field of it shows.
func (c *Config) checkLimitAPI() error {
	l := &c.LimitAPI
	if err := l.checkFiles("limit_api", "127.0.0.1:8083", "program", l.TokenFile); err != nil ||
		l.Listen == "" {
		return err
	}
	if c.isTaken(l.Listen) || l.Listen == c.RateLimitService.Listen && !strings.HasSuffix(l.Listen,
		":0") {
		return errors.New("limit_api.listen is " + l.Listen +
			", where something else listens already: give it an address of its own")
	}
	return l.CheckAddress(l.Listen)
}

// CheckAddress reports whether programs may be listened for at an address: beyond this machine they
// must have a token or a certificate, because anyone who asks counts for others, and so can have
// any source blocked.
func (l *LimitAPI) CheckAddress(address string) error {
	if l.TokenFile != "" || l.ClientCAFile != "" || l.Insecure || isLocal(address) {
		return nil
	}
	return errors.New("limit_api.listen is " + address +
		", which others than this machine may reach, and anyone who does may count for any source, until it is blocked: " +
		"give limit_api.token_file, or cert_file, key_file and client_ca_file, listen on 127.0.0.1, or say insecure: true")
}
