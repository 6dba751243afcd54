package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was done stays done, whatever a bar is told: it takes its rate from the difference.
func TestBarNeverGoesBack(t *testing.T) {
	var drawn bytes.Buffer
	b := newBar(&drawn, 1000, "what")
	for i := range 20 {
		b.Set(900 - 40*i)
	}
	if at := b.bar.State().CurrentNum; at != 900 {
		t.Errorf("the bar is at %d", at)
	}
	b.Set(950)
	b.Finish()
	if b.done != 950 || !strings.Contains(drawn.String(), "what") {
		t.Errorf("%d are done: %q", b.done, &drawn)
	}
}

// What is no terminal gets no bar, and a bar that is none may be used.
func TestNoBarWithoutATerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = f
	b := Progress(10, "what")
	b.Set(1)
	b.Describe("else")
	b.Finish()
	os.Stderr = was
	f.Close()
	if text, err := os.ReadFile(f.Name()); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
