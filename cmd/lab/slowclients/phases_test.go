package slowclients

import (
	"testing"
	"time"
)

// TestWhatHarmsAnEdge: a client's p99 is worse where something holds up its edge for more than half of a phase, and not for a stall of two
// seconds, whenever it comes.
func TestWhatHarmsAnEdge(t *testing.T) {
	const phase = slowSeconds * time.Second
	// requests are those of a client for as long as an attack lasts, one in a hundred of them slow in any case. During a stall all that are due
	// wait for its end. From one time to another the edge takes so much longer for each.
	requests := func(stall, long time.Duration, from, to, harm time.Duration) (list []probed) {
		for i := range int((3*phase + time.Second) / (time.Second / probeRate)) {
			due := time.Duration(i) * time.Second / probeRate
			took := 900*time.Microsecond + time.Duration(i%100)*time.Microsecond
			if i%100 == 0 {
				took += time.Millisecond
			}
			if due >= stall && due < stall+long {
				took += stall + long - due
			}
			if due >= from && due < to {
				took += harm
			}
			list = append(list, probed{due, took})
		}
		return list
	}
	f := func(what string, with, without []probed, harmed string) {
		t.Helper()
		worst := worstPhase(phasesOf(with, without, phase))
		if got := worst.ratio() > mostHarm; got != (harmed != "") || got && worst.name != harmed {
			t.Errorf("%s: worst while %s, %.1f times the %v elsewhere", what, worst.name, worst.ratio(), worst.without)
		}
	}
	calm := requests(0, 0, 0, 0, 0)
	f("calm", calm, calm, "")
	for stall := time.Duration(0); stall < 3*phase; stall += 300 * time.Millisecond {
		f("a stall at "+stall.String(), requests(stall, 2*time.Second, 0, 0, 0), calm, "")
		f("elsewhere a stall at "+stall.String(), calm, requests(stall, 2*time.Second, 0, 0, 0), "")
	}
	for i, name := range []string{"opening", "standing", "ending"} {
		from := time.Duration(i) * phase
		harmed := requests(0, 0, from, from+phase, 2*time.Millisecond)
		f("harm while "+name, harmed, calm, name)
		f("and a stall elsewhere", harmed, requests(from+time.Second/2, 2*time.Second, 0, 0, 0), name)
		f("in most of its seconds", requests(0, 0, from, from+4*time.Second, 2*time.Millisecond), calm, name)
		f("in few of them", requests(0, 0, from, from+3*time.Second, 2*time.Millisecond), calm, "")
	}
	f("harm to both", requests(0, 0, 0, 3*phase, 2*time.Millisecond), requests(0, 0, 0, 3*phase, 2*time.Millisecond), "")

	// A pause of 50 ms each second, of those who take turns each second, is in every second's p99.
	pausing := requests(0, 0, 0, 0, 0)
	for i := range pausing {
		if into := pausing[i].due % time.Second; pausing[i].due >= phase && pausing[i].due < 2*phase && into < 50*time.Millisecond {
			pausing[i].took += 50*time.Millisecond - into
		}
	}
	f("a pause each second", pausing, calm, "standing")
}
