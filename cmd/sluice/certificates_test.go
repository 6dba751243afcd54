package main

import (
	"fmt"
	"testing"
	"time"

	"sluice/edge/listen"
)

// The series of a listener are bounded, and are of those certificates that expire first.
func TestExpiriesThatAreShown(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []listen.Expiry
	for i := range 3 * shownExpiries {
		all = append(all, listen.Expiry{File: fmt.Sprint(i), At: day.AddDate(0, 0, -i)})
	}
	shown := firstToExpire(all)
	if len(shown) != shownExpiries || shown[0] != all[len(all)-1] || shown[1] != all[len(all)-2] || all[0].File != "0" {
		t.Errorf("%d: %v", len(shown), shown)
	}
	if one := firstToExpire(all[:1]); len(one) != 1 {
		t.Errorf("%v", one)
	}
}
