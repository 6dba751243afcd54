package edgetest

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"sluice/edge"
	"sluice/edge/accesslog"
)

// Files keeps what was written to every file that was opened.
type Files struct {
	mu   sync.Mutex
	Text []*bytes.Buffer
}

func (f *Files) Open() (io.WriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := new(bytes.Buffer)
	f.Text = append(f.Text, b)
	return file{f, b}, nil
}

type file struct {
	all *Files
	buf *bytes.Buffer
}

func (f file) Write(p []byte) (int, error) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	return f.buf.Write(p)
}

func (f file) Close() error { return nil }

// StartLogged is an edge with an access log in memory. What it returns last ends the log, which is
// whole then.
func StartLogged(t *testing.T, c accesslog.Config, yaml string) (*Edge, *Files, func()) {
	config := Parse(t, yaml)
	config.Origins = WithoutRules(t, StartRecorder(t, Hello).URL()).Origins
	f := &Files{}
	l, err := accesslog.Open(c, f.Open)
	Must(t, err)
	e := Serve(t, NewServer(t, config, func(o *edge.Options) { o.Access = l }))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { l.Run(ctx, func(err error) { t.Error(err) }) })
	return e, f, func() { e.Rest(); cancel(); wait.Wait() }
}
