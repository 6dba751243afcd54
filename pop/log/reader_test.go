package log

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestMissingNumber: a number that is missing holds up nothing, is asked for again, and is given up after a while.
func TestMissingNumber(t *testing.T) {
	var r Reader
	now := time.Unix(1_700_000_000, 0)
	if r.Next(now, 0) != nil {
		t.Error("numbers of a log of which nothing is known")
	}
	r.NotThere()
	if r.Head(5*Behind + 2) {
		t.Error("a log that has just begun was missed")
	}
	read := func(there ...uint64) (requested []uint64, missed bool) {
		t.Helper()
		requested = slices.Clone(r.Next(now, 0))
		values := make([][]byte, len(requested))
		for i, number := range requested {
			if slices.Contains(there, number) {
				values[i] = []byte{}
			}
		}
		return requested, r.Read(values, now)
	}
	const first = 5 * Behind
	if requested, missed := read(first, first+2); len(requested) != 4 || requested[0] != first || missed {
		t.Errorf("asked for %v, missed %v: want four from %d on", requested, missed, uint64(first))
	}
	if len(r.missing) != 1 {
		t.Errorf("%v is missing", r.missing)
	}
	now = now.Add(patience - time.Millisecond)
	if requested, missed := read(first + 3); requested[0] != first+1 || requested[1] != first+3 || missed {
		t.Errorf("asked for %v, missed %v: want %d, and what comes after %d", requested, missed, uint64(first+1), uint64(first+2))
	}
	now = now.Add(time.Millisecond)
	if _, missed := read(); !missed {
		t.Error("never given up")
	}
	if requested, _ := read(); requested[0] != first+4 {
		t.Errorf("asked for %v, want what comes next", requested)
	}
	if !r.Head(7 * Behind) {
		t.Error("far behind, and nothing was missed")
	}
}

// TestHead: what a reader begins with, and that it says so where it has missed something.
func TestHead(t *testing.T) {
	const clock = 100 * Behind
	type head struct {
		there  bool // the node has a log
		number uint64
		missed bool
		next   uint64 // the first number that is asked for then
	}
	for name, heads := range map[string][]head{
		"a log that was there before":        {{true, clock + 7, true, clock}},
		"of which one number is out":         {{true, clock, true, clock}},
		"one that begins":                    {{false, 0, false, 0}, {true, clock + 7, false, clock}},
		"it goes on":                         {{true, clock + 7, true, clock}, {true, clock + Behind, false, clock}},
		"too far":                            {{true, clock + 7, true, clock}, {true, clock + Behind + 1, true, clock + Behind}},
		"it is gone, and begins again":       {{true, clock + 7, true, clock}, {false, 0, false, clock}, {true, clock + 1000*Behind + 7, false, clock + 1000*Behind}},
		"it begins again, by a late clock":   {{true, clock + 7, true, clock}, {true, clock - 9*Behind + 7, false, clock - 9*Behind}},
		"a number that was read before last": {{true, clock + Behind - 1, true, clock}, {true, clock + 7, false, clock}},
	} {
		var r Reader
		for i, h := range heads {
			missed := false
			if h.there {
				missed = r.Head(h.number)
			} else {
				r.NotThere()
			}
			if missed != h.missed || r.next != h.next || h.there && (!r.IsCurrent(h.number) || r.Settled()) {
				t.Errorf("%s, %d: missed %v, next %d; want %v, %d", name, i, missed, r.next, h.missed, h.next)
			}
		}
	}
}

// TestOneReadAtATime: numbers are asked for when those before are answered, and not before it is time.
func TestOneReadAtATime(t *testing.T) {
	var r Reader
	now := time.Unix(1_700_000_000, 0)
	r.Head(5 * Behind)
	asks := func(at, every time.Duration, want bool) {
		t.Helper()
		if got := r.Next(now.Add(at), every) != nil; got != want {
			t.Errorf("%v after the first, every %v: asks %v, want %v", at, every, got, want)
		}
	}
	asks(0, time.Second, true)
	asks(time.Minute, time.Second, false)
	r.Failed()
	asks(time.Second-1, time.Second, false)
	asks(time.Second, time.Second, true)
	r.Read(make([][]byte, len(r.requested)), now)
	asks(2*time.Second-1, time.Second, false)
	asks(2*time.Second, time.Second, true)
}

// TestWidth: how many numbers are asked for at once. It is as many as are known to be out, a few more than were found where that is not known,
// and fewer after a read that failed.
func TestWidth(t *testing.T) {
	var r Reader
	now := time.Unix(1_700_000_000, 0)
	r.NotThere()
	head := uint64(5 * Behind)
	step := func(what string, out uint64, want int, becomes string) {
		t.Helper()
		if head += out; out > 0 {
			r.Head(head - 1)
		}
		requested := r.Next(now, time.Second)
		if len(requested) != want {
			t.Errorf("%s: asked for %d, want %d", what, len(requested), want)
		}
		values := make([][]byte, len(requested))
		switch becomes {
		case "failed":
			r.Failed()
			now = now.Add(time.Second)
			return
		case "found":
			for i := range values {
				values[i] = []byte{}
			}
		}
		if r.Read(values, now) {
			t.Errorf("%s: missed", what)
		}
		if becomes == "none" {
			now = now.Add(time.Second)
		} else if head = max(head, r.next); len(r.missing) != 0 || r.next != head {
			t.Errorf("%s: the next is %d, want %d", what, r.next, head)
		}
	}
	step("one is out", 1, 4, "found")
	step("all that were asked for were there, and so at once twice as many", 0, 8, "found")
	step("and again", 0, 16, "found")
	step("and again", 0, 32, "found")
	step("no more than half of all", 0, 50, "found")
	step("none was there", 0, 50, "none")
	step("so it is a few again", 0, 4, "none")
	step("thirty are out", 30, 30, "failed")
	step("half of all", 0, 25, "failed")
	step("half of that", 0, 12, "failed")
	step("and so on", 0, 6, "failed")
	step("and so on", 0, 3, "failed")
	step("one at least", 0, 1, "failed")
	step("one at least", 0, 1, "failed")
	if head -= 30; r.next != head {
		t.Errorf("the next is %d, want %d", r.next, head)
	}
	for _, want := range []int{1, 2, 4, 8} {
		step("it goes again", 0, want, "found")
	}
}

// TestManyGaps: so many numbers are asked for again, and no more: of the rest a reader says that they were missed. As long as it knows of some
// that it has not asked for, it does not wait.
func TestManyGaps(t *testing.T) {
	var r Reader
	now, first := time.Unix(1_700_000_000, 0), uint64(5*Behind)
	r.NotThere()
	r.Head(first + maxWidth)
	if requested := r.Next(now, time.Second); len(requested) != maxWidth || r.Read(make([][]byte, len(requested)), now) {
		t.Errorf("asked for %d, want %d, of which none is missed yet", len(requested), maxWidth)
	}
	if requested := r.Next(now, time.Second); len(requested) < maxMissing+1 || len(requested) > MaxNumbers || !r.Read(make([][]byte, len(requested)), now) {
		t.Errorf("asked for %d, and nothing is missed", len(requested))
	}
	if len(r.missing) != maxMissing || r.next != first+maxWidth+1 {
		t.Errorf("%d are missing, the next is %d", len(r.missing), r.next-first)
	}
	if r.Next(now, time.Second) != nil {
		t.Error("asked again at once")
	}
}

// TestGapsOfALogThatBeginsAgain: numbers of a log that a reader has found there may be forgotten, up to the last. Those of one that has begun
// again are not, though they are lower.
func TestGapsOfALogThatBeginsAgain(t *testing.T) {
	const head = 50*Behind + 1 // of which two numbers are out
	for _, test := range []struct {
		name   string
		before func(*Reader)
		gaps   int
	}{
		{"it was there before", func(*Reader) {}, 0},
		{"it was gone", func(r *Reader) { r.Head(100*Behind + 7); r.NotThere() }, 2},
		{"its clock is behind", func(r *Reader) { r.Head(100*Behind + 7) }, 2},
	} {
		var r Reader
		now := time.Unix(1_700_000_000, 0)
		test.before(&r)
		r.Head(head)
		if r.Read(make([][]byte, len(r.Next(now, 0))), now); len(r.missing) != test.gaps || r.next != head+1 {
			t.Errorf("%s: %v is missing, want %d", test.name, r.missing, test.gaps)
		}
	}
}

// TestKnows: a Head of a number that a reader IsCurrent changes nothing, and of any other something.
func TestKnows(t *testing.T) {
	var r Reader
	numbers := []uint64{0, 1, Behind, Behind + 1, 2 * Behind, 2*Behind + 1, 3 * Behind, 3*Behind + 1}
	for _, r.empty = range []bool{false, true} {
		for _, r.next = range numbers {
			for _, r.head = range numbers {
				for _, number := range numbers[2:] { // of the others none is a log's
					before, after := fmt.Sprint(r), r
					missed := after.Head(number)
					if same := !missed && before == fmt.Sprint(after); same != r.IsCurrent(number) {
						t.Errorf("%+v knows %d: %v", r, number, !same)
					}
				}
			}
		}
	}
}

// TestReaderReadsAll: whatever is written in time is read, once, and of what is not a reader says that something was missed. Items come late,
// some never, some all at once; reads fail, and the head is looked at now and then.
func TestReaderReadsAll(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r Reader
		now, head := time.Unix(1_700_000_000, 0), uint64(50*Behind)-1
		stored, read := make(map[uint64]time.Time), make(map[uint64]int)
		misses, never := 0, 0
		r.NotThere()
		step := func(write bool) {
			now = now.Add(5 * time.Millisecond)
			n, late := max(0, rng.IntN(8)-5), 50
			if rng.IntN(200) == 0 {
				n, late = 500, 1
			}
			for range n {
				if !write {
					break
				}
				switch head++; rng.IntN(1000) {
				case 0:
					never++
				case 1, 2:
					stored[head] = now.Add(patience - 200*time.Millisecond)
				default:
					stored[head] = now.Add(time.Duration(rng.IntN(late)) * time.Millisecond)
				}
			}
			if rng.IntN(5) == 0 && head >= 50*Behind && r.Head(head) {
				t.Errorf("seed %d: the head is too far", seed)
			}
			requested := r.Next(now, 0)
			if requested == nil {
				return
			}
			if len(requested) > MaxNumbers {
				t.Errorf("seed %d: %d numbers at once", seed, len(requested))
			}
			if rng.IntN(10) == 0 {
				r.Failed()
				return
			}
			values := make([][]byte, len(requested))
			for i, number := range requested {
				if at, ok := stored[number]; ok && !now.Before(at) {
					values[i] = []byte{}
					read[number]++
				}
			}
			if r.Read(values, now) {
				misses++
			}
		}
		for range 2000 {
			step(true)
		}
		if settled := r.Settled(); settled != (len(r.missing) == 0 && r.next == head+1) {
			t.Errorf("seed %d: settled %v with %d missing", seed, settled, len(r.missing))
		}
		for range 1000 {
			step(false)
		}
		for number := range stored {
			if read[number] != 1 {
				t.Errorf("seed %d: item %d was read %d times", seed, number-50*Behind, read[number])
			}
		}
		if misses == 0 != (never == 0) || misses > never {
			t.Errorf("seed %d: something was missed %d times, and %d items were never there", seed, misses, never)
		}
		if !r.Settled() {
			t.Errorf("seed %d: %d numbers are missing at the end", seed, len(r.missing))
		}
		now = now.Add(time.Hour)
		if requested := r.Next(now, 0); len(requested) != width || requested[0] != head+1 {
			t.Errorf("seed %d: asked for %v at the end, want %d from %d on", seed, requested, width, head+1)
		}
	}
}
