// Package storetest runs a PostgreSQL for tests.
package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/loadgen/process"
)

// Server is a PostgreSQL on a free port of this machine.
type Server struct {
	URL string // of its database, as a store is named

	dir  string
	port string
	cmd  *exec.Cmd
}

// nobody runs it where tests run as root, whom PostgreSQL does not serve.
const nobody = 65534

// Start makes a server of the test's own and waits until it answers. It is stopped with the test.
func Start(t *testing.T) *Server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// shared serves the tests of a package that want no more than a database.
var shared struct {
	once      sync.Once
	server    *Server
	err       error
	databases int
}

// Database makes an empty database, on a server that Main stops: making a server takes a second,
// and a database a tenth.
func Database(t *testing.T) (url string) {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.databases++
	name := fmt.Sprint("test", shared.databases)
	if err := shared.server.does("createdb", "-h", "127.0.0.1", "-p", shared.server.port, "-U",
		"sluice", name); err != nil {
		t.Fatal(err)
	}
	return shared.server.url(name)
}

// Main is the TestMain of a package whose tests call Database.
func Main(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.remove()
	}
	os.Exit(code)
}

func start() (*Server, error) {
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	// Not a test's own, whose parents only its user may enter
	dir, err := os.MkdirTemp("", "sluice-postgres-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, port: fmt.Sprint(free[0].Port())}
	s.URL = s.url("postgres")
	if os.Getuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err == nil {
		err = s.does("initdb", "--auth=trust", "--username=sluice", "--no-sync",
			"--pgdata="+s.data())
	}
	if err == nil {
		err = s.Run()
	}
	if err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *Server) remove() {
	s.Stop()
	os.RemoveAll(s.dir)
}

func (s *Server) url(database string) string {
	return "postgres://sluice@127.0.0.1:" + s.port + "/" + database + "?sslmode=disable"
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command is one of PostgreSQL's programs, which Debian keeps out of the PATH.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	path := name
	if _, err := exec.LookPath(name); err != nil {
		if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
			path = found[len(found)-1]
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody,
			Gid: nobody}}
	}
	return cmd
}

// does runs one of them to its end.
func (s *Server) does(name string, args ...string) error {
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s(.ci/needs installs PostgreSQL)", name, err, out)
	}
	return nil
}

// Run starts it, if it is stopped, and waits until it answers.
func (s *Server) Run() error {
	s.cmd = s.command("postgres", "-D", s.data(), "-p", s.port, "-k", "", "-c",
		"listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("%w (.ci/needs installs PostgreSQL)", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		err := s.does("pg_isready", "-q", "-h", "127.0.0.1", "-p", s.port)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("PostgreSQL has not started within a minute: %w", err)
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
