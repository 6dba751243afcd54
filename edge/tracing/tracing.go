// Package tracing is traces of sampled requests as the edge needs them: which requests, what became
// of them, and whom the edge tells. Package otel makes the traces and sends them; a program without
// it traces nothing.
package tracing

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"sluice/edge/message"
	"sluice/edge/metric"
)

// Config is which requests are traced, and where the spans go.
type Config struct {
	Endpoint      string  // of the collector, http:// or https://; "": nothing is traced
	Sample        float64 // the share of requests, 0 to 1
	Parent        Parent
	ServiceName   string
	ClientAddress bool // spans have the client's address
}

// Parent is whose traceparent is followed.
type Parent string

const (
	None Parent = "none" // nobody's: a trace begins here
	// That of trusted proxies: a request that is sampled there is traced here
	Trusted Parent = "trusted"
)

// CheckEndpoint reports what is wrong with where a collector is said to be.
func CheckEndpoint(text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%q is not the address of a collector: want http://HOST:PORT, such as http://127.0.0.1:4318, or https://", text)
	case u.User != nil:
		return errors.New("the address of a collector has a user in it: give headers in OTEL_EXPORTER_OTLP_HEADERS instead")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q: the address of a collector has no query: remove what follows its path", text)
	}
	return nil
}

// A Tracer traces requests. It is safe for concurrent use.
type Tracer interface {
	// Start begins to trace a request that came at now, if it is drawn, or a trusted peer's trace
	// goes on here; nil: it is not traced.
	Start(r *message.Request, trusted bool, now time.Time) Request
	// Collect gives what became of spans.
	Collect(to metric.Sink)
}

// A Request is one that is traced. It belongs to the goroutine that serves it.
type Request interface {
	// Attempt begins a span for an attempt at a server, scheme://host:port or unix:/path.
	// Connecting once more to the same one is part of it.
	Attempt(server string)
	// Unreachable notes that the attempt has no connection yet. It fails by that unless there is a
	// further try at the same server.
	Unreachable(err error)
	// Failed ends the attempt without an answer.
	Failed(err error)
	// Answered notes the status of the server's answer; the attempt goes on until the answer is
	// relayed.
	Answered(status int)
	// AppendHead appends the header lines by which the server goes on with the trace, each after
	// the end of the line before.
	AppendHead(b []byte) []byte
	// End ends the request's spans.
	End(o Outcome)
}

// ErrGone is why an attempt failed whose client has left.
var ErrGone = errors.New("the client has left")

// An Outcome is what became of a request.
type Outcome struct {
	Client              netip.Addr
	ID                  []byte
	Secure              bool
	Status              int
	From, Rule, Verdict string // which side answered, and what the rules said
	Failed              bool   // the client did not get the answer
	At                  time.Time
}
