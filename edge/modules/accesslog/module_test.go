package accesslog

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
)

func parse(t *testing.T, m edge.Module, yaml string) *config.Config {
	t.Helper()
	c, err := (config.Parser{Modules: edge.Modules{m}.Config()}).Parse("f", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prepare is a module's observers under a configuration.
func prepare(t *testing.T, of func(*edge.Setup) (edge.Points, error), yaml string,
	warn func(string, ...any)) []edge.Observer {
	t.Helper()
	p, err := of(&edge.Setup{Config: parse(t, Module(), yaml), Warn: warn})
	if err != nil {
		t.Fatal(err)
	}
	return p.Observers
}

// A file that cannot be made is an error of a check and of a start, and that of a configuration
// that comes later is not opened.
func TestFileCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "access.log")
	m := Module()
	bad, none := "access_log: {file: "+file+"}", "access_log: {format: combined}"
	for _, step := range []struct{ yaml, want string }{
		{bad, "access_log.file: write " + filepath.Dir(file) +
			": no such file or directory: give the path of a file that can be written"},
		{none, ""}, {"", ""}, {"access_log: {file: '-'}", ""},
	} {
		err := m.Try(parse(t, m, step.yaml))
		if got := ""; err != nil {
			if got = err.Error(); got != step.want {
				t.Errorf("%s: %s, want %s", step.yaml, got, step.want)
			}
		} else if step.want != "" {
			t.Errorf("%s: no error", step.yaml)
		}
	}
	prepare(t, m.Prepare, bad, nil)
	if err := m.Start(); err == nil || err.Error() != "access_log.file: open "+file+
		": no such file or directory: give the path of a file that can be written" {
		t.Error(err)
	}
	if m = Module(); len(prepare(t, m.Prepare, none, nil))+len(prepare(t, m.Prepare, bad, nil)) > 0 {
		t.Error("without a log requests are observed")
	}
	if err := m.Start(); err != nil {
		t.Error(err)
	}
	m.Run(context.Background())
}

// A blocked file takes nothing until it is told to.
type blocked struct{ goesOn chan struct{} }

func (f blocked) Write(p []byte) (int, error) { <-f.goesOn; return 0, errors.New("gone") }
func (blocked) Close() error                  { return nil }

// A reader of the log that has stopped holds up the end of the process for a second, and what is
// lost is said, by a warning and in what operators see.
func TestReaderHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := blocked{make(chan struct{})}
		m := &module{open: func(string) (io.WriteCloser, error) { return file, nil }}
		var warnings []string
		all := prepare(t, m.prepare, "access_log: {file: pipe}",
			func(text string, _ ...any) { warnings = append(warnings, text) })
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		all[0].Answered(nil, entry("/", ""))
		var running sync.WaitGroup
		running.Go(func() { m.run(ctx, nil) })
		synctest.Wait()
		cancel()
		prepare(t, m.prepare, "access_log: {file: pipe}", nil) // a reload, of which run reads nothing
		running.Wait()
		close(file.goesOn)
		synctest.Wait()
		var s control.State
		if m.state(&s); s.AccessLog == nil || s.AccessLog.Error != "gone" || s.AccessLog.Lost != 1 {
			t.Errorf("%+v", s.AccessLog)
		}
		if len(warnings) != 1 || warnings[0] != "the access log could not be written to its end" {
			t.Errorf("%q", warnings)
		}
	})
}
