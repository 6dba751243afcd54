package trace

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"
)

// Format is a form in which a trace is written. Read reads all of them.
type Format uint8

const (
	JSONL Format = iota // one object a line
	CSV
	CLF // combined log format: whole seconds, no roles and no resets
)

// Write writes a trace so that Read gives the same requests again, down to the nanosecond except in
// CLF. A source is written as the address of each request, or by its name where that is no address.
// Workloads are written with times since their start; in CLF, which has instants only, they start
// in 2000.
func Write(w io.Writer, t *Trace, f Format) error {
	b := bufio.NewWriterSize(w, 64<<10)
	var err error
	switch f {
	case CSV:
		err = t.writeCSV(b)
	case CLF:
		t.writeCLF(b)
	default:
		err = t.writeJSON(b)
	}
	if err != nil {
		return err
	}
	return b.Flush()
}

// sourceName is how request i names its source.
func (t *Trace) sourceName(i int) string {
	s := &t.Sources[t.Requests[i].Source]
	if s.Spread > 1 {
		return t.Addr(i).String()
	}
	return s.Name
}

// stamp is request i's time in seconds, exactly, since 1970 or since the start of a workload.
func (t *Trace) stamp(i int) string {
	at := int64(t.Requests[i].At)
	if !t.Start.IsZero() {
		at += t.Start.UnixNano()
	}
	return fmt.Sprintf("%d.%09d", at/1e9, at%1e9)
}

func (t *Trace) writeJSON(b *bufio.Writer) error {
	for i := range t.Requests {
		r := &t.Requests[i]
		line, err := json.Marshal(struct {
			T      json.RawMessage `json:"t"`
			Source string          `json:"source"`
			Role   string          `json:"role,omitempty"`
			Host   string          `json:"host,omitempty"`
			Method string          `json:"method,omitempty"`
			Path   string          `json:"path,omitempty"`
			Status int16           `json:"status,omitempty"`
			Reset  bool            `json:"reset,omitempty"`
		}{json.RawMessage(t.stamp(i)), t.sourceName(i), t.Role(i).String(), r.Host, r.Method,
			r.Path, r.Status, r.Reset})
		if err != nil {
			return err
		}
		b.Write(line)
		b.WriteByte('\n') // a failed write shows at Flush
	}
	return nil
}

func (t *Trace) writeCSV(b *bufio.Writer) error {
	w := csv.NewWriter(b)
	w.Write(csvNames[:])
	for i := range t.Requests {
		r := &t.Requests[i]
		status := ""
		if r.Status != 0 {
			status = strconv.Itoa(int(r.Status))
		}
		reset := ""
		if r.Reset {
			reset = "true"
		}
		w.Write([]string{t.stamp(i), t.sourceName(i), r.Host, r.Method, r.Path, status,
			t.Role(i).String(), reset})
	}
	w.Flush()
	return w.Error()
}

func (t *Trace) writeCLF(b *bufio.Writer) {
	start := t.Start
	if start.IsZero() {
		start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		name := t.sourceName(i)
		if _, err := netip.ParseAddr(name); err != nil {
			name = t.Addr(i).String()
		}
		line, status := "-", "-"
		if r.Method != "" {
			line = r.Method + " " + r.Path + " HTTP/1.1"
		}
		if r.Status != 0 {
			status = strconv.Itoa(int(r.Status))
		}
		fmt.Fprintf(b, "%s - - [%s] \"%s\" %s - \"-\" \"-\"\n", name, start.Add(r.At).UTC().
			Format("02/Jan/2006:15:04:05 -0700"), line, status)
	}
}
