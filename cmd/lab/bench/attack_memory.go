package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/loadgen/process"
)

// ConnectionMemory is what a connection of HTTP/2 takes of a server's memory: medians over the
// rounds.
type ConnectionMemory struct {
	Connection string  `json:"connection"`
	Server     string  `json:"server"`
	Count      int     `json:"connections"` // of which the memory was measured
	Each       float64 `json:"memory"`      // bytes
}

// memory measures connections that do nothing: idle ones that have had an answer, and those on
// which the bodies of many requests are awaited.
func (h *HTTP2Attacks) memory(ctx context.Context) (all []ConnectionMemory, err error) {
	for _, k := range []struct {
		name           string
		count, streams int
	}{
		{"idle", h.Idle, 0},
		{"with 100 open streams", max(h.Idle/100, 1), 100},
	} {
		rows := make([][]float64, len(h.Servers))
		err := interleave(h.Rounds, len(h.Servers), func(round, i int) error {
			grew, err := h.connections(ctx, h.Servers[i], k.count, k.streams)
			rows[i] = append(rows[i], grew/float64(k.count))
			h.Say(fmt.Sprintf("round %d of %d: a connection %s, %s: %.1f KB", round+1, h.Rounds,
				k.name, h.Servers[i], grew/float64(k.count)/1e3))
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, name := range h.Servers {
			all = append(all, ConnectionMemory{k.name, name, k.count, medianOf(len(rows[i]),
				func(n int) float64 { return rows[i][n] })})
		}
	}
	return all, nil
}

// connections makes so many, each from another source, and returns by how much the server has grown
// then, in bytes.
func (h *HTTP2Attacks) connections(ctx context.Context, name string, count,
	streams int) (float64, error) {
	s, err := h.start(ctx, name, attack{})
	if err != nil {
		return 0, err
	}
	defer s.stop()
	from := attackSource
	open := func() (*tls.Conn, error) {
		from = from.Next()
		return h.connection(ctx, from, s.at, streams)
	}
	for range 3 { // what is made once is not theirs
		c, err := open()
		if err != nil {
			return 0, err
		}
		c.Close()
	}
	before := process.Memory(s.proc.PID())
	conns := make([]*tls.Conn, count)
	for i := range conns {
		if conns[i], err = open(); err != nil {
			return 0, fmt.Errorf("loadgen: http2-attacks: %s: connection %d of %d: %w", name, i,
				count, err)
		}
		defer conns[i].Close()
	}
	if err := process.Pause(ctx, 500*time.Millisecond); err != nil {
		return 0, err
	}
	return float64(process.Memory(s.proc.PID()) - before), s.proc.Crashed()
}

// connection makes one that has had an answer, or has so many streams whose bodies are yet to come.
func (h *HTTP2Attacks) connection(ctx context.Context, from netip.Addr, to netip.AddrPort,
	streams int) (*tls.Conn, error) {
	conn, err := dialH2(ctx, from, to)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	a := newAttacker("/", 65535)
	for range streams {
		a.request(false)
	}
	if streams == 0 {
		a.request(true)
	}
	a.framer.WritePing(false, [8]byte{1})
	if _, err := conn.Write(a.out.Bytes()); err != nil {
		conn.Close()
		return nil, err
	}
	for r, done, told := frames.NewFramer(io.Discard, conn), streams > 0, false; !done || !told; {
		f, err := r.ReadFrame()
		if err != nil {
			conn.Close()
			return nil, err
		}
		switch f := f.(type) {
		case *frames.DataFrame:
			done = done || f.StreamEnded()
		case *frames.PingFrame:
			told = told || f.IsAck()
		}
	}
	return conn, nil
}
