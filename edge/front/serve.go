package front

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// Server is the fasthttp server of a site's connections.
func (s *Server) Server() *fasthttp.Server {
	return &fasthttp.Server{
		Handler: s.handle, ErrorHandler: s.refuse, Logger: silent{},
		// It must hold the longest head that a guarded connection shows
		ReadBufferSize: s.Limits.HeaderBytes + s.Limits.HeaderLines + len(DummyRequest),
		// How many connections there may be is for the listeners to say
		Concurrency:        math.MaxInt32,
		MaxRequestBodySize: math.MaxInt,
		ReduceMemoryUsage:  true, // an idle connection keeps nothing

		NoDefaultServerHeader: true, NoDefaultContentType: true,
	}
}

// silent is fasthttp's log: what it would say there, of connections that end, is counted by the
// edge.
type silent struct{}

func (silent) Printf(string, ...any) {}

// of is the front of a request.
func of(ctx *fasthttp.RequestCtx) *HeadFilter {
	switch c := ctx.Conn().(type) {
	case *HeadFilter:
		return c
	case *tlsHeadFilter:
		return &c.HeadFilter
	}
	panic("edge: a connection without a guarded connection")
}

// handle is fasthttp's handler.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	on := of(ctx)
	e := on.Exchange
	e.ctx, on.phase = ctx, handled
	defer func() {
		if p := recover(); p != nil { // its server has not: nothing more is sent
			s.Fault(p)
			on.failed = true
			e.Abort()
		}
		if e.In.Close {
			ctx.SetConnectionClose()
		}
		e.ctx = nil
	}()
	if r := &e.In; r.Refused == nil && !e.agrees() {
		r.Refused = http1.BadRequest
	} else if r.Refused == nil && r.Length != 0 {
		ctx.Request.SetBodyStream(&e.body, int(r.Length))
	}
	s.Handle(e)
}

// refuse is fasthttp's handler of heads that it does not take although the front has shown them.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, _ error) {
	of(ctx).Exchange.In.Refused = http1.BadRequest
	s.handle(ctx)
}

// agrees reports whether fasthttp has read the head as the front has.
func (e *Exchange) agrees() bool {
	h, r := &e.ctx.Request.Header, &e.In
	r.Close = r.Close || h.ConnectionClose()
	return bytes.Equal(h.Method(), r.Method) && bytes.Equal(h.RequestURI(), r.Target) &&
		bytes.Equal(h.Host(), r.HostLine)
}

// Respond hands an answer of the edge's own to fasthttp, which writes it when the handler returns:
// that it could not shows at the end. What fasthttp has not been shown is answered here.
func (e *Exchange) Respond(r *message.Reply) error {
	e.on.Conn.WriteAt = r.At
	if e.ctx == nil {
		e.out = e.appendReply(e.out[:0], r)
		e.on.phase = relayed
		_, err := e.on.Conn.Write(e.out)
		e.on.failed = err != nil
		return err
	}
	to := &e.ctx.Response
	to.Header.DisableNormalizing() // RateLimit is spelled so
	to.SetStatusCode(r.Status)
	if r.ContentType != "" {
		to.Header.SetContentType(r.ContentType)
	}
	if r.Common != nil {
		for _, f := range r.Common.Fields {
			to.Header.AddBytesV(f.Name, f.Value)
		}
	}
	for _, f := range r.Fields {
		to.Header.AddBytesV(f.Name, f.Value)
	}
	to.SetBodyRaw(r.Body)
	to.SkipBody = e.In.IsHead
	return nil
}

// Lines are fields of a header as HTTP/1.1 writes them.
func Lines(fields []message.Field) (b []byte) {
	for _, f := range fields {
		b = appendField(b, f)
	}
	return b
}

// appendReply appends an answer of the edge's own, byte for byte as fasthttp writes it.
func (e *Exchange) appendReply(b []byte, r *message.Reply) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(r.Status), 10)
	b = append(append(b, ' '), fasthttp.StatusMessage(r.Status)...)
	at := r.At
	if at.IsZero() {
		at = time.Now()
	}
	b = append(append(b, "\r\nDate: "...), message.Date(at)...)
	if r.ContentType != "" {
		b = append(append(b, "\r\nContent-Type: "...), r.ContentType...)
	}
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(r.Body)), 10)
	b = append(b, "\r\n"...)
	if r.Common != nil {
		b = append(b, r.Common.Lines...)
	}
	for _, f := range r.Fields {
		b = appendField(b, f)
	}
	b = append(e.appendConnection(b), "\r\n"...)
	if !e.In.IsHead {
		b = append(b, r.Body...)
	}
	return b
}
