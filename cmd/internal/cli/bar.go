package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar shows how far something is, on a terminal. On anything else, and if it is nil, it draws
// nothing. It is safe for concurrent use.
type Bar struct {
	mu   sync.Mutex
	bar  *progressbar.ProgressBar
	done int
}

// Progress is a bar on standard error; nil if that is no terminal.
func Progress(total int, what string) *Bar {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return newBar(os.Stderr, total, what)
}

func newBar(to io.Writer, total int, what string) *Bar {
	return &Bar{bar: progressbar.NewOptions(total, progressbar.OptionSetWriter(to),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("req"),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())}
}

// Set says how much is done. What was done stays done: a bar that is set back, by a new beginning
// or a late report, would show a rate below 0.
func (b *Bar) Set(done int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if done > b.done {
		b.done = done
		_ = b.bar.Set(done)
	}
}

// Describe says what is being done.
func (b *Bar) Describe(what string) {
	if b != nil {
		b.bar.Describe(what)
	}
}

// Finish removes the bar.
func (b *Bar) Finish() {
	if b != nil {
		_ = b.bar.Finish()
	}
}
