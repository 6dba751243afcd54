package address

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Three addresses of one balancer are found among many strangers who write such headers themselves.
func TestUnbelievedAmongStrangers(t *testing.T) {
	var u Unbelieved
	now := time.Unix(1_800_000_000, 0)
	for i := range byte(200) { // they are there when the balancer comes
		u.Hit(netip.AddrFrom4([4]byte{100, 65, 0, i}))
	}
	for i := range 3000 {
		u.Hit(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 3)}))
		if i%3 == 0 {
			u.Hit(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}))
		}
	}
	if peer, n, of := u.Look(4000, now); of != 4000 || n == 0 || !strings.HasPrefix(peer, "10.0.0.") || n > 1000 {
		t.Errorf("%v with %d of %d", peer, n, of)
	}
	if peer, n, _ := u.Look(4000, now.Add(time.Second)); n != 0 {
		t.Errorf("again %v with %d", peer, n)
	}
}
