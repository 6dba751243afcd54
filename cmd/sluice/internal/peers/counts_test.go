package peers

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop/across"
)

// Counts go to a peer together with blocks, of each source the latest, and not while peers are off.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fra, ams, _, received := virtual(t)
		var got []across.Count
		ams.AddCount = func(from string, c across.Count, sent, now time.Time) across.Outcome {
			if got = append(got, c); from != "fra1" || !sent.Equal(now) {
				t.Errorf("from %s, sent at %v", from, sent)
			}
			return across.Counted
		}
		announce := func(hits ...uint32) {
			b := block("192.0.2.1")
			fra.AnnounceCount(across.Count{Rule: b.Rule, Counts: b.Counts, Source: b.Source, Window: b.Window, Began: time.Now(), Sub: 5 * time.Second, Hits: hits})
			time.Sleep(time.Millisecond)
		}
		announce(1, 60)
		announce(2, 60)
		fra.Announce(block("192.0.2.2"))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(got) != 1 || got[0].Hits[0] != 2 || len(received) != 1 {
			t.Errorf("%d blocks, counts %+v", len(received), got)
		}
		fra.Turn(false)
		announce(3, 60)
		fra.Turn(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if sent, taken := shown(t, fra, `sluice_peer_counts_sent_total{peer="ams1"}`), shown(t, ams, `sluice_peer_counts_received_total{peer="fra1",result="counted"}`); len(got) != 1 ||
			sent != "1" || taken != "1" {
			t.Errorf("%d counts, %s sent, %s taken", len(got), sent, taken)
		}
	})
}
