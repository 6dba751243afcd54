package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"sluice/edge/address"
)

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	key        []string
	count, per string // of a rate
	cond       condition
	notes      []string
	elseSource bool // who has nothing of the key counts by address
	byServer   bool // $server_name is in the key
}

// nginxFile is what is known of one.
type nginxFile struct {
	*Result
	maps  map[string]directive // map and geo, by the variable that they set
	zones map[string]*zone     // by "limit_req NAME" or "limit_conn NAME"
	// Directives about limits that are not known: any of the limits may mean something else by them
	unknown []string
}

// scope is where a limit stands: what encloses it says which requests it is about.
type scope struct {
	cond               condition
	status, connStatus string
	dryRun, connDryRun bool
	taken              []directive // locations that nginx prefers for some of its paths
	where              string
}

func nginx(r *Result, text string) error {
	list, err := r.nginxFiles(text)
	if err != nil {
		return err
	}
	f := &nginxFile{Result: r, maps: make(map[string]directive), zones: make(map[string]*zone)}
	list = slices.DeleteFunc(list, func(d directive) bool {
		other := d.block && (d.name() == "stream" || d.name() == "mail")
		if other {
			f.otherThanHTTP(d, d)
		}
		return other
	})
	f.mentionsOf(list)
	f.collect(list)
	f.walk(list, scope{status: "503", connStatus: "503"})
	f.noteShared()
	return nil
}

// noteShared notes of the rules of a zone that nginx counts for all of them at once.
func (f *nginxFile) noteShared() {
	uses := make(map[*zone][]Position)
	for _, x := range f.Rules {
		uses[x.zone] = append(uses[x.zone], x.Position)
	}
	for i := range f.Rules {
		x := &f.Rules[i]
		if len(uses[x.zone]) < 2 {
			continue
		}
		var others []string
		for _, at := range unique(uses[x.zone]) {
			if at != x.Position {
				others = append(others, at.String())
			}
		}
		x.Notes = append(x.Notes, "nginx counts this together with "+
			cmp.Or(strings.Join(others, ", "), "other places that include it")+
			", in one zone; here each rule counts for itself")
	}
}

// otherThanHTTP notes that a block, and each limit in it, is about something else.
func (f *nginxFile) otherThanHTTP(d, block directive) {
	if saysLimit(d) || d.String() == block.String() {
		f.leftOut(mention{d.at, d.String()}, "it is not about HTTP")
	}
	if saysLimit(d) {
		f.mention(d.at, d.String())
	}
	for _, inner := range d.within {
		f.otherThanHTTP(inner, block)
	}
}

// settings of limits are no limits by themselves; nor are zones, which limits name.
var settings = []string{"limit_req_status", "limit_conn_status", "limit_req_dry_run",
	"limit_conn_dry_run", "limit_req_log_level", "limit_conn_log_level", "limit_except",
	"limit_rate_after", "limit_req_zone", "limit_conn_zone"}

// saysLimit reports whether a directive is a limit, or one of a module that may be about limits.
func saysLimit(d directive) bool {
	return strings.HasPrefix(d.name(), "limit_") && !slices.Contains(settings, d.name())
}

// mentionsOf has every limit accounted for: those of directives, zones that no limit uses, and
// programs that count requests.
func (f *nginxFile) mentionsOf(list []directive) {
	used := make(map[string]bool)
	each(list, func(d directive) {
		if saysLimit(d) {
			f.mention(d.at, d.String())
		}
		for _, w := range d.words[min(1, len(d.words)):] {
			used[d.name()+" "+strings.TrimPrefix(w, "zone=")] = true
		}
	})
	each(list, func(d directive) {
		kind, isZone := strings.CutSuffix(d.name(), "_zone")
		m := mention{d.at, d.String()}
		switch {
		case isZone && (kind == "limit_req" || kind == "limit_conn") && !used[kind+" "+zoneName(d)]:
			f.mention(d.at, d.String())
			f.leftOut(m, "no %s of this file uses it", kind)
		case strings.Contains(d.program, "resty.limit"):
			f.mention(d.at, d.String())
			f.leftOut(m, "it is a program that limits requests, and is not read")
		case d.program != "":
			f.note(d.at, "%s is a program, and is not read", d.String())
		}
	})
}

func each(list []directive, do func(directive)) {
	for _, d := range list {
		do(d)
		each(d.within, do)
	}
}

// zoneName is the name that a zone is given.
func zoneName(d directive) (name string) {
	for _, w := range d.words {
		if v, is := strings.CutPrefix(w, "zone="); is {
			name, _, _ = strings.Cut(v, ":")
		}
	}
	return name
}

// collect reads what is said once for the whole file.
func (f *nginxFile) collect(list []directive) {
	unread := false // the header names no client that Sluice could read
	for _, d := range list {
		switch {
		case (d.name() == "map" || d.name() == "geo") && d.block:
			f.maps[d.last()] = d
		case d.block:
			f.collect(d.within)
		}
	}
	for _, d := range list {
		switch name := d.name(); {
		case name == "limit_req_zone" || name == "limit_conn_zone":
			f.zone(d)
		case name == "set_real_ip_from":
			good, bad := prefixes(d.words[1:])
			f.trust = append(f.trust, good...)
			f.header = cmp.Or(f.header, "X-Real-IP") // which is nginx's default
			for _, b := range bad {
				f.note(d.at, "set_real_ip_from %s: only addresses and prefixes can be trusted", b)
			}
		case name == "real_ip_header" && d.last() == "proxy_protocol":
			f.note(d.at, "real_ip_header proxy_protocol: say source.proxy_protocol: true")
			f.header = "X-Forwarded-For"
		case name == "real_ip_header" && address.IsSourceHeader(d.last()):
			f.header = d.last()
		case name == "real_ip_header":
			unread = true
			f.note(d.at, "left out, with what set_real_ip_from says: %s: Sluice reads the address "+
				"of a client from X-Forwarded-For, Forwarded, or a header that holds one address",
				d.String())
		case name == "limit_rate" || name == "limit_rate_after":
			f.note(d.at, "%s has no equal: answers have no limit of bytes a second", d.String())
		case name == "allow" || name == "deny" || name == "auth_request":
			f.note(d.at, "%s is not a limit, and is left out; deny and allow lists of Sluice hold "+
				"for all requests", d.String())
		case name != "limit_req" && name != "limit_conn" && saysLimit(d):
			// Of a module, or of a later nginx
			f.note(d.at, "%s is not known, so all limits of the file become shadows", d.String())
			f.unknown = append(f.unknown, d.String())
		}
	}
	if len(f.trust) == 0 || unread {
		f.trust, f.header = nil, ""
	}
}

// zone reads a zone: who is counted in it, and how many requests.
func (f *nginxFile) zone(d directive) {
	if len(d.words) < 3 {
		f.leftOut(mention{d.at, d.String()}, "it has no key or no zone")
		return
	}
	z := f.key(d.words[1])
	for _, w := range d.words[2:] {
		switch name, v, _ := strings.Cut(w, "="); name {
		case "rate":
			z.count, z.per, _ = strings.Cut(v, "r/")
		case "zone", "sync":
		default:
			z.cond.unknown = append(z.cond.unknown, w+" in "+d.String())
		}
	}
	f.zones[strings.TrimSuffix(d.name(), "_zone")+" "+zoneName(d)] = z
}

// walk makes rules of the limits of a block and of those within.
func (f *nginxFile) walk(list []directive, s scope) {
	var own []directive
	for _, d := range list {
		switch d.name() {
		case "limit_req_status":
			s.status = d.last()
		case "limit_conn_status":
			s.connStatus = d.last()
		case "limit_req_dry_run":
			s.dryRun = d.last() == "on"
		case "limit_conn_dry_run":
			s.connDryRun = d.last() == "on"
		case "server_name":
			f.hosts(&s, d)
		case "limit_req", "limit_conn":
			own = append(own, d)
		}
	}
	for _, d := range own {
		f.limit(d, f.without(s, d, list))
	}
	for i, d := range list {
		if !d.block || d.name() == "map" || d.name() == "geo" {
			continue
		}
		inner := s
		inner.cond = s.cond.clone()
		switch d.name() {
		case "location":
			f.location(&inner, d)
			inner.taken = takenBeside(i, list)
		case "server":
			f.others(&inner.cond, i, list)
		case "if", "limit_except":
			inner.cond.unknown = append(inner.cond.unknown, d.String())
		}
		f.walk(d.within, inner)
	}
}

func (f *nginxFile) hosts(s *scope, d directive) {
	hosts, bad := hostList(d)
	for _, h := range bad {
		s.cond.unknown = append(s.cond.unknown, "server_name "+h)
	}
	if len(hosts) > 0 {
		s.cond.put(&s.cond.match, "hosts", hosts, d.String())
		s.where = hosts[0]
	}
}

func (f *nginxFile) location(s *scope, d directive) {
	s.cond.match = slices.DeleteFunc(s.cond.match,
		func(i yaml.MapItem) bool { return i.Key == "path" }) // of the location around it
	switch p, is := placeOf(d); {
	case !is:
		s.cond.unknown = append(s.cond.unknown, d.String())
	case p.isPrefix() && p.path == "/":
	default:
		s.where = strings.Trim(s.where+p.pattern(), "*")
		s.cond.put(&s.cond.match, "path", p.pattern(), d.String())
	}
}

// A limit is what a limit_req or a limit_conn says.
type limit struct {
	zone         string
	burst, delay int // delay -1: none is said
	nodelay      bool
	unknown      []string
}

func readLimit(d directive) (l limit, err error) {
	l.delay = -1
	if d.name() == "limit_conn" {
		if len(d.words) == 3 {
			l.zone = d.words[1]
		}
		return l, nil
	}
	for _, w := range d.words[1:] {
		key, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		switch {
		case (key == "burst" || key == "delay") && err != nil:
			return l, fmt.Errorf("%s is no number", v)
		case w == "nodelay":
			l.nodelay = true
		case key == "zone":
			l.zone = v
		case key == "burst":
			l.burst = n
		case key == "delay":
			l.delay = n
		default:
			l.unknown = append(l.unknown, w)
		}
	}
	return l, nil
}

// limit makes a rule of a limit_req or a limit_conn.
func (f *nginxFile) limit(d directive, s scope) {
	m := mention{d.at, d.String()}
	l, err := readLimit(d)
	z := f.zones[d.name()+" "+l.zone]
	switch {
	case err != nil:
		f.leftOut(m, "%v", err)
		return
	case z == nil && d.last() == "off": // of Tengine
		f.note(d.at, "%s has no rule: it ends the limits around it here", d.String())
		return
	case z == nil:
		f.leftOut(m, "its zone %s is not in this file", l.zone)
		return
	}
	x := Rule{Position: d.at, From: d.String(), Notes: slices.Clone(z.notes), zone: z}
	cond := s.cond.clone()
	cond.unknown = slices.Concat(cond.unknown, l.unknown, z.cond.unknown, f.unknown)
	cond.and(z.cond, d.String())
	f.leave(&cond, s)
	f.begin(&x, l.zone+"-"+s.where, cond.whole())
	if key := z.within(&cond); !slices.Equal(key, []string{"source"}) {
		x.set("key", key)
	}
	status := s.status
	if x.shadow = s.dryRun; d.name() == "limit_conn" {
		status, x.shadow = s.connStatus, s.connDryRun
		n, err := strconv.Atoi(d.last())
		if err != nil {
			f.leftOut(m, "want a zone and a number")
			return
		}
		x.set("concurrency", n)
	} else if !z.rate(&x, l) {
		f.leftOut(m, "the rate %sr/%s of its zone is not understood", z.count, z.per)
		return
	}
	if n, err := strconv.Atoi(status); n == 444 {
		x.set("action", "close")
	} else if err == nil && n != 429 {
		x.set("response", named("status", n))
	}
	f.add(x, cond.unknown)
}

// rate gives a rule the rate of a zone, and the burst of a limit. It reports whether the rate is
// understood.
func (z *zone) rate(x *Rule, l limit) bool {
	rate, err := strconv.Atoi(z.count)
	seconds := map[string]int{"s": 1, "m": 60}[z.per]
	if err != nil || seconds == 0 {
		return false
	}
	x.set("limit", rate)
	x.set("window", "1"+z.per)
	x.set("mitigation_timeout", "0s")
	note := ""
	algorithm, burst := "token_bucket", l.burst+1
	switch {
	case l.burst == 0:
		note = "without a burst nginx refuses the second of two requests at once, and so does " +
			"this; most clients send several: consider a higher burst"
	case l.nodelay:
	case l.delay >= 0:
		note = fmt.Sprintf("delay=%d: nginx delays those of the burst that come after the first "+
			"%d; here all %d come through at once", l.delay, l.delay, burst)
	case rate > 0 && l.burst*seconds > 30*rate:
		note = fmt.Sprintf("nginx delays the last of %d for %d s, and the longest delay here is "+
			"30s: so all %d come through at once", l.burst, l.burst*seconds/rate, burst)
	default:
		algorithm, burst = "leaky_bucket", l.burst
	}
	x.set("algorithm", algorithm)
	x.set("burst", burst)
	if note != "" {
		x.Notes = append(x.Notes, note)
	}
	return true
}
