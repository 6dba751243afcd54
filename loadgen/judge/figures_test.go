package judge

import (
	"testing"
)

func TestSplit(t *testing.T) {
	formula, delay := &Figures{Wrong: 5, WrongRatio: 0.05}, &Figures{Wrong: 8, WrongRatio: 0.08}
	got := NewSplit(formula, delay, nil)
	if got.Formula.Wrong != 5 || got.Delay.Wrong != 3 || got.Faults.Wrong != 0 {
		t.Errorf("%+v", got)
	}
}
