package edge

import (
	"net/http"
	"strconv"

	"sluice/edge/message"
)

// Status codes of gRPC, as an answer of the edge's own has them.
const (
	grpcCancelled         = 1
	grpcDeadlineExceeded  = 4
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcUnimplemented     = 12
	grpcInternal          = 13
	grpcUnavailable       = 14
	grpcUnauthenticated   = 16
)

// answered is the reply as the client gets it. A call of gRPC is answered in its terms: 200, with
// the status in the head, which is all there is (Trailers-Only). Metrics and logs have the status
// that other clients get, and so has a proxy that has a call checked.
func (x *Exchange) answered() *message.Reply {
	if x.checks || !x.IsGRPC() {
		return &x.reply.Reply
	}
	r := x.reply.Reply
	code := grpcStatus(r.Status)
	if x.reply.from == fromLimit && r.Status != http.StatusServiceUnavailable {
		code = grpcResourceExhausted // whatever a rule answers others with
	}
	r.Status, r.ContentType, r.Body = http.StatusOK, "application/grpc", nil
	r.Fields = append(r.Fields, message.Field{Name: "Grpc-Status", Value: strconv.AppendInt(nil,
		int64(code), 10)},
		message.Field{Name: "Grpc-Message", Value: []byte(http.StatusText(x.reply.Status))})
	return &r
}

func grpcStatus(status int) int {
	switch status {
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden:
		return grpcPermissionDenied
	case http.StatusMisdirectedRequest:
		return grpcUnimplemented
	case http.StatusRequestTimeout:
		return grpcDeadlineExceeded
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return grpcResourceExhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return grpcUnavailable
	case 499: // its client has gone
		return grpcCancelled
	}
	return grpcInternal
}
