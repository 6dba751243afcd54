package pop

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// When an edge looks at its nodes: about once a request, as often as it may during an attack, twice a second while nobody asks, and never later than a beat after the last look.
// Its first second is as one with requests.
func TestAttention(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	began := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		what     string
		requests []time.Duration
		moved    time.Duration // when the log had something new; 0: never
		until    time.Duration
		looks    []time.Duration // from a second after the start on
	}{
		{"nobody asks", nil, 0, 3000 * ms, each(1460*ms, 3000*ms, 500*ms)},
		{"one request", []time.Duration{1501 * ms}, 0, 3000 * ms, slices.Concat([]time.Duration{1460 * ms}, each(1501*ms, 2501*ms, 40*ms), []time.Duration{2961 * ms})},
		{"seldom", []time.Duration{1700 * ms, 1705 * ms, 1735 * ms, 1800 * ms}, 0, 1830 * ms, []time.Duration{1460 * ms, 1700 * ms, 1715 * ms, 1735 * ms, 1775 * ms, 1800 * ms}},
		{"many", each(2000*ms, 2100*ms, ms), 0, 2130 * ms, slices.Concat([]time.Duration{1460 * ms, 1960 * ms}, each(2000*ms, 2110*ms, 15*ms))},
		{"an attack", nil, 1470 * ms, 32800 * ms, slices.Concat([]time.Duration{1460 * ms}, each(1960*ms, 31470*ms, 15*ms), each(31965*ms, 32800*ms, 500*ms))},
		{"requests in an attack", []time.Duration{2001 * ms, 2003 * ms}, 1470 * ms, 2040 * ms, slices.Concat([]time.Duration{1460 * ms}, each(1960*ms, 2040*ms, 15*ms))},
	} {
		now, woken := began, false
		blocks := mitigation.New(0, func() { woken = true })
		m, err := NewMachine(Config{Nodes: []string{"a:1"}, Secret: secret.Of([]byte("s")), ID: 1, Edges: 1,
			Counters: counter.New(counter.Options{Tier: true, Seed: 1}), Blocks: blocks}, now)
		if err != nil {
			t.Fatal(err)
		}
		var looks []time.Duration
		requests, next := test.requests, began
		for ; now.Sub(began) < test.until; now = now.Add(ms) {
			for len(requests) > 0 && requests[0] <= now.Sub(began) {
				blocks.Until(mitigation.Key{Rule: 1}, now)
				requests = requests[1:]
			}
			if test.moved > 0 && now.Sub(began) == test.moved {
				m.logs.HeadRead(0, strconv.AppendInt(nil, now.UnixMicro(), 10), now, now)
			}
			if !woken && now.Before(next) {
				continue
			}
			woken = false
			if m.attend(now) && now.Sub(began) > time.Second {
				looks = append(looks, now.Sub(began))
			}
			m.presence.Take(0) // or it is in a hurry to have a slot
			next = now.Add(m.lookIn(now))
		}
		if diff := cmp.Diff(test.looks, looks); diff != "" {
			t.Errorf("%s: looks at (-want +got):\n%s", test.what, diff)
		}
	}
}

func each(from, to, every time.Duration) (list []time.Duration) {
	for ; from < to; from += every {
		list = append(list, from)
	}
	return list
}
