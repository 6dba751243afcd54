package ja4

import (
	"crypto/tls"
	"fmt"
	"regexp"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
	"sluice/edge/rules/key"
)

// Settings are what a configuration says.
type Settings struct {
	// Header is where a trusted proxy that ends TLS says a client's name; "": none does.
	Header string `json:"header" want:"file"`
}

const name = "ja4"

// Module makes the name a kind of key, a condition and a field of the log.
func Module() edge.Module {
	return edge.Module{Name: name, Prepare: prepare, Config: config.Module{
		Settings: func() any { return new(Settings) },
		Facts:    []*key.Fact{{Name: name, Match: name, Parse: parse}},
		Check:    check,
	}}
}

var form = regexp.MustCompile(`^t(1[0-3]|s3|00)[di][0-9]{4}[0-9A-Za-z]{2}_[0-9a-f]{12}_[0-9a-f]{12}$`)

func parse(text string) (string, error) {
	if !form.MatchString(text) {
		return "", fmt.Errorf("%q is no JA4: want one such as t13d1516h2_8daaf6152771_e5627efa2ab1",
			text)
	}
	return text, nil
}

func check(c *config.Config) error {
	said, _ := c.Settings[name].(*Settings)
	switch {
	case said == nil || said.Header == "":
	case !message.IsToken([]byte(said.Header)) ||
		message.KindOf([]byte(said.Header)) != message.Other:
		return fmt.Errorf("ja4.header: %q names no client's TLS library: want a header of the proxy's own, such as X-JA4", said.Header)
	case len(c.Source.Trust) == 0:
		return fmt.Errorf("ja4.header: %s is believed of trusted proxies alone: give source.trust",
			said.Header)
	}
	return nil
}

func prepare(s *edge.Setup) (edge.Points, error) {
	said, _ := s.Config.Settings[name].(*Settings)
	var header []byte
	if said != nil {
		header = []byte(said.Header)
	}
	fact := &key.Fact{Name: name, Match: name, Parse: parse,
		Find: func(buf []byte, v *key.View) []byte { return find(buf, v, header) }}
	p := edge.Points{Facts: []*key.Fact{fact},
		Hello: func(h *tls.ClientHelloInfo) any { return Of(h) }}
	if len(header) > 0 {
		p.Gates = []edge.Gate{{Phase: edge.Own, Answer: func(x *edge.Exchange) bool {
			x.Head.OnlyFrom(x.Trusted(), header)
			return false
		}}}
	}
	return p, nil
}

// find appends what a trusted proxy says of its client, or else what this connection's hello was.
func find(buf []byte, v *key.View, header []byte) []byte {
	if len(header) > 0 {
		if said, ok := v.Request.Head.Only(header); ok && len(said) == Size {
			return append(buf, said...)
		}
	}
	for _, h := range v.Request.Hello {
		if n, is := h.(Name); is {
			return append(buf, n[:]...)
		}
	}
	return buf
}
