package config

import (
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/message"
	"sluice/edge/token"
)

// jwt reads which tokens are believed.
func (r *reader) jwt(n ast.Node, c *token.Config) {
	given := []string(nil)
	seen := r.mapping(n, "jwt", fields{
		"keys_file": r.orNone("jwt.keys_file", &c.KeysFile),
		"algorithms": r.texts("jwt.algorithms", func(n ast.Node, text string) {
			switch {
			case strings.EqualFold(text, "none"):
				r.fail(n, "jwt.algorithms: none would believe every token: remove it")
			case !slices.Contains(token.Algorithms, text):
				r.fail(n, "jwt.algorithms: %q is not possible: want some of %s", text,
					strings.Join(token.Algorithms, ", "))
			case slices.Contains(given, text):
				r.fail(n, "jwt.algorithms: %s is there twice: remove one", text)
			case len(given) > 0 && token.IsSecret(given[0]) != token.IsSecret(text):
				r.fail(n,
					"jwt.algorithms: %s and %s together: anyone who knows a public key could sign with it as if it were the secret: keep one kind", given[0], text)
			default:
				given = append(given, text)
			}
		}),
		"issuer":   r.orNone("jwt.issuer", &c.Issuer),
		"audience": r.orNone("jwt.audience", &c.Audience),
		"header":   r.orNone("jwt.header", &c.Header),
		"cookie":   r.orNone("jwt.cookie", &c.Cookie),
		"leeway":   r.duration("jwt.leeway", time.Second, 10*time.Minute, true, &c.Leeway),
	})
	if len(given) > 0 {
		c.Algorithms = given
	} else if at := seen["algorithms"]; at != nil && len(r.errs) == 0 {
		r.fail(at, "jwt.algorithms: an empty list believes no token: want some of %s",
			strings.Join(token.Algorithms, ", "))
	}
	c.Header = strings.ToLower(c.Header)
	switch {
	case seen == nil:
	case c.KeysFile == "" && c.Issuer+c.Audience+c.Header+c.Cookie != "":
		r.fail(n, "jwt: no keys_file: give the file with the keys that sign the tokens")
	case c.Header != "" && c.Cookie != "":
		r.fail(n, "jwt: header and cookie together: the token is in one of them: keep one")
	case c.Header != "" && (!message.IsToken([]byte(c.Header)) ||
		message.KindOf([]byte(c.Header)) != message.Other):
		r.fail(seen["header"],
			"jwt.header: %q cannot hold a token: want Authorization, or a header of your own",
			c.Header)
	case c.Cookie != "" && !message.IsName([]byte(c.Cookie)):
		r.fail(seen["cookie"], "jwt.cookie: %q is not the name of a cookie", c.Cookie)
	}
	if c.Header == "authorization" {
		c.Header = ""
	}
}
