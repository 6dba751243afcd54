package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// Settings are which requests are traced, and where the spans go.
type Settings struct {
	Endpoint      Endpoint `json:"endpoint" want:"file" need:"that of a collector, such as http://127.0.0.1:4318"`
	Sample        Share    `json:"sample"` // of the requests
	Parent        string   `json:"parent" want:"none or trusted"`
	ServiceName   string   `json:"service_name"`
	ClientAddress bool     `json:"client_address"` // spans have the client's address
}

// Whose traceparent is followed.
const (
	none = "none" // nobody's: a trace begins here
	// That of trusted proxies: a request that is sampled there is traced here
	trusted = "trusted"
)

func standard() *Settings {
	return &Settings{Sample: 0.001, Parent: none, ServiceName: "sluice"}
}

// An Endpoint is where a collector is, http:// or https://; "": nothing is traced.
type Endpoint string

// UnmarshalText reads an endpoint.
func (e *Endpoint) UnmarshalText(b []byte) error {
	text := string(b)
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
	*e = Endpoint(text)
	return nil
}

// A Share is one of the requests, 0 to 1.
type Share float64

// UnmarshalText reads a share.
func (s *Share) UnmarshalText(text []byte) error {
	share, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(share >= 0 && share <= 1) {
		return fmt.Errorf("%s is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000", text)
	}
	*s = Share(share)
	return nil
}
