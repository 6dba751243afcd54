package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/edge/limiter/shedding"
	"sluice/edge/socket"
)

// Config is a group of servers that answer for some hosts.
type Config struct {
	Hosts []string `json:"hosts" want:"host"`
	// http, https, h2c or h2, host and port only; or unix and a path
	Servers []*url.URL `json:"servers"`
	TLS     TLS        `json:"tls"` // of the https and h2 ones
	// From the request to the head of the answer, and without progress in a body
	Timeout time.Duration `json:"timeout" want:"1ms to 24h"`
	// ConnectTimeout bounds a connect, and a TLS handshake with it; 0 is 5 s. TotalTimeout bounds a
	// request with its whole answer, but for what is said in a tunnel; 0 is any time, because
	// downloads may take long.
	ConnectTimeout time.Duration `json:"connect_timeout" want:"1ms to 1h"`
	TotalTimeout   time.Duration `json:"total_timeout" want:"0, or 1ms to 24h"`
	// AnswerHead is how many bytes the head of an answer may have at most; more is 502. 0 is
	// MaxHead. A buffer of this size is held for each request whose answer is under way.
	AnswerHead int          `json:"answer_header_bytes" want:"4KiB to 1024KiB"`
	Balance    Balance      `json:"balance"`
	Health     HealthConfig `json:"health"`
	// MaxRequests is how many requests may be under way at each server, so that a slow one does not
	// take everything; what goes beyond is answered with 503. 0 is any number.
	MaxRequests int `json:"max_requests" want:"0 to 1000000"`
	// MaxRequestsPerSource is how many requests of one source may be under way at all the servers
	// together, so that a source does not take everything; what goes beyond is answered with 503. 0
	// is half of what the healthy servers have room for by MaxRequests, at least 1, and any number
	// without MaxRequests. Sources that are never limited (Allow) are not here either.
	MaxRequestsPerSource int `json:"max_requests_per_source" want:"0 to 1000000"`
	// Upgrades are the protocols, in lower case, that a request may switch to (Upgrade): the
	// connection then becomes a tunnel to a server, and what is said in it is not counted. nil is
	// websocket alone; an empty list is none.
	Upgrades []string `json:"upgrades" want:"upgrade"`
	// Shedding bounds the requests under way at all the servers together by how fast they answer;
	// nil: nothing does.
	Shedding *shedding.Config `json:"shedding,omitempty"`
}

const (
	DefaultConnect  = 5 * time.Second
	DefaultInterval = 5 * time.Second // of HealthConfig
)

// Default is a Config with the default of every field but Hosts and Servers.
func Default() Config {
	return Config{Timeout: time.Minute, ConnectTimeout: DefaultConnect, AnswerHead: MaxHead,
		Health: HealthConfig{Interval: DefaultInterval}}
}

// HealthConfig is how servers are checked, beside watching their answers: three failures in a row
// take one out for ten seconds. An only server, or the last, is never taken out.
type HealthConfig struct {
	// A path that is requested of each server, which answers 200 to 399; "": none
	Active string `json:"active" want:"health path or none"`
	// Between two such checks; two failures in a row take a server out until it succeeds
	Interval time.Duration `json:"interval" want:"100ms to 1h"`
}

// IsSecure reports whether a server is spoken to over TLS, and IsHTTP2 whether in HTTP/2: over TLS
// (h2), or as a server without it is known to (h2c).
func IsSecure(server *url.URL) bool { return server.Scheme == "https" || server.Scheme == "h2" }
func IsHTTP2(server *url.URL) bool  { return server.Scheme == "h2c" || server.Scheme == "h2" }

// Balance is how an origin's servers share its requests.
type Balance uint8

const (
	RoundRobin       Balance = iota
	LeastConnections         // where the fewest requests are under way
	BySource                 // always the same for a source, as long as it is healthy
)

// Balances are their names.
var Balances = [...]string{"round_robin", "least_connections", "source"}

func (b Balance) String() string { return Balances[b] }

// MarshalText is String, as a file has it.
func (b Balance) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a name.
func (b *Balance) UnmarshalText(text []byte) error {
	i := slices.Index(Balances[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not possible: want %s", text, strings.Join(Balances[:], " or "))
	}
	*b = Balance(i) //nolint:gosec // of three
	return nil
}

// ParseOrigin reads the URL of a server: scheme and host, and nothing else, or unix:/path.
func ParseOrigin(text string) (*url.URL, error) {
	if path, unix := strings.CutPrefix(text, "unix:"); unix {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
			len(path) > socket.MaxPath {
			return nil,
				fmt.Errorf("%q is not the Unix socket of an origin: want unix:/PATH of at most %d bytes", text, socket.MaxPath)
		}
		return &url.URL{Scheme: "unix", Path: path, OmitHost: true}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" ||
		!slices.Contains([]string{"http", "https", "h2c", "h2"}, u.Scheme):
		return nil, errors.New("\"" + text +
			"\" is not the URL of an origin: want http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, errors.New("origin \"" + text +
			"\" has more than scheme, host and port: requests keep their own path; write " +
			u.Scheme + "://" + u.Host)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}
