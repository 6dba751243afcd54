package edge

import (
	"testing"
	"testing/synctest"
	"time"
)

// A request waits for the tier until every answer is there, or its budget is used up.
func TestRequestWaitsForTheTierWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := WithBudget(5 * time.Millisecond)
		f := func(want time.Duration, answers ...time.Duration) {
			t.Helper()
			began, heard := time.Now(), make([]<-chan struct{}, len(answers))
			for i, after := range answers {
				ch := make(chan struct{})
				heard[i] = ch
				time.AfterFunc(after, func() { close(ch) })
			}
			if s.Wait(heard); time.Since(began) != want {
				t.Errorf("answers after %v: waited %v, want %v", answers, time.Since(began), want)
			}
		}
		f(2*time.Millisecond, 2*time.Millisecond)
		f(3*time.Millisecond, 3*time.Millisecond, time.Millisecond)
		f(5*time.Millisecond, time.Millisecond, time.Hour)
	})
}
