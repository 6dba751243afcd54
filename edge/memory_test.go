package edge

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Above the limit new connections are closed, unless mitigated ones make room; requests under way are served, and all is well when memory
// is free again.
func TestMemoryShedsConnections(t *testing.T) {
	o := startSlowOrigin(t, 200)
	e := o.edge(t, "limits: {memory: 1GiB}\n"+fmt.Sprintf(oneRule, 1))
	kept := e.from(local(9))
	o.keep(kept)
	set := func(used uint64) {
		m := e.Registry().Memory
		m.Mu.Lock()
		defer m.Mu.Unlock()
		m.Next, m.Used = time.Time{}, func() uint64 { return used }
	}
	set(1 << 30)
	if c, err := net.Dial("tcp", e.addr); err == nil { // the kernel accepts
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if all, _ := io.ReadAll(c); len(all) > 0 {
			t.Errorf("a new connection got %q", all)
		}
		c.Close()
	}
	set(0)
	const room = 3 // go for one
	fill(e, room)
	until(t, "they are idle", func() bool { return idle(e) == room })
	set(1 << 30)
	if !e.served(local(2)) || e.served(local(3)) {
		t.Error("of two newcomers the first has the room of mitigated connections, the second none")
	}
	o.release()
	if resp, _ := kept.hear("GET"); resp.StatusCode != 200 {
		t.Errorf("an open connection got %d", resp.StatusCode)
	}
	if m := e.metrics(); m["sluice_connections_refused_total{cap=memory}"] != 2 {
		t.Errorf("metrics: %v", m)
	}
	set(0)
	if !e.served(local(3)) {
		t.Error("with memory to spare a newcomer is not served")
	}
}
