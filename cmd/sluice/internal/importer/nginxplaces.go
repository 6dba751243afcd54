package importer

import (
	"slices"
	"strconv"
	"strings"
)

// In nginx a request is in one server and in one location of it, and a limit holds where no limit
// within takes its place. Rules hold for all that they match, so each leaves out what is another's
// in nginx.

// A place is a location: what it takes.
type place struct {
	kind string // "=", "^~", "~", "~*", or "" for a prefix
	path string
}

// placeOf returns no place of a location that only nginx itself goes to.
func placeOf(d directive) (p place, is bool) {
	if d.name() != "location" || !d.block || len(d.words) < 2 {
		return p, false
	}
	p.path = d.words[len(d.words)-1]
	switch {
	case len(d.words) > 2:
		p.kind = d.words[1]
	case strings.HasPrefix(p.path, "~*"):
		p = place{"~*", p.path[2:]}
	case strings.HasPrefix(p.path, "~"):
		p = place{"~", p.path[1:]}
	case strings.HasPrefix(p.path, "^~"):
		p = place{"^~", p.path[2:]}
	case strings.HasPrefix(p.path, "="):
		p = place{"=", p.path[1:]}
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

// leave has a rule leave out locations, which nginx takes from the one that its limit is in. A rule
// can leave out one path. Of further ones it may hold as well where they have a limit that is as
// strict; else it is a shadow.
func (f *nginxFile) leave(c *condition, notes *[]string, limit directive, s scope) {
	var loose, strict, few []string
	in, _ := placeOf(s.block)
	path, several := "", false
	put := func(p place) {
		several = several || path != "" || p.isRegexp()
		if path = p.path; p.isPrefix() {
			path += "*"
		}
	}
	for _, d := range s.taken {
		p, _ := placeOf(d)
		if f.asStrict(d, limit) {
			strict = append(strict, p.String())
		} else if p.isRegexp() && in.isPrefix() && len(in.path) > 1 {
			few = append(few, p.String())
		} else if !slices.Contains(loose, p.String()) {
			loose = append(loose, p.String())
			put(p)
		}
	}
	if len(few) > 0 {
		*notes = append(*notes, "nginx leaves out what "+strings.Join(unique(few),
			", ")+" takes; here it holds for that too")
	}
	if len(loose)+len(few) == 0 && len(strict) == 1 {
		p, _ := placeOf(s.taken[0])
		if put(p); !several {
			strict = nil
		}
	}
	switch {
	case len(loose) > 0 && several:
		c.unknown = append(c.unknown, "nginx leaves out "+strings.Join(append(loose, strict...),
			", ")+", and a rule leaves out one path")
		return
	case path != "" && !several:
		c.put(&c.not, "path", path, "")
	}
	if len(strict) > 0 {
		*notes = append(*notes, "nginx leaves out the locations "+strings.Join(unique(strict),
			", ")+", which have limits of their own; here both hold")
	}
}

// asStrict reports whether a location has a limit of the same kind that is as strict.
func (f *nginxFile) asStrict(d, limit directive) bool {
	most := f.rate(limit)
	return most > 0 && slices.ContainsFunc(d.within, func(o directive) bool {
		r := f.rate(o)
		return o.name() == limit.name() && r > 0 && r <= most
	})
}

// rate is that of a limit_req a minute, or the number of a limit_conn; 0: it is not known.
func (f *nginxFile) rate(d directive) int {
	if d.name() == "limit_conn" {
		n, _ := strconv.Atoi(d.words[len(d.words)-1])
		return n
	}
	for _, w := range d.words[1:] {
		if name, is := strings.CutPrefix(w, "zone="); is && f.zones["req "+name] != nil {
			z := f.zones["req "+name]
			n, _ := strconv.Atoi(z.count)
			if z.per == "s" {
				n *= 60
			}
			return n
		}
	}
	return 0
}

// takenBeside are the locations beside one of a list that nginx prefers for some of its paths.
func takenBeside(i int, list []directive) (taken []directive) {
	p, is := placeOf(list[i])
	for j, o := range list {
		if other, isOne := placeOf(o); is && isOne && j != i && p.before(other, j < i) {
			taken = append(taken, o)
		}
	}
	return taken
}

// without is a scope that leaves out the servers and locations within it that have limits of their
// own.
func (f *nginxFile) without(s scope, name string, within []directive) scope {
	s.cond = condition{slices.Clone(s.cond.match), slices.Clone(s.cond.not),
		slices.Clone(s.cond.unknown)}
	s.taken = slices.Concat(s.taken, own(name, within))
	var hosts []string
	for _, d := range within {
		if d.name() == "server" && d.block && slices.ContainsFunc(d.within,
			func(o directive) bool { return o.name() == name }) {
			hosts = append(hosts, hostsOf(d)...)
		}
	}
	if len(hosts) > 0 {
		s.cond.put(&s.cond.not, "hosts", unique(hosts), "server_name")
	}
	return s
}

// own are the outermost locations that have a limit of their own.
func own(name string, list []directive) (places []directive) {
	for _, d := range list {
		_, is := placeOf(d)
		switch {
		case !is:
		case slices.ContainsFunc(d.within, func(o directive) bool { return o.name() == name }):
			places = append(places, d)
		default:
			places = append(places, own(name, d.within)...)
		}
	}
	return places
}

// leftOut reports whether a limit around a scope leaves it out.
func leftOut(o held, s scope) bool {
	if o.outside {
		return s.block.name() == "server" && len(hostsOf(s.block)) > 0
	}
	_, is := placeOf(s.block)
	return is
}

// hostsOf are those of a server; none: it has all others, or some that no list can name.
func hostsOf(d directive) (hosts []string) {
	for _, o := range d.within {
		if o.name() != "server_name" {
			continue
		}
		list, bad := hostList(o)
		if len(bad) > 0 || len(list) == 0 {
			return nil
		}
		hosts = append(hosts, list...)
	}
	return hosts
}

// hostList are the hosts of a server_name, and those that a rule cannot name; neither: it is for
// all that no other has.
func hostList(d directive) (hosts, bad []string) {
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
	return hosts, bad
}

func unique[T comparable](list []T) (all []T) {
	for _, x := range list {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}

// ports are where a server listens.
func ports(d directive) (all []string) {
	for _, o := range d.within {
		if o.name() != "listen" || len(o.words) < 2 {
			continue
		}
		at := o.words[1]
		if i := strings.LastIndexByte(at, ':'); i >= 0 && !strings.HasSuffix(at, "]") {
			at = at[i+1:]
		}
		if _, err := strconv.Atoi(at); err != nil {
			at = "80"
		}
		all = append(all, at)
	}
	if all == nil {
		all = []string{"80"}
	}
	return all
}

// others leaves out of a server that is for all hosts those that other servers have at its ports.
func (f *nginxFile) others(c *condition, i int, list []directive) {
	d := list[i]
	for _, o := range d.within {
		if o.name() == "server_name" {
			if list, bad := hostList(o); len(list) > 0 || len(bad) > 0 {
				return
			}
		}
	}
	here := ports(d)
	var hosts []string
	for j, o := range list {
		if o.name() == "server" && o.block && j != i && slices.ContainsFunc(ports(o),
			func(p string) bool { return slices.Contains(here, p) }) {
			hosts = append(hosts, hostsOf(o)...)
		}
	}
	if len(hosts) > 0 {
		c.put(&c.not, "hosts", unique(hosts), "server_name")
	}
}
