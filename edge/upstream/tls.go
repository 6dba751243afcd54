package upstream

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"os"

	"sluice/edge/socket"
)

// TLS is how an origin's servers and the edge authenticate each other. A server is always verified:
// one with a certificate of its own making is trusted by naming that certificate as CAFile.
type TLS struct {
	// Certificates in PEM, one of which must have signed the server's; "": those of the system
	CAFile string `json:"ca_file" want:"file"`
	// The edge's own, in PEM, for servers that request one; "": none
	CertFile string `json:"cert_file" want:"file"`
	KeyFile  string `json:"key_file" want:"file"`
	// The name that is requested (SNI) and that the server must prove; "": the host of its URL
	ServerName string `json:"server_name" want:"file"`
}

// An originTLS is what the files said when they were read last. It is immutable.
type originTLS struct {
	files  TLS
	host   string
	http2  bool
	digest [sha256.Size]byte
	config *tls.Config
}

// loadTLS reads the files. Errors name the file.
func loadTLS(files TLS, host string, http2 bool) (*originTLS, error) {
	t := &originTLS{files: files, host: host, http2: http2, config: &tls.Config{ServerName: host,
		MinVersion: tls.VersionTLS12}}
	if files.ServerName != "" {
		t.config.ServerName = files.ServerName
	}
	if http2 {
		t.config.NextProtos = []string{"h2"}
	}
	var texts [3][]byte
	sum := sha256.New()
	for i, file := range [...]string{files.CAFile, files.CertFile, files.KeyFile} {
		if file == "" {
			continue
		}
		var err error
		if texts[i], err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("tls: %w: give a readable file", err)
		}
		fmt.Fprintf(sum, "%d %d ", i, len(texts[i]))
		sum.Write(texts[i])
	}
	sum.Sum(t.digest[:0])
	if files.CAFile != "" {
		t.config.RootCAs = x509.NewCertPool()
		if !t.config.RootCAs.AppendCertsFromPEM(texts[0]) {
			return nil, fmt.Errorf("tls: %s has no certificate in PEM: put the CA's there",
				files.CAFile)
		}
	}
	if files.CertFile != "" {
		cert, err := tls.X509KeyPair(texts[1], texts[2])
		if err != nil {
			return nil, fmt.Errorf("tls: %s and %s: %w", files.CertFile, files.KeyFile, err)
		}
		t.config.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

// same reports whether connections made under t are as good as those that would be made under
// other.
func (t *originTLS) same(other *originTLS) bool {
	return t != nil && t.files == other.files && t.digest == other.digest
}

// Refresh reads the files again, for connections from now on; idle ones made before are not used
// any more. After an error what was read before stays.
func (o *Origin) Refresh(warn func(string, ...any)) {
	had := o.secure.Load()
	now, err := loadTLS(had.files, had.host, had.http2)
	switch {
	case err != nil:
		warn("the files for TLS to an origin are wrong: what was read before stays in use",
			"origin", o.Name, "error", err)
	case !had.same(now):
		if o.secure.CompareAndSwap(had, now) { // else a reload has been quicker
			o.renew()
			warn("files for TLS to an origin read again", "origin", o.Name)
		}
	}
}

// records is what TLS to an origin reads from. TLS reads ahead of what it hands out, so that
// neither the layer above nor the one below sees what it holds; records knows whether that is a
// part of a record, by following where each one ends (RFC 8446, 5.1).
type records struct {
	*socket.Conn
	now    bool // nothing is waited for
	header [5]byte
	got    int // of the header
	left   int // of the record after it, in bytes
}

func (r *records) Read(p []byte) (n int, err error) {
	if r.now {
		n, err = r.ReadNow(p)
	} else {
		n, err = r.Conn.Read(p)
	}
	for p = p[:n]; len(p) > 0; {
		if r.left == 0 {
			k := copy(r.header[r.got:], p)
			p = p[k:]
			if r.got += k; r.got < len(r.header) {
				break
			}
			r.left = int(binary.BigEndian.Uint16(r.header[3:]))
		}
		k := min(r.left, len(p))
		p = p[k:]
		if r.left -= k; r.left == 0 {
			r.got = 0
		}
	}
	return n, err
}
