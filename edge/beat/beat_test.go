package beat

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestIn(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for _, step := range []struct{ after, every, want time.Duration }{
		{0, Period, Period},
		{100 * time.Millisecond, Period, 400 * time.Millisecond},
		{437 * time.Millisecond, Period, 63 * time.Millisecond},
		{499 * time.Millisecond, Period, 501 * time.Millisecond}, // a timer that was early
		{500 * time.Millisecond, Period, Period},
		{500 * time.Millisecond, time.Second, 500 * time.Millisecond},
		{990 * time.Millisecond, time.Second, 1010 * time.Millisecond},
	} {
		if got := In(at.Add(step.after), step.every); got != step.want {
			t.Errorf("In(%v, %v) = %v, want %v", step.after, step.every, got, step.want)
		}
	}
}

// What began at different times looks at the same moments, however long a look takes.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now() // in a bubble, a whole second
		var a, b []time.Duration
		go Every(ctx, Period, func(now time.Time) {
			a = append(a, now.Sub(began))
			time.Sleep(20 * time.Millisecond)
		})
		time.Sleep(230 * time.Millisecond)
		go Every(ctx, 2*Period, func(now time.Time) { b = append(b, now.Sub(began)) })
		time.Sleep(2 * time.Second)
		cancel()
		synctest.Wait()
		if len(a) != 4 || len(b) != 2 {
			t.Fatalf("%v, %v", a, b)
		}
		for i := range a {
			if want := time.Duration(i+1) * Period; a[i] != want {
				t.Errorf("look %d at %v, want %v", i, a[i], want)
			}
		}
		if b[0] != a[1] || b[1] != a[3] {
			t.Errorf("%v beside %v", b, a)
		}
	})
}
