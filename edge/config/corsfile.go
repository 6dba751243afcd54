package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/message"
)

// CORS is whose pages may read the edge's own refusals. The zero CORS is nobody's.
type CORS struct {
	Origins []string // as https://app.example, https://*.example, or *
	Expose  []string // headers that the pages see beside the usual ones
}

func (r *reader) cors(n ast.Node, c *CORS) {
	r.mapping(n, "cors", fields{
		"origins": r.texts("cors.origins", func(n ast.Node, text string) {
			if err := checkOrigin(text); err != nil {
				r.fail(n, "cors.origins: %v", err)
			} else if slices.Contains(c.Origins, text) {
				r.fail(n, "cors.origins: %s is there twice: remove one", text)
			}
			c.Origins = append(c.Origins, text)
		}),
		"expose": func(n ast.Node) {
			c.Expose = nil
			r.texts("cors.expose", func(n ast.Node, text string) {
				if !message.IsToken([]byte(text)) {
					r.fail(n, "cors.expose: %q is not the name of a header", text)
				}
				c.Expose = append(c.Expose, text)
			})(n)
		},
	})
}

// checkOrigin returns what is wrong with an origin as browsers send it (RFC 6454, 6.2).
func checkOrigin(text string) error {
	u, err := url.Parse(strings.Replace(text, "://*.", "://", 1))
	if text == "*" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" &&
		u.Scheme+"://"+u.Host == strings.Replace(text, "://*.", "://", 1) &&
		!strings.Contains(u.Host, "*") && strings.ToLower(text) == text {
		return nil
	}
	return fmt.Errorf("%q is no origin: want https://HOST or https://HOST:PORT in small letters, https://*.HOST, or \"*\"", text)
}
