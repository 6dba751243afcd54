package cors

import (
	"fmt"
	"net/url"
	"strings"

	"sluice/edge/message"
)

// Settings are whose pages may read the edge's own refusals. Without origins they are nobody's.
type Settings struct {
	Origins []Origin `json:"origins" each:"once"`
	// Expose is headers that the pages see beside the usual ones.
	Expose []header `json:"expose"`
}

// An Origin is one that pages come from: https://app.example, https://*.example, or *.
type Origin string

// UnmarshalText takes an origin as browsers send it (RFC 6454, 6.2), or * for a part of a name.
func (o *Origin) UnmarshalText(text []byte) error {
	*o = Origin(text)
	plain := strings.Replace(string(text), "://*.", "://", 1)
	u, err := url.Parse(plain)
	if *o == "*" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" &&
		u.Scheme+"://"+u.Host == plain && !strings.Contains(u.Host, "*") &&
		strings.ToLower(string(text)) == string(text) {
		return nil
	}
	return fmt.Errorf("%q is no origin: want https://HOST or https://HOST:PORT in small letters, https://*.HOST, or \"*\"", text)
}

type header string

func (h *header) UnmarshalText(text []byte) error {
	if *h = header(text); !message.IsToken(text) {
		return fmt.Errorf("%q is not the name of a header", text)
	}
	return nil
}
