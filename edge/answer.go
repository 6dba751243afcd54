package edge

import "sluice/edge/message"

// ours reports which lines of an answer only the edge may say: its verdict, the request's name, and, where a rule has something to tell, limits. An origin's
// own limits stay where no rule applies, and in interim answers.
func (x *exchange) ours() func(status int, name []byte) bool {
	if x.decision.Told != nil {
		return tellsOurs
	}
	return tellsRequest
}

func tellsRequest(_ int, name []byte) bool {
	return message.EqualFold(name, "sluice-verdict") || message.EqualFold(name, "x-request-id")
}

func tellsOurs(status int, name []byte) bool {
	return tellsRequest(status, name) || status >= 200 && tellsLimit(name)
}

func tellsLimit(name []byte) bool {
	switch len(name) {
	case len("ratelimit"):
		return message.EqualFold(name, "ratelimit")
	case len("ratelimit-policy"):
		return message.EqualFold(name, "ratelimit-policy")
	case len("x-ratelimit-limit"): // and -reset
		return message.EqualFold(name, "x-ratelimit-limit") || message.EqualFold(name, "x-ratelimit-reset")
	case len("x-ratelimit-remaining"):
		return message.EqualFold(name, "x-ratelimit-remaining")
	}
	return false
}
