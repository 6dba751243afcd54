package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/edge/message"
)

// A Header is one that a rule adds to its refusals: texts, and what stands between them.
type Header struct {
	Name  string
	Parts []HeaderPart
}

// A HeaderPart is a text, or, in its place, something of the request.
type HeaderPart struct {
	Text []byte
	Of   HeaderValue
}

// HeaderValue is what of a request, or of the refusal, a header repeats.
type HeaderValue byte

const (
	JustText        HeaderValue = iota
	OriginValue                 // what the request's Origin says; without one the header is left out
	RequestIDValue              // its X-Request-ID
	RetryAfterValue             // seconds to wait
)

var headerValues = map[string]HeaderValue{"origin": OriginValue, "request_id": RequestIDValue,
	"retry_after": RetryAfterValue}

// ownHeaders are those of a refusal that say what only the edge knows.
const ownHeaders = " cache-control content-encoding content-type date location ratelimit ratelimit-policy retry-after server sluice-verdict x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-request-id "

// maxHeaders is how many headers a refusal may have beside the usual ones.
const maxHeaders = 16

// headers makes ready what refusals carry.
func (r *Response) headers() (list []Header, err error) {
	if len(r.Headers) > maxHeaders {
		return nil, fmt.Errorf("more than %d headers: leave out some", maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		h, err := parseHeader(name, r.Headers[name])
		if err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, nil
}

// CheckHeader returns what is wrong with a header of refusals.
func CheckHeader(name, value string) error {
	_, err := parseHeader(name, value)
	return err
}

func parseHeader(name, value string) (h Header, err error) {
	if !message.IsToken([]byte(name)) || message.KindOf([]byte(name)) != message.Other ||
		strings.Contains(ownHeaders, " "+strings.ToLower(name)+" ") {
		return h, fmt.Errorf("%q cannot be a header of a refusal: it is no name, or the edge says it itself", name)
	}
	if !message.IsText([]byte(value)) || strings.TrimSpace(value) != value || len(value) > 1024 {
		return h, fmt.Errorf("%s: %q is not the value of a header: want text of at most 1024 bytes",
			name, value)
	}
	h.Name = name
	for rest := value; rest != ""; {
		text, after, open := strings.Cut(rest, "{{")
		if text != "" {
			h.Parts = append(h.Parts, HeaderPart{Text: []byte(text)})
		}
		if !open {
			break
		}
		word, next, closed := strings.Cut(after, "}}")
		of, known := headerValues[strings.TrimSpace(word)]
		if !closed || !known {
			return h, fmt.Errorf("%s: %q: want {{origin}}, {{request_id}} or {{retry_after}} behind {{", name, value)
		}
		h.Parts = append(h.Parts, HeaderPart{Of: of})
		rest = next
	}
	return h, nil
}
