//go:build linux && amd64

package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is also a program that says by how much its wall clock is ahead of the system's, as it knows from its monotonic clock, which does
// not step.
func TestMain(m *testing.M) {
	if os.Getenv("TELL_CLOCK") == "" {
		os.Exit(m.Run())
	}
	start, monotonic := time.Now().Round(0), time.Now()
	fmt.Println("up")
	for {
		fmt.Println("ahead by", time.Now().Round(0).Sub(start)-time.Since(monotonic))
		time.Sleep(time.Millisecond)
	}
}

func TestStepClock(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TELL_CLOCK", "yes")
	p := &Process{Name: "clock/0", Path: path}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.exited
	})
	ahead := func(want time.Duration) func() error {
		return func() error {
			lines := strings.Split(p.Output(), " | ")
			last := lines[len(lines)-1]
			d, err := time.ParseDuration(strings.TrimPrefix(last, "ahead by "))
			if err == nil && (d-want).Abs() > 100*time.Millisecond {
				err = fmt.Errorf("%q; want about %v", last, want)
			}
			return err
		}
	}
	own, monotonic := time.Now().Round(0), time.Now()
	if err := p.Await(t.Context(), time.Minute, ahead(0)); err != nil {
		t.Fatal(err)
	}
	sum := time.Duration(0)
	for _, by := range []time.Duration{-5 * time.Second, 1700 * time.Millisecond, time.Hour, -time.Hour, 3300 * time.Millisecond} {
		if err := p.StepClock(by); err != nil {
			t.Fatal(err)
		}
		sum += by
		if err := p.Await(t.Context(), time.Minute, ahead(sum)); err != nil {
			t.Errorf("after a step of %v: %v", by, err)
		}
	}
	if d := time.Now().Round(0).Sub(own) - time.Since(monotonic); d.Abs() > time.Second {
		t.Errorf("the clock of this process has stepped by %v as well", d)
	}
	p.Stop(time.Second)
	if err := p.StepClock(time.Second); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("after its end: %v", err)
	}
}
