package poptest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pop/wire"
)

// Reply is what goes over a connection in answer to one command.
type Reply struct {
	Bytes []byte
	Wait  time.Duration // before the first byte
	Each  time.Duration // after every byte; 0 sends them together
	Close bool          // then close the connection
}

// Fault gives the reply to a command, of which it gets the first line without its end, and the
// honest answer. It is called by several goroutines.
type Fault func(command string, answer []byte) Reply

// network is the part of a Node that has connections. Node.mu guards it.
type network struct {
	fault    atomic.Pointer[Fault]
	serving  sync.WaitGroup
	listener net.Listener
	address  string
	conns    map[net.Conn]struct{}
}

func (w *network) cut() {
	if w.listener != nil {
		w.listener.Close()
		w.listener = nil
	}
	for c := range w.conns {
		c.Close()
	}
}

func (w *network) listenAgain(n *Node) error {
	if w.address == "" {
		return nil
	}
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		return fmt.Errorf("poptest: restart: %w", err)
	}
	w.listener = l
	w.serving.Go(func() { n.accept(l) })
	return nil
}

// Misbehave lets f answer in the node's place over its connections; nil ends it.
func (n *Node) Misbehave(f Fault) {
	if f == nil {
		n.net.fault.Store(nil)
		return
	}
	n.net.fault.Store(&f)
}

// Open is how many connections the node has.
func (n *Node) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.net.conns)
}

// Listen serves the text protocol on a free port of the loopback address, which it returns, until
// the node is closed.
func (n *Node) Listen() (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("poptest: %w", err)
	}
	n.mu.Lock()
	n.net.listener, n.net.address = l, l.Addr().String()
	n.net.serving.Go(func() { n.accept(l) })
	n.mu.Unlock()
	return l.Addr().String(), nil
}

// Close kills the node and waits until all that it started has ended.
func (n *Node) Close() {
	n.Kill()
	n.net.serving.Wait()
}

func (n *Node) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.admit(c)
	}
}

// Dial connects to the node without a socket: what a net.Dialer's DialContext does, for
// testing/synctest.
func (n *Node) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if !n.admit(ours) {
		return nil, ErrDown
	}
	return theirs, nil
}

func (n *Node) admit(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == down {
		c.Close()
		return false
	}
	if n.net.conns == nil {
		n.net.conns = make(map[net.Conn]struct{})
	}
	n.net.conns[c] = struct{}{}
	n.net.serving.Go(func() { n.serve(c) })
	return true
}

// serve answers commands until the connection ends. As memcached does, it answers all it has read
// before it writes.
func (n *Node) serve(c net.Conn) {
	defer func() {
		c.Close()
		n.mu.Lock()
		delete(n.net.conns, c)
		n.mu.Unlock()
	}()
	r, w := bufio.NewReaderSize(c, 1<<16), bufio.NewWriterSize(c, 1<<16)
	for {
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
		line, answer, err := n.exchange(r)
		if err != nil {
			return
		}
		reply := Reply{Bytes: answer}
		if f := n.net.fault.Load(); f != nil {
			reply = (*f)(line, answer)
		}
		if reply.Wait > 0 {
			if w.Flush() != nil {
				return
			}
			time.Sleep(reply.Wait)
		}
		for i := 0; reply.Each > 0 && i < len(reply.Bytes); i++ {
			w.WriteByte(reply.Bytes[i])
			if w.Flush() != nil {
				return
			}
			time.Sleep(reply.Each)
		}
		if reply.Each == 0 {
			w.Write(reply.Bytes)
		}
		if reply.Close || line == "quit" {
			w.Flush()
			return
		}
	}
}

// exchange reads one command, carries it out and gives its first line and the answer.
func (n *Node) exchange(r *bufio.Reader) (line string, answer []byte, err error) {
	raw, err := r.ReadSlice('\n')
	if err != nil {
		return "", nil, err
	}
	line = strings.TrimRight(string(raw), "\r\n")
	c, unique, ok := parse(line)
	switch {
	case ok && (c.Op == wire.Add || c.Op == wire.Set || c.Op == wire.Cas):
		body := make([]byte, len(c.Value)+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return "", nil, err
		}
		c.Value = body[:len(c.Value)]
		if !bytes.HasSuffix(body, []byte("\r\n")) {
			return line, []byte("CLIENT_ERROR bad data chunk\r\n"), nil
		}
	case !ok && line == "version":
		if err := n.wait(); err != nil {
			return "", nil, err
		}
		return line, []byte("VERSION 1.6.18 poptest\r\n"), nil
	case !ok:
		return line, []byte("ERROR\r\n"), nil
	}
	for {
		result := n.Do(time.Now(), c)
		switch result.Err {
		case ErrDown:
			return "", nil, ErrDown
		case ErrHung:
			if err := n.wait(); err != nil {
				return "", nil, err
			}
			continue
		}
		return line, appendAnswer(nil, result, unique), nil
	}
}

// wait waits while the node is hung.
func (n *Node) wait() error {
	n.mu.Lock()
	s, wake := n.state, n.wake
	n.mu.Unlock()
	if s == hung {
		<-wake
	}
	if s == down {
		return ErrDown
	}
	return nil
}

// parse reads a command line. The Value of one that stores has the right length and no content yet;
// unique says that values are wanted with their unique number ("gets").
func parse(line string) (c wire.Command, unique, ok bool) {
	f := strings.Fields(line)
	if len(f) < 2 {
		return c, false, false
	}
	c.Key = f[1]
	switch f[0] {
	case "get", "gets":
		if c.Op = wire.Get; f[0] == "gets" && len(f) == 2 {
			c.Op = wire.Gets
		}
		c.Key = strings.Join(f[1:], " ")
		return c, f[0] == "gets", true
	case "incr", "decr":
		if len(f) != 3 {
			return c, false, false
		}
		d, err := strconv.ParseUint(f[2], 10, 64)
		if c.Op, c.Delta = wire.Incr, d; f[0] == "decr" {
			c.Op = wire.Decr
		}
		return c, false, err == nil
	case "delete":
		c.Op = wire.Delete
		return c, false, len(f) == 2
	case "add":
		c.Op = wire.Add
	case "set":
		c.Op = wire.Set
	case "cas":
		c.Op = wire.Cas
		if len(f) != 6 {
			return c, false, false
		}
		version, err := strconv.ParseUint(f[5], 10, 64)
		if err != nil {
			return c, false, false
		}
		c.Delta, f = version, f[:5]
	default:
		return c, false, false
	}
	if len(f) != 5 {
		return c, false, false
	}
	expire, err := strconv.ParseInt(f[3], 10, 32)
	size, err2 := strconv.Atoi(f[4])
	if err != nil || err2 != nil || size < 0 || size > maxItem {
		return c, false, false
	}
	c.Expire, c.Value = int32(expire), make([]byte, size)
	return c, false, true
}

func appendAnswer(b []byte, r wire.Result, unique bool) []byte {
	if r.Err == wire.ErrNotNumber {
		return append(b, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"...)
	}
	switch r.Op {
	case wire.Get, wire.Gets:
		keys := r.Keys()
		for i, v := range r.Values {
			if v == nil {
				continue
			}
			b = fmt.Appendf(b, "VALUE %s 0 %d", keys[i], len(v))
			if unique {
				b = fmt.Appendf(b, " %d", max(r.Number, 1)) // of many keys nobody uses it
			}
			b = append(b, "\r\n"...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
		return append(b, "END\r\n"...)
	case wire.Incr, wire.Decr:
		if r.Status == wire.Done {
			return append(strconv.AppendUint(b, r.Number, 10), "\r\n"...)
		}
	case wire.Delete:
		if r.Status == wire.Done {
			return append(b, "DELETED\r\n"...)
		}
	case wire.Cas:
		if r.Status == wire.Done {
			return append(b, "STORED\r\n"...)
		}
		if r.Number != 0 {
			return append(b, "EXISTS\r\n"...)
		}
	default:
		if r.Status == wire.Done {
			return append(b, "STORED\r\n"...)
		}
		return append(b, "NOT_STORED\r\n"...)
	}
	return append(b, "NOT_FOUND\r\n"...)
}
