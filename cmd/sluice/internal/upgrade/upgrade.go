// Package upgrade is how an edge's process replaces another, and is replaced: the sockets that it
// is given or opens (Sockets), what it takes over from an older process (Parent), what it hands to
// a newer one (Handover), and its end (Shutdown).
//
// Nothing is decided here: mitigations, counters and operators' words go from one process to the
// next as they are.
package upgrade

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/control"
	"sluice/edge/events"
)

// startTime is how long a new process may take to be ready.
const startTime = 30 * time.Second

// A Handover replaces this process by a new one without a connection lost (SIGUSR2). The new
// process gets the listening sockets and three pipes, the third for counters, which only an edge
// has that counts alone:
//
//	old                                   new
//	starts new, sockets open       --->   reads configuration, listens on the same sockets
//	its membership of the PoP      --->   counts with the PoP at once, be all slots full
//	what operators said            --->   takes it over; an edge that counts alone has it among the mitigations
//	mitigations, a line each       --->   takes them over
//	events and the heaviest        --->   takes them over, before its own
//	an empty line                  --->
//	counters                       --->   takes them over; without them, or half of them, sources start afresh
//	                                      serves
//	                               <---   "ready"
//	stops accepting, drains
//	mitigations of meanwhile       --->   takes them over
//	events, the heaviest since     --->   adds them
//	counters, once more            --->   the larger number counts
//	ends
//
// A line of a kind that the new process does not know is one that it passes over, and what does not
// come it begins without.
//
// As long as "ready" has not come the old process goes on as if nothing had happened, and so it
// does for good if the new one fails: a wrong configuration, a binary that does not start.
type Handover struct {
	Program     string // as it was when this process started: a new binary has replaced it
	Args        []string
	Sockets     *Sockets
	Server      *edge.Server
	Table       *counter.Table // nil: the tier has the counts
	Events      *events.Log    // what has happened lately
	OperatorLog func() []byte  // what operators said to the PoP; nil: there is none
	// What they changed of the rules of this edge only; nil: that is among the words
	Rules      func() []byte
	Membership func() string // of the PoP; "" or nil: there is none
	Log        *slog.Logger

	sent  time.Time         // when mitigations were sent last
	event uint64            // the number of the event that was sent last
	heavy control.HeavySent // what was sent of the heaviest

	// To the new process, once it is ready. The second is nil if it does not take counters.
	out, counters *os.File
}

// Start starts a new process and returns when it is ready. If this process gets a signal to stop
// meanwhile, the new one is ended, and Start returns at once.
func (h *Handover) Start(stop context.Context) (err error) {
	files := make([]*os.File, 0, len(h.Sockets.open)+2)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var names, addresses []string
	for _, s := range h.Sockets.open {
		f, err := duplicate(s)
		if err != nil {
			return fmt.Errorf("%s cannot be handed over: %w", s.name, err)
		}
		files, names, addresses = append(files, f), append(names, s.name), append(addresses,
			s.address)
	}
	configured, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	var pipes [3][2]*os.File // each with its reading end first
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			for _, p := range pipes[:i] {
				p[0].Close()
				p[1].Close()
			}
			return err
		}
	}
	ready, out, countersOut := pipes[0][0], pipes[1][1], pipes[2][1]
	defer ready.Close()
	files = append(files, pipes[0][1], pipes[1][0], pipes[2][0])
	defer func() {
		if err != nil {
			out.Close()
			countersOut.Close()
		}
	}()

	// A process before this one may have got them, and have failed
	h.sent, h.event, h.heavy = time.Time{}, 0, nil
	n := 3 + len(names)
	cmd := exec.Command(h.Program, h.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), handedSockets+"="+strings.Join(names, ":"),
		handedAddresses+"="+string(configured), fmt.Sprintf("%s=%d:%d", handedPipes, n, n+1),
		fmt.Sprintf("%s=%d", handedCounters, n+2))
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Its own now: the end of the new process must show as the end of its pipes
	for _, f := range files {
		f.Close()
	}
	files = nil
	failed := func(err error) error {
		_ = cmd.Process.Kill()
		<-ended
		if stop.Err() != nil {
			return errStopped
		}
		return err
	}
	// Which ends its pipes, and so the waits below
	goOn := context.AfterFunc(stop, func() { _ = cmd.Process.Kill() })
	defer goOn()
	if err := out.SetWriteDeadline(time.Now().Add(startTime)); err != nil {
		return failed(err)
	}
	if err := h.sendBits(out, false); err != nil {
		return failed(fmt.Errorf("it did not take the mitigations: %w", err))
	}
	sent := make(chan error, 1)
	go func() { sent <- h.sendCounters(countersOut) }()
	if err := ready.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return failed(err)
	}
	if line, err := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		if err == io.EOF {
			return failed(errors.New("it ended before it was ready: see its log"))
		}
		return failed(fmt.Errorf("it was not ready after %v: %w", startTime, err))
	}
	if !goOn() {
		return failed(errStopped)
	}
	h.out = out
	_ = countersOut.SetWriteDeadline(time.Now()) // the new process has them, or does not want them
	if err := <-sent; err != nil {
		h.Log.Warn("the new process did not take the counters: sources start afresh there", "error",
			err)
		countersOut.Close()
	} else {
		h.counters = countersOut
	}
	h.Log.Info("handed over", "to", cmd.Process.Pid)
	return nil
}

// Done reports whether a new process has taken over.
func (h *Handover) Done() bool { return h.out != nil }

var errStopped = errors.New("this process got a signal to stop")

// sendCounters writes the counters of an edge that counts alone.
func (h *Handover) sendCounters(out *os.File) error {
	if h.Table == nil {
		return nil
	}
	if err := out.SetWriteDeadline(time.Now().Add(inheritTime)); err != nil {
		return err
	}
	_, err := writeCounters(out, h.Table, h.Server.Counted(), time.Now())
	return err
}

// duplicate returns another descriptor of a socket. Not by its method File: what comes from there
// becomes blocking when it is passed on, and the socket itself with it, so that an Accept under way
// here would not end when it should.
func duplicate(s socket) (*os.File, error) {
	c, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd uintptr
	var errno syscall.Errno
	err = raw.Control(func(old uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
	})
	switch {
	case err != nil:
		return nil, err
	case errno != 0:
		return nil, errno
	}
	return os.NewFile(fd, s.name), nil
}

// sendBits writes the mitigations in force that have not been sent yet, a line each, and an empty
// line. What has been sent is not sent again: an operator may have lifted it in the new process.
func (h *Handover) sendBits(out *os.File, final bool) error {
	w := bufio.NewWriter(out)
	e := json.NewEncoder(w)
	var failed error
	send := func(v any) {
		if failed == nil {
			failed = e.Encode(v)
		}
	}
	before, now := h.sent, time.Now()
	h.sent = now
	if h.Membership != nil {
		if m := h.Membership(); m != "" {
			send(handed{Membership: m})
		}
	}
	if h.OperatorLog != nil { // before mitigations: one that has begun after a lift must stay
		send(handed{OperatorLog: h.OperatorLog()})
	}
	if h.Rules != nil {
		send(handed{Rules: h.Rules()})
	}
	for m := range h.Server.InForce(now) {
		if !m.Learned.Before(before) {
			send(m)
		}
		if failed != nil {
			return failed
		}
	}
	list := h.Events.Since(h.event)
	for i := len(list) - 1; i >= 0; i-- { // the oldest first
		send(handed{Event: &list[i]})
		h.event = list[i].Number
	}
	if final || h.heavy == nil {
		var heavy []control.HeavyHanded
		heavy, h.heavy = h.Server.HandHeavy(h.heavy)
		for i := range heavy {
			send(handed{Heavy: &heavy[i]})
		}
	}
	if failed == nil {
		failed = w.WriteByte('\n')
	}
	return errors.Join(failed, w.Flush())
}

// handed is a line of what is handed over: a mitigation, what operators said, an event, or one of
// the heaviest.
type handed struct {
	control.Handed
	Event       *events.Event        `json:"event,omitempty"`
	Heavy       *control.HeavyHanded `json:"heavy,omitempty"`
	OperatorLog []byte               `json:"words,omitempty"`
	Rules       []byte               `json:"rules,omitempty"` // as they changed them
	Membership  string               `json:"membership,omitempty"`
}

// sendFinal sends the new process what this one has counted to its end.
func (h *Handover) sendFinal() {
	h.sendMitigations(true)
	if h.counters != nil && h.sendCounters(h.counters) != nil {
		h.Log.Warn("the new process did not take the last counters")
	}
}

// sendMitigations sends the new process, if there is one, what has begun since.
func (h *Handover) sendMitigations(final bool) {
	if h.out == nil {
		return
	}
	if h.out.SetWriteDeadline(time.Now().Add(time.Second)) != nil ||
		h.sendBits(h.out, final) != nil {
		h.Log.Warn("the new process did not take the last mitigations")
	}
}

// Close closes what leads to the new process.
func (h *Handover) Close() {
	if h.out != nil {
		h.out.Close()
	}
	if h.counters != nil {
		h.counters.Close()
	}
}

// Notify reports to systemd (sd_notify(3)), if it wants reports.
func Notify(text string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' {
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
}
