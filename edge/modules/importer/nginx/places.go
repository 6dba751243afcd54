package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// In nginx a request is in one server and in one location of it, and a limit holds where no limit
// within takes its place. Rules hold for all that they match, so each leaves out what is another's
// in nginx.

// A place is a location: what it takes.
type place struct {
	kind string // "=", "^~", "~", "~*", or "" for a prefix
	path string
}

var placeKind = regexp.MustCompile(`(?s)^(~\*|~|\^~|=)?(.*)$`)

// placeOf returns no place of a location that only nginx itself goes to.
func placeOf(d directive) (p place, is bool) {
	if d.name() != "location" || !d.block || len(d.words) < 2 {
		return p, false
	}
	if p.path = d.last(); len(d.words) > 2 {
		p.kind = d.words[1]
	} else {
		parts := placeKind.FindStringSubmatch(p.path)
		p = place{parts[1], parts[2]}
	}
	return p, !strings.HasPrefix(p.path, "@")
}

func (p place) isPrefix() bool { return p.kind == "" || p.kind == "^~" }
func (p place) isRegexp() bool { return strings.HasPrefix(p.kind, "~") }

// before reports whether nginx prefers other to p for some path that both take; earlier says that
// it stands before p.
func (p place) before(other place, earlier bool) bool {
	switch {
	case p.kind == "=":
		return false
	case p.isPrefix() && other.isRegexp():
		return p.kind != "^~"
	case p.isPrefix():
		return strings.HasPrefix(other.path, p.path) && (other.kind == "=" || other.path != p.path)
	case other.isRegexp():
		return earlier
	}
	return other.kind == "=" || other.kind == "^~"
}

func (p place) String() string { return strings.TrimSpace(p.kind + " " + p.path) }

// leave has a rule leave out locations, which nginx takes from the one that its limit is in.
func (s *scope) leave(c *limit.Condition) {
	for _, p := range s.taken {
		if path := p.pattern(); p.isRegexp() && !limit.IsExpression(path[1:]) {
			c.Unknown = append(c.Unknown, "nginx leaves out "+p.String())
		} else {
			c.Put(true, "path", path, "")
		}
	}
}

// pattern is what a place takes, as the path of a rule.
func (p place) pattern() string {
	switch {
	case p.kind == "~*":
		return "~(?i)" + p.path
	case p.kind == "~":
		return "~" + p.path
	case p.isPrefix():
		return p.path + "*"
	}
	return p.path
}

// takenBeside are the locations beside one of a list that nginx prefers for some of its paths.
func takenBeside(i int, list []directive) (taken []place) {
	p, is := placeOf(list[i])
	for j, o := range list {
		if other, isOne := placeOf(o); is && isOne && j != i && p.before(other, j < i) {
			taken = append(taken, other)
		}
	}
	return taken
}

// without is the scope of a limit, without the servers and locations within it that have limits of
// their own, which take its place there.
func (f *file) without(s scope, of directive, within []directive) scope {
	s.cond = s.cond.Clone()
	s.taken = slices.Concat(s.taken, own(of, within))
	var hosts []string
	for _, d := range within {
		whole := of.isIn(d)
		if d.name() != "server" || !d.block || !whole && len(own(of, d.within)) == 0 {
			continue
		}
		these, bad := hostsOf(d.within)
		if len(these) == 0 || len(bad) > 0 {
			these = nil
			s.cond.Unknown = append(s.cond.Unknown,
				fmt.Sprintf("that the server of %v, which names no host, has others", d.at))
		} else if !whole {
			f.Note(d.at, "%s does not hold for %s here: locations of it have others, and nginx "+
				"has it hold for the rest", of.String(), strings.Join(these, ", "))
		}
		hosts = append(hosts, these...)
	}
	s.notHosts(hosts)
	return s
}

// notHosts leaves out hosts.
func (s *scope) notHosts(hosts []string) {
	if len(hosts) > 0 {
		s.cond.Put(true, "hosts", limit.Unique(hosts), "server_name")
	}
}

// isIn reports whether a block has another directive of the name.
func (d *directive) isIn(block directive) bool {
	return slices.ContainsFunc(block.within, func(o directive) bool { return o.name() == d.name() })
}

// own are the outermost locations that have a limit of their own.
func own(of directive, list []directive) (places []place) {
	for _, d := range list {
		switch p, is := placeOf(d); {
		case is && of.isIn(d):
			places = append(places, p)
		case is:
			places = append(places, own(of, d.within)...)
		}
	}
	return places
}

// hostsOf are the hosts of what stands in a server, and those that a rule cannot name; neither: it
// is for all that no other has.
func hostsOf(server []directive) (hosts, bad []string) {
	for _, d := range server {
		if d.name() != "server_name" {
			continue
		}
		for _, h := range d.words[1:] {
			switch {
			case h == "_" || h == "" || h == "localhost":
				return nil, nil
			case strings.HasPrefix(h, "~") || strings.HasSuffix(h, ".*") || strings.Contains(h, "$"):
				bad = append(bad, h)
			case strings.HasPrefix(h, "."):
				hosts = append(hosts, h[1:], "*"+h)
			default:
				hosts = append(hosts, h)
			}
		}
	}
	return limit.Unique(hosts), bad
}

var portOf = regexp.MustCompile(`(?:^|:)(\d+)$`)

// ports are where a server listens.
func ports(server directive) (all []string) {
	for _, d := range server.within {
		if d.name() != "listen" || len(d.words) < 2 {
			continue
		}
		port := "80"
		if m := portOf.FindStringSubmatch(d.words[1]); m != nil {
			port = m[1]
		}
		all = append(all, port)
	}
	if all == nil {
		all = []string{"80"}
	}
	return all
}

// others leaves out of a server that is for all hosts those that other servers have at its ports.
func (s *scope) others(i int, list []directive) {
	if hosts, bad := hostsOf(list[i].within); len(hosts) > 0 || len(bad) > 0 {
		return
	}
	here := ports(list[i])
	isHere := func(port string) bool { return slices.Contains(here, port) }
	for j, o := range list {
		if o.name() == "server" && o.block && j != i && slices.ContainsFunc(ports(o), isHere) {
			if hosts, bad := hostsOf(o.within); len(bad) == 0 {
				s.notHosts(hosts)
			}
		}
	}
}
