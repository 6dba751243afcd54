package operator

import (
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
)

// What status says of the wall: what it does, or what is wrong with it.
func TestWallLine(t *testing.T) {
	since := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		wall control.Wall
		want []string
	}{
		{control.Wall{Up: true, Since: since, Entries: 1, Room: 65536, Refused: 12}, []string{"up", "1 source,", "at most 65536", "12 connections"}},
		{control.Wall{Since: since, Error: "connect: no such file"}, []string{"away since", "closes connections of blocked sources", "connect: no such file"}},
	} {
		for _, want := range test.want {
			if got := wallLine(&test.wall); !strings.Contains(got, want) {
				t.Errorf("%+v: %q has no %q", test.wall, got, want)
			}
		}
	}
}
