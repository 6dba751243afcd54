package config

import "fmt"

// Callers is a listener for programs that ask for verdicts. The zero value is nowhere.
type Callers struct {
	Listen            string // host:port, or unix:/path; "": nowhere
	CertFile, KeyFile string // "": no TLS
	ClientCAFile      string // of those that may call; "": no certificate is asked for
	Insecure          bool   // it may be listened for beyond this machine whoever may call
}

// callers are the fields of a listener, by their names.
func (r *reader) callers(name string, c *Callers) fields {
	return fields{
		"listen":         r.addressOrNone(name+".listen", &c.Listen),
		"cert_file":      r.orNone(name+".cert_file", &c.CertFile),
		"key_file":       r.orNone(name+".key_file", &c.KeyFile),
		"client_ca_file": r.orNone(name+".client_ca_file", &c.ClientCAFile),
		"insecure":       r.boolean(name+".insecure", &c.Insecure),
	}
}

// checkFiles reports files that do not go together, of a listener of this name, for an address such
// as example. who calls there, and tokenFile is what else it has; "": nothing.
func (c *Callers) checkFiles(name, example, who, tokenFile string) error {
	switch {
	case c.Listen == "" && c.CertFile+c.KeyFile+c.ClientCAFile+tokenFile != "":
		return fmt.Errorf("%s has files but listens nowhere: give %s.listen, such as %q", name,
			name, example)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return fmt.Errorf("%s: cert_file and key_file belong together: give both", name)
	case c.ClientCAFile != "" && c.CertFile == "":
		return fmt.Errorf("%s.client_ca_file: a %s shows a certificate over TLS only: give cert_file and key_file", name, who)
	}
	return nil
}
