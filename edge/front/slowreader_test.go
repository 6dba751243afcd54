package front_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/front"
	"sluice/edge/listen"
)

// A client that does not take its answer is cut when its time is up, over TLS as well.
func TestSlowReaderOverTLS(t *testing.T) {
	folder := t.TempDir()
	edgetest.WriteCertificate(t, filepath.Join(folder, "a"), "a.example")
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := edgetest.MemoryServer(t, &edgetest.Hasty{Takes: 1000, Answer: edgetest.OKHead + "Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000)}, "limits: {idle_timeout: 1m}")
		took := edgetest.ServeAlone(s, func(c *front.Client) { c.Conn = tls.Server(c.Conn, certificates.Config("http/1.1")) }, func(client net.Conn) {
			_, _ = io.WriteString(tls.Client(client, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		})
		if took.Truncate(time.Second) != time.Minute || s.Registry().SlowReaders.Load() != 1 || edgetest.Metrics(t, s)["sluice_aborted_total"] != 1 {
			t.Errorf("after %v: %d slow readers, %v answers aborted", took, s.Registry().SlowReaders.Load(), edgetest.Metrics(t, s)["sluice_aborted_total"])
		}
	})
}
