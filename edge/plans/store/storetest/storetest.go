// Package storetest runs a PostgreSQL of a test's own.
package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sluice/loadgen/process"
)

// Server is a PostgreSQL on a free port of this machine, whose files are the test's.
type Server struct {
	URL string // of its database, as a store is named

	t    *testing.T
	dir  string
	port string
	cmd  *exec.Cmd
}

// nobody runs it where tests run as root, whom PostgreSQL does not serve.
const nobody = 65534

// Start makes a server and waits until it answers. It is stopped with the test.
func Start(t *testing.T) *Server {
	t.Helper()
	free, err := process.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(free[0].Port())
	dir, err := os.MkdirTemp("", "sluice-postgres-") // not the test's own, whose parents only its user may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{URL: "postgres://sluice@127.0.0.1:" + port + "/postgres?sslmode=disable", t: t, dir: dir, port: port}
	if out, err := s.command("initdb", "--auth=trust", "--username=sluice", "--no-sync", "--pgdata="+s.data()).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s(.ci/needs installs PostgreSQL)", err, out)
	}
	s.Run()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command is one of PostgreSQL's programs, which Debian keeps out of the PATH.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	path, err := exec.LookPath(name)
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			s.t.Fatalf("there is no %s: .ci/needs installs PostgreSQL", name)
		}
		path = found[len(found)-1]
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// Run starts it, if it is stopped.
func (s *Server) Run() {
	s.t.Helper()
	s.cmd = s.command("postgres", "-D", s.data(), "-p", s.port, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for s.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", s.port).Run() != nil {
		if time.Now().After(until) {
			s.t.Fatal("PostgreSQL has not started within a minute")
		}
	}
}

// Stop ends it at once, as an outage would. Run starts it again.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT) // it may be gone
	_ = s.cmd.Wait()                          // it ends by a signal
	s.cmd = nil
}
