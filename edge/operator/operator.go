// Package operator asks the operators' listener of one edge, and tells what it answers in sentences
// and tables of at most 100 columns, but for a text at the end of a row, which is whole.
//
// It speaks to an edge over HTTP, and reads an answer as the edge's own types have it
// (edge/control). What it does not know in one it passes over, so it gets on with edges of other
// versions. What an edge does not have is an error that says so. Every error is a sentence: what
// went wrong, where, and what to do.
package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"sluice/edge/config"
)

// Client speaks to one edge. It is not safe for concurrent use.
type Client struct {
	// The operators' listener, as a configuration names it: host:port, :port, or unix:/path
	Address string
	Token   string    // "": none
	Who     string    // the operator, for the edge's events; "": nobody in particular
	JSON    bool      // answers are printed as they are
	Now     time.Time // what remains of a block is told by it
	Out     io.Writer
	Modules []config.Module // of which rules may have fields

	http  *http.Client
	tag   string // the ETag of the latest answer
	match string // sent as If-Match; "": none
}

const (
	// answerTimeout is more than the two seconds that an edge takes to tell its PoP of a block.
	answerTimeout = 10 * time.Second
	// maxAnswer bounds what is read: a list of 100,000 blocks is a tenth of it.
	maxAnswer = 256 << 20
)

// errAbsent says that an edge has no such route: it is of another version.
var errAbsent = errors.New("this edge does not have it")

// refused is what an edge answers in place of doing it.
type refused struct {
	status int
	why    string
}

func (r *refused) Error() string { return r.why }

// Get asks for a path, and reads the answer into a value of the caller's.
func (c *Client) Get(path string, into any) error {
	return c.Do(http.MethodGet, path, nil, into)
}

// Do sends a request with a body of JSON, or none if body is nil, and reads the answer into a value
// of the caller's.
func (c *Client) Do(method, path string, body, into any) error {
	answer, err := c.ask(method, path, body)
	if err != nil {
		return err
	}
	return c.decode(answer, into)
}

// ask sends a request with a body of JSON, or none if body is nil. The answer is JSON, or else an
// error.
func (c *Client) ask(method, path string, body any) ([]byte, error) {
	status, kind, text, err := c.send(method, path, body)
	if err != nil {
		return nil, err
	}
	isJSON := strings.HasPrefix(kind, "application/json") && json.Valid(text)
	switch {
	case status == http.StatusOK && isJSON:
		return text, nil
	case status == http.StatusUnauthorized && c.Token == "":
		return nil,
			fmt.Errorf("%s wants a token: give the file that holds it with --token-file FILE",
				c.Address)
	case status == http.StatusUnauthorized:
		return nil,
			fmt.Errorf("%s wants another token: give the file that its admin_token_file names with --token-file FILE. An edge reads a replaced file within a second; "+
				"where systemd made a copy of it at the start (LoadCredential=), it reads the new one after systemctl restart", c.Address)
	// Which the other listener answers
	case isJSON && status != http.StatusTooManyRequests && status != http.StatusBadGateway:
		var refusal struct{ Error struct{ Message string } }
		if json.Unmarshal(text, &refusal) == nil && refusal.Error.Message != "" {
			return nil, &refused{status,
				Printable(strings.TrimPrefix(strings.TrimPrefix(refusal.Error.Message, "edge: "),
					"changes: "))}
		}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		path, _, _ = strings.Cut(path, "?")
		return nil,
			fmt.Errorf("%w: %s answers %s %s with %d; if that is the operators' listener of an edge, the edge is of another version than this command",
				errAbsent, c.Address, method, path, status)
	}
	return nil,
		fmt.Errorf("what answers at %s is not the operators' listener of an edge (%d to %s %s): name that with --admin ADDR", c.Address, status, method, path)
}

// send sends a request and returns the answer as it is.
func (c *Client) send(method, path string,
	body any) (status int, kind string, text []byte, err error) {
	network, address := dialed(c.Address)
	if c.http == nil {
		c.http = &http.Client{
			Timeout: answerTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
			// No proxy: an edge's operators' listener is near, and a token is for it alone.
			Transport: &http.Transport{DialContext: func(ctx context.Context, _,
				_ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}},
		}
	}
	host := address
	if network == "unix" {
		host = "localhost"
	}
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, "", nil, err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://"+host+path, sent)
	if err != nil {
		return 0, "", nil, err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if c.Who != "" {
		req.Header.Set("X-Operator", c.Who)
	}
	if c.match != "" {
		req.Header.Set("If-Match", c.match)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", nil, c.unreachable(err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, "", nil, c.unreachable(err)
	}
	c.tag = resp.Header.Get("ETag")
	return resp.StatusCode, resp.Header.Get("Content-Type"), text, nil
}

// dialed is where to find a listener that was told to listen on an address: one on all addresses is
// on this machine's too.
func dialed(address string) (network, to string) {
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		return "unix", path
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		switch ip := net.ParseIP(host); {
		case host == "" || ip.Equal(net.IPv4zero):
			return "tcp", net.JoinHostPort("127.0.0.1", port)
		case ip.Equal(net.IPv6unspecified):
			return "tcp", net.JoinHostPort("::1", port)
		}
	}
	return "tcp", address
}

// unreachable makes a sentence of an error of the connection.
func (c *Client) unreachable(err error) error {
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	var timeout net.Error
	var name *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("no edge listens at %s: start it, or name its operators' listener with --admin ADDR or --config FILE", c.Address)
	case errors.As(err, &name):
		return fmt.Errorf("the name %s cannot be found: check the spelling of --admin", name.Name)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s does not answer: look whether the edge is alive and can be reached from here", c.Address)
	}
	return fmt.Errorf("%s cannot be asked (%w): look whether that is the operators' listener of an edge", c.Address, err)
}

// Show asks an edge, and prints the answer: as it is, or as text does of what is decoded from it.
func Show[T any](c *Client, method, path string, body any, text func(T) error) error {
	answer, err := c.ask(method, path, body)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.raw(answer)
	}
	var v T
	if err := c.decode(answer, &v); err != nil {
		return err
	}
	return text(v)
}

// raw prints an answer as it is.
func (c *Client) raw(answer []byte) error {
	_, err := c.Out.Write(append(bytes.TrimRight(answer, "\n"), '\n'))
	return err
}

// decode reads an answer of the edge.
func (c *Client) decode(answer []byte, to any) error {
	if err := json.Unmarshal(answer, to); err != nil {
		return fmt.Errorf("the answer of %s is not understood (%w): --json shows it as it is",
			c.Address, err)
	}
	return nil
}

// PrintJSON prints a value for programs.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
