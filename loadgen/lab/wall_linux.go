package lab

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// wallRefused is how many connections the kernel has refused, by its own count. That begins anew
// with the wall.
func (s *Site) wallRefused() (uint64, error) {
	if s.Wall == "" {
		return 0, nil
	}
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("loadgen: lab: read the kernel's count of refused connections: %w",
			err)
	}
	c, err := nftables.New()
	if err != nil {
		return fail(err)
	}
	object, err := c.GetObject(&nftables.NamedObj{Table: &nftables.Table{Name: "sluice",
		Family: nftables.TableFamilyINet}, Name: "refused", Type: nftables.ObjTypeCounter})
	if err != nil {
		return fail(err)
	}
	if named, ok := object.(*nftables.NamedObj); ok {
		if counter, ok := named.Obj.(*expr.Counter); ok {
			return counter.Packets, nil
		}
	}
	return fail(fmt.Errorf("it says %T", object))
}
