package front

import "time"

// Limits bound what clients can take.
type Limits struct {
	Connections int `json:"connections" want:"1 to 10000000"` // in all
	// Of those, as configured, where the process may open fewer files than they need; 0:
	// Connections
	Wanted    int `json:"-"`
	PerSource int `json:"connections_per_source" want:"1 to 10000000"` // connections of one source
	// Bytes in use near which streams of HTTP/2 give way, and new connections are turned away; 0:
	// unlimited
	Memory      int `json:"memory" want:"0, or 16MiB to 1048576GiB"`
	HeaderBytes int `json:"header_bytes" want:"1KiB to 1024KiB"`     // request line and headers
	HeaderLines int `json:"header_lines" want:"16 to 1024"`          // of a request
	BodyBytes   int `json:"body_bytes" want:"0, or 1 to 1048576GiB"` // 0: unlimited
	// Bytes a second of a request's body that a client must send at least; 0: any number
	BodyRate int `json:"body_rate" want:"0, or 1 to 1GiB"`
	// Bytes a second of an answer that a client must take at least; 0: any number
	AnswerRate    int           `json:"answer_rate" want:"0, or 1 to 1GiB"`
	HeaderTimeout time.Duration `json:"header_timeout" want:"100ms to 1h"`
	IdleTimeout   time.Duration `json:"idle_timeout" want:"100ms to 24h"`
	// After which a tunnel ends in which nothing moves
	TunnelTimeout time.Duration `json:"tunnel_timeout" want:"1s to 24h"`
}
