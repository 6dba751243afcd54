package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"sluice/edge/config"
)

// Section is the name of the section of configuration files that says which etcd there is.
const Section = "etcd"

// Config is which etcd, and how to reach it: what the section says. Files are read for each
// session, so they may be replaced.
type Config struct {
	Endpoints    Nodes  `json:"endpoints"`
	Prefix       Prefix `json:"prefix"` // of all keys
	Username     string `json:"username" want:"file"`
	PasswordFile string `json:"password_file" want:"file"`
	CAFile       string `json:"ca_file" want:"file"`   // of the nodes' certificates; "": the system's
	CertFile     string `json:"cert_file" want:"file"` // of this edge, and its key
	KeyFile      string `json:"key_file" want:"file"`
}

// Default is what an empty section says.
func Default() *Config { return &Config{Prefix: "/sluice/"} }

// Of is the etcd of a configuration; nil: there is none.
func Of(c *config.Config) *Config {
	if e := config.SettingsOf[Config](c, Section); e != nil && len(e.Endpoints) > 0 {
		return e
	}
	return nil
}

// Nodes are http://HOST:PORT or https://HOST:PORT, all of one scheme.
type Nodes []string

// CheckLast reports what is wrong with the last node, and leaves it out.
func (list *Nodes) CheckLast() error {
	all := *list
	last := all[len(all)-1]
	u, err := ParseNode(last)
	if err == nil && !strings.HasPrefix(all[0], u.Scheme+":") {
		err = fmt.Errorf("%s is %s, and the first is not: write all with http, or all with https",
			last, u.Scheme)
	}
	if err != nil {
		*list = all[:len(all)-1]
	}
	return err
}

// ParseNode reads where a node is.
func ParseNode(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.Port() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil,
			fmt.Errorf("%q is not a node of etcd: want https://HOST:PORT or http://HOST:PORT", text)
	}
	return u, nil
}

// A Prefix begins and ends with a slash.
type Prefix string

// maxPrefix leaves room for the rest of a key in what etcd takes.
const maxPrefix = 128

// UnmarshalText reads a prefix.
func (p *Prefix) UnmarshalText(b []byte) error {
	text := string(b)
	if len(text) < 2 || len(text) > maxPrefix || text[0] != '/' || text[len(text)-1] != '/' ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= 0x20 || c >= 0x7f }) {
		return fmt.Errorf("%q is not possible: want up to %d bytes that begin and end with a slash, such as /sluice/", text, maxPrefix)
	}
	*p = Prefix(text)
	return nil
}

// CheckGiven reports what settings say about each other.
func (c *Config) CheckGiven(given func(setting string) bool, wrong func(err error, at ...string)) {
	if (c.Username == "") != (c.PasswordFile == "") {
		wrong(errors.New("username and password_file belong together: give both"),
			"username", "password_file")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		wrong(errors.New("cert_file and key_file belong together: give both"),
			"cert_file", "key_file")
	}
	switch {
	case len(c.Endpoints) == 0 && c.Username+c.CAFile+c.CertFile != "" && !given("endpoints"):
		wrong(errors.New("no endpoints: name the nodes, such as https://10.0.0.1:2379"))
	case len(c.Endpoints) > 0 && strings.HasPrefix(c.Endpoints[0], "http:") &&
		c.CAFile+c.CertFile != "":
		wrong(fmt.Errorf("%s has no TLS: write the endpoints with https, or remove ca_file and cert_file",
			c.Endpoints[0]), "ca_file", "cert_file")
	}
}
