package upgrade

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/events"
)

// A Parent is the other side: what an older process of ours has left to this one.
type Parent struct {
	OperatorLog func(list []byte) error // takes over what operators said; nil: there is no PoP
	Events      *events.Log             // takes over what has happened lately
	// And what they changed of the rules of this edge only; nil: that is among the words
	Rules func(list []byte) error
	// Takes over that of the PoP, before serving; nil: there is none
	Membership func(of string)

	ready    *os.File
	state    *os.File
	lines    *bufio.Reader
	begun    bool     // the first lines have come
	counters *os.File // nil: none will come
	numbers  *bufio.Reader
}

// NewParent finds it in the environment; nil: this process starts afresh.
func NewParent() *Parent {
	text := os.Getenv(handedPipes)
	counters := os.Getenv(handedCounters)
	os.Unsetenv(handedPipes)
	os.Unsetenv(handedCounters)
	first, second, ok := strings.Cut(text, ":")
	ready, err1 := strconv.Atoi(first)
	state, err2 := strconv.Atoi(second)
	if !ok || err1 != nil || err2 != nil || ready < 3 || state < 3 {
		return nil
	}
	// Not for children: they would keep the older process waiting for our end
	syscall.CloseOnExec(ready)
	syscall.CloseOnExec(state)
	h := &Parent{ready: os.NewFile(uintptr(ready), "ready"), state: os.NewFile(uintptr(state),
		"state")}
	h.lines = bufio.NewReader(h.state)
	if fd, err := strconv.Atoi(counters); err == nil && fd >= 3 {
		syscall.CloseOnExec(fd)
		_ = syscall.SetNonblock(fd, true) // with it come deadlines, without which nothing is taken
		h.counters = os.NewFile(uintptr(fd), "counters")
		h.numbers = bufio.NewReaderSize(h.counters, 64<<10)
	}
	return h
}

// TakeCounters takes counters over, if any come. What is wrong with them is no reason not to serve.
func (h *Parent) TakeCounters(what string, table *counter.Table, server *edge.Server,
	log *slog.Logger) {
	if h.counters == nil {
		return
	}
	err := h.counters.SetReadDeadline(time.Now().Add(inheritTime))
	n := 0
	if err == nil {
		n, err = readCounters(h.numbers, table, server.Counted(), table.Stats().Capacity,
			time.Now())
	}
	if err != nil {
		h.counters.Close()
		h.counters = nil
		log.Warn(what+" could not be taken over: sources that this process has not counted start afresh", "error", err)
		return
	}
	log.Info(what+" taken over", "counters", n)
}

// NoCounters: none are wanted, because the tier has them.
func (h *Parent) NoCounters() {
	h.counters.Close() // if there is such a pipe
	h.counters = nil
}

// TakeLast takes over what the older process has counted to its end. Until then it waits.
func (h *Parent) TakeLast(table *counter.Table, server *edge.Server, log *slog.Logger) {
	if h.counters == nil {
		return
	}
	defer h.counters.Close()
	if h.counters.SetReadDeadline(time.Time{}) != nil {
		return
	}
	if _, err := h.numbers.Peek(1); err != nil {
		return // it has ended without
	}
	h.TakeCounters("last counters", table, server, log)
}

// Take takes mitigations over, up to an empty line, with events and the heaviest. Events that come
// at the first time are older than this process.
func (h *Parent) Take(server *edge.Server) error {
	var before []events.Event
	for {
		line, err := h.lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if len(line) == 1 {
			if !h.begun {
				slices.Reverse(before)
				h.Events.Restore(before)
			}
			h.begun = true
			return nil
		}
		var m handed
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		switch { // what is under another secret means nothing here
		case m.OperatorLog != nil && h.OperatorLog != nil:
			_ = h.OperatorLog(m.OperatorLog)
		case m.Rules != nil && h.Rules != nil:
			_ = h.Rules(m.Rules)
		case m.Membership != "":
			if h.Membership != nil && !h.begun {
				h.Membership(m.Membership)
			}
		case m.Event != nil && !h.begun:
			before = append(before, *m.Event)
		case m.Event != nil:
			h.Events.Adopt(*m.Event)
		case m.Heavy != nil:
			server.AdoptHeavy(m.Heavy)
		case m.OperatorLog == nil && m.Rules == nil:
			server.Adopt(m.Handed, time.Now())
		}
	}
}

// Serve reports ready, and goes on taking until the older process has ended.
func (h *Parent) Serve(server *edge.Server) {
	_, _ = io.WriteString(h.ready, "ready\n")
	h.ready.Close()
	for h.Take(server) == nil {
	}
	h.state.Close()
}
