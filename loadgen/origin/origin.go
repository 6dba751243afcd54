// Package origin is a small HTTP server to stand behind edges, which counts what reached it by
// source.
package origin

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// maxSources bounds the sources that an Origin distinguishes; further ones count as Others.
const maxSources = 1 << 20

// BytesPath and a number of bytes is what an Origin answers with as many; GET /bytes/1000000.
const BytesPath = "/bytes/"

// OncePath and a name is a request that comes once: an Origin counts how often each of these came.
const OncePath = "/once/"

const maxBytesAsked = 1 << 30

// StatsPath is where an Origin reports what it received. Requests for it are not counted.
const StatsPath = "/__stats"

// Server is a small HTTP server to stand behind edges. It answers every request alike and counts
// requests by the first address of their X-Forwarded-For header, which is the source as the edge
// saw it. The zero Origin answers 200 with two bytes at once. A path that begins with BytesPath
// asks for as many bytes as it says.
type Server struct {
	Status int           // 0: 200
	Size   int           // bytes of body; 0: "ok"; below 0: none
	Delay  time.Duration // before each answer

	mu       sync.Mutex // guards what follows
	received int
	others   int
	bySource map[string]*int
	once     map[string]int // times that a request came that comes once
	most     int            // of once
	server   *fasthttp.Server
}

// Stats is what an Origin received.
type Stats struct {
	Received int            `json:"received"`
	Others   int            `json:"others"` // of sources beyond those that are distinguished
	BySource map[string]int `json:"by_source"`
	Most     int            `json:"most"` // times that one request under OncePath came
}

// Minus is what was received since an earlier look.
func (o Stats) Minus(earlier Stats) Stats {
	out := Stats{Received: o.Received - earlier.Received, Others: o.Others - earlier.Others,
		BySource: make(map[string]int), Most: o.Most}
	for source, n := range o.BySource {
		if n -= earlier.BySource[source]; n > 0 {
			out.BySource[source] = n
		}
	}
	return out
}

// Serve answers on ln until Shutdown, and returns nil then.
func (o *Server) Serve(ln net.Listener) error {
	body := []byte("ok")
	switch {
	case o.Size < 0:
		body = nil
	case o.Size > 0:
		body = make([]byte, o.Size)
		for i := range body {
			body[i] = "0123456789abcdef"[i%16]
		}
	}
	status := o.Status
	if status == 0 {
		status = fasthttp.StatusOK
	}
	server := &fasthttp.Server{
		NoDefaultServerHeader:         true,
		NoDefaultDate:                 true,
		DisablePreParseMultipartForm:  true,
		ReadBufferSize:                64 << 10,
		Concurrency:                   1 << 20,
		CloseOnShutdown:               true,
		DisableHeaderNamesNormalizing: false,
		Handler: func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) == StatsPath {
				o.answerStats(ctx)
				return
			}
			o.count(ctx.Request.Header.Peek("X-Forwarded-For"), ctx.Path())
			if o.Delay > 0 {
				time.Sleep(o.Delay)
			}
			ctx.SetStatusCode(status)
			ctx.SetContentType("text/plain")
			if n, ok := sizeAsked(ctx.Path()); ok {
				ctx.Response.SetBodyStream(io.LimitReader(pattern{}, n), int(n))
				return
			}
			ctx.Response.SetBodyRaw(body)
		},
	}
	o.mu.Lock()
	o.server = server
	o.mu.Unlock()
	if err := server.Serve(ln); err != nil {
		return fmt.Errorf("loadgen: serve origin on %s: %w", ln.Addr(), err)
	}
	return nil
}

// sizeAsked reads how many bytes a path asks for, if it does.
func sizeAsked(path []byte) (int64, bool) {
	digits, ok := strings.CutPrefix(string(path), BytesPath)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0 && n <= maxBytesAsked
}

// A pattern is sixteen bytes again and again.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for n := copy(p, "0123456789abcdef"); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return len(p), nil
}

// Shutdown makes Serve return once the requests under way are answered.
func (o *Server) Shutdown() error {
	o.mu.Lock()
	server := o.server
	o.mu.Unlock()
	if server == nil {
		return nil
	}
	return server.Shutdown()
}

// Stats is what was received so far.
func (o *Server) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := Stats{Received: o.received, Others: o.others, BySource: make(map[string]int,
		len(o.bySource)), Most: o.most}
	for source, n := range o.bySource {
		s.BySource[source] = *n
	}
	return s
}

func (o *Server) count(forwarded, path []byte) {
	source := forwarded
	for i, c := range forwarded {
		if c == ',' || c == ' ' {
			source = forwarded[:i]
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.received++
	if name, ok := strings.CutPrefix(string(path), OncePath); ok && len(name) <= 64 &&
		(len(o.once) < maxSources || o.once[name] > 0) {
		if o.once == nil {
			o.once = make(map[string]int)
		}
		o.once[name]++
		o.most = max(o.most, o.once[name])
	}
	if n, ok := o.bySource[string(source)]; ok {
		*n++
		return
	}
	if len(o.bySource) >= maxSources || len(source) > 64 {
		o.others++
		return
	}
	if o.bySource == nil {
		o.bySource = make(map[string]*int)
	}
	n := 1
	o.bySource[string(source)] = &n
}

func (o *Server) answerStats(ctx *fasthttp.RequestCtx) {
	b, err := json.Marshal(o.Stats())
	if err != nil {
		ctx.Error(strconv.Quote(err.Error()), fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(b)
}
