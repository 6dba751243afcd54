package judge

import (
	"testing"
	"time"
)

func TestSplit(t *testing.T) {
	formula, delay := &Figures{Wrong: 5, WrongRatio: 0.05}, &Figures{Wrong: 8, WrongRatio: 0.08}
	got := NewSplit(formula, delay, nil)
	if got.Formula.Wrong != 5 || got.Delay.Wrong != 3 || got.Faults.Wrong != 0 {
		t.Errorf("%+v", got)
	}
}

func TestQuantilesOf(t *testing.T) {
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(200-i)*time.Millisecond)
	}
	if got, want := QuantilesOf(ds), (Quantiles{200, 0.1, 0.198, 0.2}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := QuantilesOf(nil); got != (Quantiles{}) {
		t.Error(got)
	}
}
