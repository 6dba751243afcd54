// Package helper answers edges over a Unix socket: it puts the entries that they may have into the
// kernel, and answers what is wrong with the rest.
//
// Only the edge's user is served: SO_PEERCRED names the user of a connection, whatever the
// permissions of the socket. All connections share one set; the entries of an edge that disconnects
// end with their leases.
package helper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/cmd/sluice-wall/internal/nft"
	"sluice/edge/wall/record"
)

const (
	// mostConnections is how many connections are served at once, for eight edges or for four that
	// hand over to others, and how many may wait at once for the answer that they are not served.
	mostConnections = 8
	// writeTime is how long an edge may take to read an answer.
	writeTime = 2 * time.Second
	// logTime is the shortest time between two lines of the log about connections that are refused,
	// or about errors of the kernel.
	logTime = time.Second
	// sweepTime is the shortest time between two searches of a full set for entries that have
	// ended.
	sweepTime = 100 * time.Millisecond
)

// Kernel is where entries are kept: an nft.Table.
type Kernel struct {
	Apply  func(adds []nft.Lease, deletes []netip.Prefix) error
	Flush  func() error
	Counts func() (list []nft.Count, refused uint64, err error)
}

// Config says what a Helper does.
type Config struct {
	Kernel Kernel
	Ports  []uint16      // that are guarded
	User   uint32        // whose connections are served
	Max    int           // entries
	Lease  time.Duration // the longest
	Log    *slog.Logger
}

// Helper keeps the entries. It is safe for concurrent use.
type Helper struct {
	Config

	// Connections that get a refusal now; no part of what mu guards, which waits for the kernel
	refusing atomic.Int32
	refused  atomic.Int64 // when one was logged last, Unix nanoseconds

	mu sync.Mutex
	// Of all entries, and of those that have ended since the last sweep
	ends        map[netip.Prefix]time.Time
	swept       time.Time
	failed      time.Time // when the kernel's last error was logged
	connections int
}

// New makes a helper without entries. The kernel must have none.
func New(c Config) *Helper { return &Helper{Config: c, ends: make(map[netip.Prefix]time.Time)} }

// Serve accepts and answers connections until ctx is done. It closes ln, and returns when all
// connections are closed.
func (h *Helper) Serve(ctx context.Context, ln *net.UnixListener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			h.Log.Warn("a connection was not accepted", "error", err)
			select {
			// There are no descriptors until one is closed
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		all.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			h.admit(c)
		})
	}
}

// admit serves a connection, or refuses it for its user or because there are too many.
func (h *Helper) admit(c *net.UnixConn) {
	user, err := peer(c)
	if err != nil {
		h.Log.Warn("the user of a connection is unknown", "error", err)
		return
	}
	if user != h.User {
		no := record.Record{Op: record.Hello, Code: record.WrongUser, A: uint64(user),
			B: uint64(h.User)}
		if now, last := time.Now().UnixNano(), h.refused.Load(); now-last >= int64(logTime) &&
			h.refused.CompareAndSwap(last, now) {
			h.Log.Warn("a connection was refused", "error", no.Error())
		}
		h.refuse(c, no)
		return
	}
	h.mu.Lock()
	h.connections++
	crowded := h.connections > mostConnections
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.connections--
		h.mu.Unlock()
	}()
	if crowded {
		h.refuse(c, record.Record{Op: record.Hello, Code: record.Crowded, B: mostConnections})
		return
	}
	h.Log.Info("an edge has connected")
	s := &session{Helper: h, conn: c, places: make(map[netip.Prefix]int)}
	if err := s.serve(); err != nil {
		h.Log.Warn("an edge was disconnected", "error", err)
		return
	}
	h.Log.Info("an edge has disconnected: its entries end with their leases")
}

// refuse answers a refusal, and reads what the other end has sent meanwhile: closing a socket with
// unread bytes loses the answer. Any user may connect, so beyond mostConnections at once there is
// no answer: descriptors are for edges.
func (h *Helper) refuse(c *net.UnixConn, no record.Record) {
	defer h.refusing.Add(-1)
	if h.refusing.Add(1) > mostConnections {
		return
	}
	_ = c.SetDeadline(time.Now().Add(writeTime))
	if _, err := c.Write(no.Append(nil)); err != nil || c.CloseWrite() != nil {
		return
	}
	var buf [16 * record.Size]byte
	for range 64 {
		if _, err := c.Read(buf[:]); err != nil {
			return
		}
	}
}

// peer is the user at the other end, as the kernel knows it.
func peer(c *net.UnixConn) (user uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// apply puts a batch into the kernel. It returns the prefixes that there was no room for.
func (h *Helper) apply(batch []change, now time.Time) (full []netip.Prefix, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var adds []nft.Lease
	var deletes []netip.Prefix
	for _, w := range batch {
		_, there := h.ends[w.prefix]
		switch {
		case w.lease > 0 && !there && len(h.ends) >= h.Max && !h.makeRoom(now):
			full = append(full, w.prefix)
		case w.lease > 0:
			h.ends[w.prefix] = now.Add(w.lease)
			adds = append(adds, nft.Lease{Prefix: w.prefix, For: w.lease})
		case there:
			delete(h.ends, w.prefix)
			deletes = append(deletes, w.prefix)
		}
	}
	if len(adds)+len(deletes) == 0 {
		return full, nil
	}
	return full, h.logged(h.Kernel.Apply(adds, deletes), now)
}

// makeRoom forgets entries that have ended, and reports whether there were any. h.mu is locked.
func (h *Helper) makeRoom(now time.Time) bool {
	if now.Sub(h.swept) < sweepTime {
		return false
	}
	h.swept = now
	for p, end := range h.ends {
		if !now.Before(end) {
			delete(h.ends, p)
		}
	}
	return len(h.ends) < h.Max
}

// flush empties the set.
func (h *Helper) flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.ends)
	return h.logged(h.Kernel.Flush(), time.Now())
}

// counts returns what the kernel has refused, by entry in force and in all.
func (h *Helper) counts() (list []nft.Count, refused uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, refused, err = h.Kernel.Counts()
	list = slices.DeleteFunc(list, func(c nft.Count) bool { return c.Left <= 0 })
	return list, refused, h.logged(err, time.Now())
}

// logged logs an error of the kernel, unless one was logged just before. h.mu is locked.
func (h *Helper) logged(err error, now time.Time) error {
	if err != nil && now.Sub(h.failed) >= logTime {
		h.failed = now
		h.Log.Error("the kernel refused a change", "error", err)
	}
	return err
}
