// Package accesslogtest has an edge log into memory.
package accesslogtest

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/modules/accesslog"
)

// Files keeps what was written to every file that was opened.
type Files struct {
	mu   sync.Mutex
	Text []*bytes.Buffer
}

// Open opens another file.
func (f *Files) Open(string) (io.WriteCloser, error) {
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

// Start is an edge with an access log of a format. What it returns last ends the log, which is
// whole then.
func Start(t *testing.T, format, yaml string, change ...func(*edge.Options)) (*edgetest.Edge,
	*Files, func()) {
	t.Helper()
	f := new(Files)
	m := accesslog.ModuleOn(f.Open)
	use := edge.Modules{m}
	c, err := (config.Parser{Modules: use.Config()}).Parse("test.yaml",
		[]byte("access_log: {file: memory, format: "+format+"}\n"+yaml))
	edgetest.Must(t, err)
	c.Origins = edgetest.WithoutRules(t,
		edgetest.StartRecorder(t, edgetest.Hello).URL()).Origins
	e := edgetest.Serve(t, edgetest.NewServer(t, c, append(change, edgetest.Using(m))...))
	edgetest.Must(t, use.Start())
	ctx, cancel := context.WithCancel(context.Background())
	var written sync.WaitGroup
	written.Go(func() { m.Run(ctx) })
	return e, f, func() { e.Rest(); cancel(); written.Wait() }
}
