package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Elements come and go by the thousand, and nearly all of the helper's time goes into them. So
// their two messages, which change a set and list it, are written and read here, in buffers that
// are kept: the package nftables makes several objects for each element, which costs several times
// as much as the kernel's work on it (`bin/sluice-trial flood`).
//
//	batch begin | NEWSETELEM table set [key timeout] [key timeout] … | DELSETELEM … | batch end        answered by an error, 0 if none, for each message
//	GETSETELEM table set                                     answered by [key timeout expiration counter] …, in parts, and DONE

// answerTime is how long the kernel may take to answer. It answers while the request is sent, so an
// answer that is not there was lost.
const answerTime = 5 * time.Second

// elements is a socket for changes of sets, and its buffers.
type elements struct {
	fd       int
	out, in  []byte
	sequence uint32
	asked    int // messages of the batch whose answers have not come
}

// openElements opens a socket, and makes its buffers.
func openElements() (*elements, error) {
	e := &elements{fd: -1, in: make([]byte, 64<<10)}
	return e, e.reopen()
}

// reopen replaces the socket by one with room for a whole transaction, and for its answers. After
// an error there is none, and every use fails.
func (e *elements) reopen() error {
	e.close()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("nft: open a netlink socket: %w", err)
	}
	for force, plain := range map[int]int{unix.SO_SNDBUFFORCE: unix.SO_SNDBUF,
		unix.SO_RCVBUFFORCE: unix.SO_RCVBUF} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, socketBuffer) != nil {
			// In a user namespace
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, socketBuffer))
		}
	}
	timeout := unix.NsecToTimeval(answerTime.Nanoseconds())
	// Answers do not repeat what they answer
	err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout), unix.Bind(fd,
			&unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("nft: open a netlink socket: %w", err)
	}
	e.fd = fd
	return nil
}

func (e *elements) close() {
	if e.fd >= 0 {
		unix.Close(e.fd)
	}
	e.fd = -1
}

// begin begins a message, and returns its place in the buffer.
func (e *elements) begin(kind, flags uint16, resource uint16) (at int) {
	at = len(e.out)
	e.sequence++
	e.out = binary.NativeEndian.AppendUint32(e.out, 0) // the length
	e.out = binary.NativeEndian.AppendUint16(e.out, kind)
	e.out = binary.NativeEndian.AppendUint16(e.out, flags|unix.NLM_F_REQUEST)
	e.out = binary.NativeEndian.AppendUint32(e.out, e.sequence)
	e.out = append(e.out, 0, 0, 0, 0, unix.NFPROTO_INET, unix.NFNETLINK_V0)
	e.out = binary.BigEndian.AppendUint16(e.out, resource)
	return at
}

func (e *elements) end(at int) { binary.NativeEndian.PutUint32(e.out[at:], uint32(len(e.out)-at)) }

// nest begins an attribute that holds others, and returns its place; unnest ends it.
func (e *elements) nest(kind uint16) (at int) {
	at = len(e.out)
	e.out = append(e.out, 0, 0)
	e.out = binary.NativeEndian.AppendUint16(e.out, kind|unix.NLA_F_NESTED)
	return at
}

func (e *elements) unnest(at int) {
	binary.NativeEndian.PutUint16(e.out[at:], uint16(len(e.out)-at))
}

// text appends an attribute that is a name.
func (e *elements) text(kind uint16, s string) {
	e.out = binary.NativeEndian.AppendUint16(e.out, uint16(4+len(s)+1))
	e.out = binary.NativeEndian.AppendUint16(e.out, kind)
	e.out = append(append(e.out, s...), 0)
	for len(e.out)%4 != 0 { // messages begin at multiples of 4 as well
		e.out = append(e.out, 0)
	}
}

const (
	newElements  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM
	deleteOnes   = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSETELEM
	listElements = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM
)

// change appends messages about those prefixes of a list whose length is that of a set.
func (e *elements) change(kind uint16, set setKey, name string, list []Lease) {
	flags := uint16(unix.NLM_F_ACK)
	if kind == newElements {
		flags |= unix.NLM_F_CREATE
	}
	for len(list) > 0 {
		message := e.begin(kind, flags, 0)
		e.text(unix.NFTA_SET_ELEM_LIST_TABLE, Name)
		e.text(unix.NFTA_SET_ELEM_LIST_SET, name)
		all := e.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		n := 0
		for ; n < elementsAtOnce && len(list) > 0; list = list[1:] {
			if keyOf(list[0].Prefix) == set {
				e.element(list[0])
				n++
			}
		}
		if n == 0 {
			e.out = e.out[:message]
			return
		}
		e.unnest(all)
		e.end(message)
		e.asked++
	}
}

func (e *elements) element(l Lease) {
	one := e.nest(unix.NFTA_LIST_ELEM)
	key := e.nest(unix.NFTA_SET_ELEM_KEY)
	value := e.nest(unix.NFTA_DATA_VALUE)
	binary.NativeEndian.PutUint16(e.out[value+2:], unix.NFTA_DATA_VALUE)
	if a := l.Prefix.Addr(); a.Is4() {
		b := a.As4()
		e.out = append(e.out, b[:]...)
	} else {
		b := a.As16()
		e.out = append(e.out, b[:]...)
	}
	e.unnest(value)
	e.unnest(key)
	left := max(l.For, time.Millisecond)
	e.duration(unix.NFTA_SET_ELEM_TIMEOUT, max(l.timeout, left))
	// An element that is there keeps its end if it is given its timeout again and nothing else
	e.duration(unix.NFTA_SET_ELEM_EXPIRATION, left)
	e.unnest(one)
}

// duration appends an attribute that is a time, in milliseconds.
func (e *elements) duration(kind uint16, d time.Duration) {
	e.out = binary.NativeEndian.AppendUint16(e.out, 12)
	e.out = binary.NativeEndian.AppendUint16(e.out, kind)
	e.out = binary.BigEndian.AppendUint64(e.out, uint64(d.Milliseconds()))
}

// batch sends the messages that fill appends as one transaction.
func (e *elements) batch(fill func()) error {
	e.out, e.asked = e.out[:0], 0
	e.end(e.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFNL_SUBSYS_NFTABLES))
	fill()
	if e.asked == 0 {
		return nil
	}
	e.end(e.begin(unix.NFNL_MSG_BATCH_END, 0, unix.NFNL_SUBSYS_NFTABLES))
	if err := unix.Sendto(e.fd, e.out, 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for e.asked > 0 {
		err := e.receive(func(kind uint16, body []byte) error {
			e.asked--
			return nil
		})
		if err != nil {
			return err // answers to the rest may still be in the socket: the caller reopens it
		}
	}
	return nil
}

// list calls each for all elements of a set.
func (e *elements) list(set setKey, name string, each func(Count)) error {
	e.out = e.out[:0]
	message := e.begin(listElements, unix.NLM_F_DUMP, 0)
	e.text(unix.NFTA_SET_ELEM_LIST_TABLE, Name)
	e.text(unix.NFTA_SET_ELEM_LIST_SET, name)
	e.end(message)
	if err := unix.Sendto(e.fd, e.out, 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for done := false; !done; {
		err := e.receive(func(kind uint16, body []byte) error {
			if kind == unix.NLMSG_DONE || len(body) < 4 {
				done = true
				return nil
			}
			return attributes(body[4:], func(kind uint16, value []byte) error {
				if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					return nil
				}
				return attributes(value, func(_ uint16, value []byte) error {
					c := Count{}
					if err := count(value, set.bits, &c); err != nil {
						return err
					}
					if c.Prefix.IsValid() {
						each(c)
					}
					return nil
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count reads an element.
func count(b []byte, bits int, c *Count) error {
	return attributes(b, func(kind uint16, value []byte) error {
		switch {
		case kind == unix.NFTA_SET_ELEM_KEY:
			return attributes(value, func(_ uint16, value []byte) error {
				if a, ok := netip.AddrFromSlice(value); ok {
					c.Prefix = netip.PrefixFrom(a, bits)
				}
				return nil
			})
		case kind == unix.NFTA_SET_ELEM_EXPIRATION && len(value) == 8:
			c.Left = time.Duration(binary.BigEndian.Uint64(value)) * time.Millisecond
		case kind == unix.NFTA_SET_ELEM_EXPR: // the set's only expression is a counter
			return attributes(value, func(kind uint16, value []byte) error {
				if kind != unix.NFTA_EXPR_DATA {
					return nil
				}
				return attributes(value, func(kind uint16, value []byte) error {
					if kind == unix.NFTA_COUNTER_PACKETS && len(value) == 8 {
						c.Refused = binary.BigEndian.Uint64(value)
					}
					return nil
				})
			})
		}
		return nil
	})
}

var errShort = errors.New("a message of netlink is cut short")

// receive calls take for each message of the next part of an answer. It returns an error that the
// kernel answers with.
func (e *elements) receive(take func(kind uint16, body []byte) error) error {
	n, _, err := unix.Recvfrom(e.fd, e.in, unix.MSG_TRUNC)
	for err == unix.EINTR { // a socket with a timeout is not restarted after a signal (signal(7))
		n, _, err = unix.Recvfrom(e.fd, e.in, unix.MSG_TRUNC)
	}
	if err == nil && n > len(e.in) {
		err = errShort
	}
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	for b := e.in[:n]; len(b) > 0; {
		if len(b) < unix.SizeofNlMsghdr {
			return errShort
		}
		length, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return errShort
		}
		body := b[unix.SizeofNlMsghdr:length]
		if (kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE) && len(body) >= 4 {
			if errno := int32(binary.NativeEndian.Uint32(body)); errno < 0 {
				return unix.Errno(-errno)
			}
		}
		if err := take(kind, body); err != nil {
			return err
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}

// attributes calls take for each attribute in b.
func attributes(b []byte, take func(kind uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlAttr {
			return errShort
		}
		length, kind := int(binary.NativeEndian.Uint16(b)),
			binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if length < unix.SizeofNlAttr || length > len(b) {
			return errShort
		}
		if err := take(kind, b[unix.SizeofNlAttr:length]); err != nil {
			return err
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}
