package placement

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Canonical gives the one spelling of a memcached node's HOST:PORT: names in lower case without
// their last dot, addresses as netip writes them, IPv4 in IPv6 as IPv4, IPv6 in brackets, the port
// without leading zeros. All edges choose nodes by it, so they may spell a node as they like. A
// node is still dialled as it was named.
func Canonical(name string) (string, error) {
	colon := strings.LastIndexByte(name, ':')
	host, bracketed := strings.CutPrefix(name[:max(colon, 0)], "[")
	if bracketed {
		var closed bool
		if host, closed = strings.CutSuffix(host, "]"); !closed {
			return "", badNode(name, "want HOST:PORT or [IPV6]:PORT")
		}
	}
	switch {
	case name == "":
		return "", errors.New("a node without a name: want HOST:PORT")
	case colon < 0:
		return "", badNode(name, "it has no port: want HOST:PORT, such as "+name+":11211")
	case host == "":
		return "", badNode(name, "it has no host: want HOST:PORT")
	case strings.Contains(host, ":") && !bracketed:
		return "", badNode(name, "want [IPV6]:PORT")
	}
	port, ok := canonicalPort(name[colon+1:])
	if !ok {
		return "", badNode(name, "want a port from 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr = addr.Unmap(); addr.Is6() {
			return "[" + addr.String() + "]:" + port, nil
		}
		return addr.String() + ":" + port, nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if bracketed || !isHostName(host) {
		return "",
			badNode(name, "want the name of a host, an IPv4 address or an IPv6 address in brackets")
	}
	return host + ":" + port, nil
}

func badNode(name, want string) error {
	return fmt.Errorf("%q is not the address of a node: %s", name, want)
}

func canonicalPort(text string) (string, bool) {
	for _, d := range []byte(text) {
		if d < '0' || d > '9' {
			return "", false
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return strconv.FormatUint(n, 10), err == nil && n > 0
}

// isHostName takes names in small letters of which the last part is no number: such a name is a
// mistyped address, and resolvers differ on which.
func isHostName(host string) bool {
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
		last = label
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err != nil && len(host) <= 253
}

// Names gives the canonical names of a list, in its order, if each is the name of a node and none
// is there twice.
func Names(names []string) ([]string, error) {
	canonical := make([]string, 0, len(names))
	spelled := make(map[string]string, len(names))
	for _, name := range names {
		c, err := Canonical(name)
		if err != nil {
			return nil, err
		}
		if other, twice := spelled[c]; twice {
			return nil, fmt.Errorf("%q and %q are the same node: name it once", other, name)
		}
		spelled[c] = name
		canonical = append(canonical, c)
	}
	return canonical, nil
}
