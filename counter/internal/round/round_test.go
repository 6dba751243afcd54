package round

import "testing"

// TestRoomIsUsedUp: requests that hear of a round are within the limit as long as there is room for all of their hits, in whatever order they come.
func TestRoomIsUsedUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		more    int64
		hits    []uint32
		beyond  uint32
		answers []Answer
		left    uint32
	}{
		{"all", 9, []uint32{1, 1, 1}, 0, []Answer{Admit, Admit, Admit}, 0},
		{"some", 2, []uint32{1, 1, 1}, 1, []Answer{Admit, Admit, Reject}, 0},
		{"none, over already", -3, []uint32{1, 1}, 2, []Answer{Reject, Reject}, 0},
		{"a costly one first", 3, []uint32{4, 2, 1}, 4, []Answer{Reject, Admit, Admit}, 0},
		{"less room than any needs", 1, []uint32{2, 2}, 3, []Answer{Reject, Reject}, 1},
	} {
		r := New()
		for _, n := range c.hits {
			r.Waiting += n
		}
		if got := r.Rank(c.more); got != c.beyond {
			t.Errorf("%s: %d beyond, want %d", c.name, got, c.beyond)
		}
		for i, n := range c.hits {
			if got := r.Take(n); got != c.answers[i] {
				t.Errorf("%s: request %d: %d, want %d", c.name, i, got, c.answers[i])
			}
		}
		if r.Waiting != 0 || r.Room != c.left {
			t.Errorf("%s: %d wait and %d room at the end, want 0 and %d", c.name, r.Waiting, r.Room, c.left)
		}
	}
}

// TestWhoDoesNotWaitIsToldNothing: a round that is ended without a rank says so.
func TestWhoDoesNotWaitIsToldNothing(t *testing.T) {
	r := New()
	r.Waiting = 2
	if got := r.Take(1); got != NoAnswer {
		t.Errorf("before the answer: %d, want Silent", got)
	}
	r.End()
	<-r.Reply
	if got := r.Take(1); got != NoAnswer || r.Waiting != 0 {
		t.Errorf("after the end: %d, %d wait, want Silent and none", got, r.Waiting)
	}
}
