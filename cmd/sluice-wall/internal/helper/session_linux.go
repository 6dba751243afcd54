package helper

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/cmd/sluice-wall/internal/nft"
	"sluice/edge/wall/record"
)

// A session is one connection, and what it has requested since its last commit.
type session struct {
	*Helper
	conn   net.Conn
	out    *bufio.Writer
	batch  []change
	places map[netip.Prefix]int // in batch
	failed bool                 // the kernel refused something since the last commit
}

// A change has the kernel refuse a prefix for so long from now on; 0: no more.
type change struct {
	prefix netip.Prefix
	lease  time.Duration
}

// serve answers until the edge disconnects, or sends something that is no record: what follows has
// no meaning then.
func (s *session) serve() error {
	in := bufio.NewReaderSize(s.conn, 256*record.Size)
	s.out = bufio.NewWriterSize(deadlineWriter{s.conn}, 256*record.Size)
	var buf [record.Size]byte
	for {
		if in.Buffered() < record.Size {
			if err := s.out.Flush(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(in, buf[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		r, err := record.Parse(buf[:])
		if err != nil || r.Code != record.OK {
			_ = s.answer(record.Record{Op: record.Commit, Code: record.Malformed})
			_ = s.out.Flush()
			return record.ErrMalformed
		}
		if err := s.handle(r); err != nil {
			return err
		}
	}
}

// A deadlineWriter gives each write its time.
type deadlineWriter struct{ net.Conn }

func (w deadlineWriter) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func (s *session) answer(r record.Record) error {
	_, err := s.out.Write(r.Append(nil))
	return err
}

// handle carries a record out. It returns an error of the connection; one of the kernel goes into
// an answer.
func (s *session) handle(r record.Record) error {
	longest := uint64(s.Lease.Milliseconds())
	switch r.Op {
	case record.Hello:
		return s.answer(record.Record{Op: record.Hello, A: longest, B: uint64(s.Max)})
	case record.Port:
		if r.A > 65535 || !slices.Contains(s.Ports, uint16(r.A)) {
			return s.answer(record.Record{Op: record.Port, Code: record.ForeignPort, A: r.A})
		}
	case record.Add:
		switch {
		case r.A == 0:
			return s.answer(record.Record{Op: record.Add, Code: record.Malformed, Prefix: r.Prefix})
		case r.A > longest:
			return s.answer(record.Record{Op: record.Add, Code: record.LongLease, Prefix: r.Prefix,
				A: r.A, B: longest})
		}
		return s.queue(change{r.Prefix, time.Duration(r.A) * time.Millisecond})
	case record.Delete:
		return s.queue(change{prefix: r.Prefix})
	case record.Flush:
		s.forget()
		s.failed = s.Helper.flush() != nil || s.failed
	case record.Commit:
		if err := s.apply(); err != nil {
			return err
		}
		a := record.Record{Op: record.Commit}
		if s.failed {
			a.Code = record.Kernel
		}
		s.failed = false
		return s.answer(a)
	case record.Report:
		return s.report()
	}
	return nil
}

// queue takes a change into the batch: of two for one prefix the later counts.
func (s *session) queue(w change) error {
	if at, there := s.places[w.prefix]; there {
		s.batch[at] = w
		return nil
	}
	s.places[w.prefix] = len(s.batch)
	s.batch = append(s.batch, w)
	if len(s.batch) == nft.AtOnce {
		return s.apply()
	}
	return nil
}

func (s *session) forget() {
	clear(s.places)
	s.batch = s.batch[:0]
}

func (s *session) apply() error {
	full, err := s.Helper.apply(s.batch, time.Now())
	s.forget()
	s.failed = s.failed || err != nil
	for _, p := range full {
		if err := s.answer(record.Record{Op: record.Add, Code: record.Full, Prefix: p,
			B: uint64(s.Max)}); err != nil {
			return err
		}
	}
	return nil
}

// report answers what the kernel has refused.
func (s *session) report() error {
	list, refused, err := s.counts()
	if err != nil {
		return s.answer(record.Record{Op: record.Report, Code: record.Kernel})
	}
	for _, c := range list {
		if c.Refused == 0 {
			continue
		}
		if err := s.answer(record.Record{Op: record.Report, Prefix: c.Prefix,
			A: c.Refused}); err != nil {
			return err
		}
	}
	return s.answer(record.Record{Op: record.Report, A: refused, B: uint64(len(list))})
}
