//go:build system

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/cmd/internal/labtest"
)

// startWriting is start, with places for standard output and error.
func startWriting(t *testing.T, stdout, stderr *os.File, yaml string) *process {
	t.Helper()
	p := &process{t: t, front: freePort(t), back: freePort(t), log: new(labtest.Buffer)}
	p.cmd = exec.Command(os.Args[0], "--config", write(t, yaml), "--listen", p.front, "--admin", p.back, "--origin", origin(t), "--limit", "1000000")
	if p.cmd.Stdout, p.cmd.Stderr = stdout, stderr; stderr == nil {
		p.cmd.Stderr = p.log
	}
	p.run()
	return p
}

// serves checks that n requests are answered.
func (p *process) serves(n int) {
	p.t.Helper()
	for range n {
		if got := p.get(); got != 200 {
			p.t.Fatalf("%d", got)
		}
	}
}

// refuses checks that n requests of a source on the deny list are refused, sent one behind the other.
func (p *process) refuses(n int) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.front)
	must(p.t, err)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", n))
	}()
	r := bufio.NewReader(c)
	for i := range n {
		answer, err := http.ReadResponse(r, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
		}
		if err != nil || answer.StatusCode != 403 {
			p.t.Fatalf("request %d: %v, %v", i, answer, err)
		}
	}
}

func (p *process) losesLines() {
	p.t.Helper()
	p.until("counting lost lines", func() bool {
		_, body := p.admin("GET", "/metrics")
		return strings.Contains(body, "\nsluice_log_lines_lost_total ") && !strings.Contains(body, "\nsluice_log_lines_lost_total 0\n")
	})
}

// events is what operators are told of what has happened.
func (p *process) events() string {
	_, body := p.admin("GET", "/v1/events")
	return body
}

// A pipe that nobody reads, one whose reader has gone, a full disk: requests are answered, lost lines are counted, the process
// ends well.
func TestAccessLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		must(t, err)
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	const toOutput = "access_log: {file: \"-\", format: json}\nsource: {trust: [127.0.0.1]}\ndeny: [192.0.2.1]"
	_, w := pipe()
	p := startWriting(t, w, nil, toOutput)
	p.serves(10)
	p.refuses(6000) // more than the pipe and the queue hold
	p.losesLines()
	p.serves(10)
	p.stop(syscall.SIGTERM)

	r, w := pipe()
	p = startWriting(t, w, nil, toOutput)
	w.Close()
	r.Close()
	p.serves(10)
	p.losesLines()
	p.stop(syscall.SIGTERM)

	p = startWriting(t, nil, nil, "access_log: {file: /dev/full}")
	p.serves(10)
	p.losesLines()
	p.until("saying why", func() bool { return strings.Contains(p.events(), "write /dev/full: no space left on device") })
	if _, body := p.admin("GET", "/v1/status"); !strings.Contains(body, `"access_log": {`) || !strings.Contains(body, "write /dev/full: no space left on device") {
		t.Errorf("the status does not say that the access log cannot be written: %s", body)
	}
	p.stop(syscall.SIGTERM)
}

// The process's own log may be read by nobody, too.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	p := startWriting(t, nil, w, "")
	w.Close()
	p.serves(10)
	r.Close()
	for range 3 { // it has something to say, and nobody to say it to
		if status, _ := p.admin("POST", "/v1/reload"); status != 200 {
			t.Errorf("reload: %d", status)
		}
	}
	p.serves(10)
	p.stop(syscall.SIGTERM)
}

// A log that was moved away is opened again on SIGUSR1; no line is in neither.
func TestAccessLogIsRotated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	p := startWriting(t, nil, nil, "access_log: {file: "+file+"}")
	p.serves(10)
	must(t, os.Rename(file, file+".1"))
	p.serves(10)
	p.until("done with twenty lines", func() bool { // a request may be answered before its line is written
		text, _ := os.ReadFile(file + ".1")
		return bytes.Count(text, []byte("\n")) == 20
	})
	must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
	p.until("rotated", func() bool { _, err := os.Stat(file); return err == nil })
	p.serves(10)
	p.stop(syscall.SIGTERM)
	first, err1 := os.ReadFile(file + ".1")
	second, err2 := os.ReadFile(file)
	if n, m := bytes.Count(first, []byte("\n")), bytes.Count(second, []byte("\n")); err1 != nil || err2 != nil || n != 20 || m != 10 {
		t.Errorf("%d and %d lines: %v, %v", n, m, err1, err2)
	}
}

// A named pipe that nobody reads keeps no edge from starting or serving; whoever reads it later finds the lines that fit in it.
func TestAccessLogIsAPipeWithoutAReader(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	p := startWriting(t, nil, nil, "access_log: {file: "+pipe+", format: combined}\n")
	p.serves(5)
	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that a test that fails does not wait for a writer
	must(t, err)
	defer r.Close()
	lines := bufio.NewScanner(r)
	for i := range 5 {
		if !lines.Scan() || !strings.Contains(lines.Text(), `"GET / HTTP/1.1" 200`) {
			t.Fatalf("line %d: %q, %v", i, lines.Text(), lines.Err())
		}
	}
	p.stop(syscall.SIGTERM)
}
