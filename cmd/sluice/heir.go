package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/counter"
	"sluice/edge"
)

// A heir is the other side: what an older process of ours has left to this one. nil: this process starts afresh.
type heir struct {
	ready    *os.File
	state    *os.File
	lines    *bufio.Reader
	counters *os.File // nil: none will come
	numbers  *bufio.Reader
	words    func(list []byte) error // takes over what operators said; nil: there is no PoP
	rules    func(list []byte) error // and what they changed of the rules of this edge only; nil: that is among the words
}

func newHeir() *heir {
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
	syscall.CloseOnExec(ready) // not for children: they would keep the older process waiting for our end
	syscall.CloseOnExec(state)
	h := &heir{ready: os.NewFile(uintptr(ready), "ready"), state: os.NewFile(uintptr(state), "state")}
	h.lines = bufio.NewReader(h.state)
	if fd, err := strconv.Atoi(counters); err == nil && fd >= 3 {
		syscall.CloseOnExec(fd)
		_ = syscall.SetNonblock(fd, true) // with it come deadlines, without which nothing is taken
		h.counters = os.NewFile(uintptr(fd), "counters")
		h.numbers = bufio.NewReaderSize(h.counters, 64<<10)
	}
	return h
}

// takeCounters takes counters over, if any come. What is wrong with them is no reason not to serve.
func (h *heir) takeCounters(what string, table *counter.Table, server *edge.Server, log *slog.Logger) {
	if h.counters == nil {
		return
	}
	err := h.counters.SetReadDeadline(time.Now().Add(inheritTime))
	n := 0
	if err == nil {
		n, err = readCounters(h.numbers, table, server.Counted(), table.Stats().Capacity, time.Now())
	}
	if err != nil {
		h.counters.Close()
		h.counters = nil
		log.Warn(what+" could not be taken over: sources that this process has not counted start afresh", "error", err)
		return
	}
	log.Info(what+" taken over", "counters", n)
}

// takeLast takes over what the older process has counted to its end. Until then it waits.
func (h *heir) takeLast(table *counter.Table, server *edge.Server, log *slog.Logger) {
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
	h.takeCounters("last counters", table, server, log)
}

// take takes mitigations over, up to an empty line.
func (h *heir) take(server *edge.Server) error {
	for {
		line, err := h.lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if len(line) == 1 {
			return nil
		}
		var m handed
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		switch { // what is under another secret means nothing here
		case m.Words != nil && h.words != nil:
			_ = h.words(m.Words)
		case m.Rules != nil && h.rules != nil:
			_ = h.rules(m.Rules)
		case m.Words == nil && m.Rules == nil:
			server.Adopt(m.Mitigation, time.Now())
		}
	}
}

// serve says ready, and goes on taking until the older process has ended.
func (h *heir) serve(server *edge.Server) {
	_, _ = io.WriteString(h.ready, "ready\n")
	h.ready.Close()
	for h.take(server) == nil {
	}
	h.state.Close()
}
