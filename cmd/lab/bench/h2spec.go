package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// H2Spec is what h2spec, which tries whether a server keeps to HTTP/2 and HPACK, says of one.
type H2Spec struct {
	Server string
	Cases  int
	Failed []string // names of cases
	Mute   []string // after which the server did not answer another client
}

// H2Spec runs every case of h2spec, strict ones included, on each server, and asks it for a page
// after each. path is h2spec's.
func (h HTTP2Attacks) H2Spec(ctx context.Context, path string) (all []H2Spec, err error) {
	said, err := exec.CommandContext(ctx, path, "--dryrun", "--strict").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("loadgen: h2spec: %s --dryrun: %w: %s", path, err, said)
	}
	cases := h2specCases(string(said))
	if len(cases) == 0 {
		return nil, errors.New("loadgen: h2spec: " + path + " lists no cases: want h2spec 2")
	}
	if err := h.prepare(ctx); err != nil {
		return nil, err
	}
	defer h.stop()
	for _, name := range h.Servers {
		r, err := h.h2spec(ctx, path, name, cases)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (h *HTTP2Attacks) h2spec(ctx context.Context, path, name string,
	cases []h2specCase) (r H2Spec, err error) {
	s, err := h.start(ctx, name, attack{})
	if err != nil {
		return r, err
	}
	defer s.stop()
	r = H2Spec{Server: name, Cases: len(cases)}
	for _, c := range cases {
		out, err := exec.CommandContext(ctx, path, "--tls", "--insecure", "--strict", "--port",
			strconv.Itoa(int(s.at.Port())), c.id).CombinedOutput()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil || !strings.Contains(string(out), "1 tests, 1 passed") {
			r.Failed = append(r.Failed, c.id+": "+c.name)
			h.Say(fmt.Sprintf("%s: %s: %s", name, c.id, c.name))
		}
		calm := newCalmClient(s.at, h.Patience)
		if err := errors.Join(calm.once(calm.client), s.proc.Crashed()); err != nil {
			r.Mute = append(r.Mute, fmt.Sprintf("%s: %s: %v", c.id, c.name, err))
		}
		calm.client.CloseIdleConnections()
	}
	return r, nil
}

// An h2specCase is one of h2spec's: such as http2/5.1.1/2, and what it does.
type h2specCase struct{ id, name string }

var (
	h2specSection = regexp.MustCompile(`^ +([\d.]+)\. `)
	h2specName    = regexp.MustCompile(`^ +(\d+): (.*)`)
)

// h2specCases reads h2spec's list of them.
func h2specCases(list string) (cases []h2specCase) {
	part, section := "", ""
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n ")
		if m := h2specName.FindStringSubmatch(line); m != nil {
			cases = append(cases, h2specCase{part + "/" + section + "/" + m[1], m[2]})
		} else if m := h2specSection.FindStringSubmatch(line); m != nil {
			section = m[1]
		} else if line != "" && line[0] != ' ' {
			switch word, _, _ := strings.Cut(line, " "); word {
			case "Generic":
				part = "generic"
			case "HPACK:":
				part = "hpack"
			default:
				part = "http2"
			}
		}
	}
	return cases
}
