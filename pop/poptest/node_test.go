package poptest

import (
	"testing"
	"time"

	"sluice/pop/wire"
)

// A value that was answered stays as it was, whatever becomes of the item; an empty one is not none.
func TestLentValues(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	n := New(0)
	get := func() []byte { return n.Do(now, wire.Command{Op: wire.Get, Key: "a"}).Values[0] }
	set := func(v string) { n.Do(now, wire.Command{Op: wire.Set, Key: "a", Value: []byte(v)}) }
	var given [][]byte
	for _, v := range []string{"41", "", "7"} {
		set(v)
		given = append(given, get(), get())
	}
	n.Do(now, wire.Command{Op: wire.Incr, Key: "a", Delta: 1})
	given = append(given, get())
	set("x")
	for i, want := range []string{"41", "41", "", "", "7", "7", "8"} {
		if given[i] == nil || string(given[i]) != want {
			t.Errorf("answer %d is %q, want %q", i, given[i], want)
		}
	}
}
