package importer

import (
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
	zones map[string]*zone     // "req NAME" and "conn NAME"
	uses  map[*zone][]Position // the limits that are rules

	// Directives about limits that are not known: any of the limits may mean something else by them
	unknown []string
}

// scope is where a limit stands: what encloses it says which requests it is about.
type scope struct {
	cond               condition
	status, connStatus string
	dryRun, connDryRun bool
	block              directive
	taken              []directive // locations that nginx prefers for some of its paths
	where              string
}

func nginx(r *Result, text string) error {
	list, err := r.nginxFiles(text)
	if err != nil {
		return err
	}
	f := &nginxFile{r, make(map[string]directive), make(map[string]*zone),
		make(map[*zone][]Position), nil}
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
	for i := range f.Rules {
		x := &f.Rules[i]
		uses := f.uses[x.zone]
		if len(uses) < 2 {
			continue
		}
		others := slices.DeleteFunc(unique(uses),
			func(at Position) bool { return at == x.Position })
		text := "other places that include it"
		if len(others) > 0 {
			text = fmt.Sprint(others[0])
			for _, at := range others[1:] {
				text += ", " + at.String()
			}
		}
		x.Notes = append(x.Notes,
			"nginx counts this together with "+text+", in one zone; here each rule counts for itself")
	}
	return nil
}

// otherThanHTTP notes that a block, and each limit in it, is about something else.
func (f *nginxFile) otherThanHTTP(d, block directive) {
	if saysLimit(d) || d.String() == block.String() {
		f.note(d.at, "left out: %s: it is not about HTTP", d.String())
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
		switch {
		case isZone && (kind == "limit_req" || kind == "limit_conn") && !used[kind+" "+zoneName(d)]:
			f.mention(d.at, d.String())
			f.note(d.at, "left out: %s: no %s of this file uses it", d.String(), kind)
		case strings.Contains(d.program, "resty.limit"):
			f.mention(d.at, d.String())
			f.note(d.at, "left out: %s: it is a program that limits requests, and is not read",
				d.String())
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
			f.maps[d.words[len(d.words)-1]] = d
		case d.block:
			f.collect(d.within)
		}
	}
	for _, d := range list {
		switch d.name() {
		case "limit_req_zone", "limit_conn_zone":
			if len(d.words) < 3 {
				f.note(d.at, "left out: %s: it has no key or no zone", d.String())
				continue
			}
			z, name := f.key(d, d.words[1]), zoneName(d)
			for _, w := range d.words[2:] {
				if v, is := strings.CutPrefix(w, "rate="); is {
					z.count, z.per, _ = strings.Cut(v, "r/")
				}
				if name, _, _ := strings.Cut(w, "="); !slices.Contains([]string{"zone", "rate",
					"sync"}, name) {
					z.cond.unknown = append(z.cond.unknown, w+" in "+d.String())
				}
			}
			kind := "req "
			if d.name() == "limit_conn_zone" {
				kind = "conn "
			}
			f.zones[kind+name] = z
		case "set_real_ip_from":
			good, bad := prefixes(d.words[1:])
			f.trust = append(f.trust, good...)
			if f.header == "" {
				f.header = "X-Real-IP" // which is nginx's default
			}
			for _, b := range bad {
				f.note(d.at, "set_real_ip_from %s: only addresses and prefixes can be trusted", b)
			}
		case "real_ip_header":
			if h := d.words[len(d.words)-1]; h == "proxy_protocol" {
				f.note(d.at, "real_ip_header proxy_protocol: say source.proxy_protocol: true")
				f.header = "X-Forwarded-For"
			} else if address.IsSourceHeader(h) {
				f.header = h
			} else {
				unread = true
				f.note(d.at,
					"left out, with what set_real_ip_from says: %s: Sluice reads the address of a client from X-Forwarded-For, Forwarded, or a header that holds one address", d.String())
			}
		case "limit_rate", "limit_rate_after":
			f.note(d.at, "%s has no equal: answers have no limit of bytes a second", d.String())
		case "limit_req", "limit_conn", "limit_req_status", "limit_conn_status",
			"limit_req_dry_run", "limit_conn_dry_run",
			"limit_req_log_level", "limit_conn_log_level", "limit_except":
		case "allow", "deny", "auth_request":
			f.note(d.at,
				"%s is not a limit, and is left out; deny and allow lists of Sluice hold for all requests", d.String())
		default:
			if strings.HasPrefix(d.name(), "limit_") { // of a module, or of a later nginx
				f.note(d.at, "%s is not known, so all limits of the file become shadows",
					d.String())
				f.unknown = append(f.unknown, d.String())
			}
		}
	}
	if len(f.trust) == 0 || unread {
		f.trust, f.header = nil, ""
	}
}

// walk makes rules of the limits of a block and of those within.
func (f *nginxFile) walk(list []directive, s scope) {
	var own []directive
	for _, d := range list {
		last := d.words[len(d.words)-1]
		switch d.name() {
		case "limit_req_status":
			s.status = last
		case "limit_conn_status":
			s.connStatus = last
		case "limit_req_dry_run":
			s.dryRun = last == "on"
		case "limit_conn_dry_run":
			s.connDryRun = last == "on"
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
		inner.cond = condition{slices.Clone(s.cond.match), slices.Clone(s.cond.not),
			slices.Clone(s.cond.unknown)}
		inner.block = d
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
	p, is := placeOf(d)
	s.cond.match = slices.DeleteFunc(s.cond.match, func(i yaml.MapItem) bool { return i.Key == "path" }) // of the location around it
	if !is {
		s.cond.unknown = append(s.cond.unknown, d.String())
		return
	}
	if p.isPrefix() && p.path == "/" {
		return
	}
	path := p.pattern()
	s.where = strings.Trim(s.where+path, "*")
	s.cond.put(&s.cond.match, "path", path, d.String())
}

// limit makes a rule of a limit_req or a limit_conn.
func (f *nginxFile) limit(d directive, s scope) {
	x := Rule{Position: d.at, From: d.String()}
	kind, zoneName, burst, delay, nodelay := "req ", "", 0, -1, false
	if d.name() == "limit_conn" {
		kind = "conn "
		if len(d.words) == 3 {
			zoneName = d.words[1]
		}
	}
	for _, w := range d.words[1:] {
		key, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		if (key == "burst" || key == "delay") && err != nil {
			f.note(d.at, "left out: %s: %s is no number", d.String(), v)
			return
		}
		switch {
		case w == "nodelay":
			nodelay = true
		case key == "zone":
			zoneName = v
		case key == "burst":
			burst = n
		case key == "delay":
			delay = n
		case kind == "req ":
			s.cond.unknown = append(slices.Clone(s.cond.unknown), w)
		}
	}
	z := f.zones[kind+zoneName]
	if z == nil && d.words[len(d.words)-1] == "off" { // of Tengine
		f.note(d.at, "%s has no rule: it ends the limits around it here", d.String())
		return
	}
	if z == nil {
		f.note(d.at, "left out: %s: its zone %s is not in this file", d.String(), zoneName)
		return
	}
	x.Notes = slices.Clone(z.notes)
	cond := condition{slices.Clone(s.cond.match), slices.Clone(s.cond.not),
		slices.Concat(s.cond.unknown, z.cond.unknown, f.unknown)}
	for _, item := range z.cond.match {
		cond.put(&cond.match, item.Key.(string), item.Value, d.String())
	}
	for _, item := range z.cond.not {
		cond.put(&cond.not, item.Key.(string), item.Value, d.String())
	}
	f.leave(&cond, s)
	x.Name = f.name(zoneName + "-" + s.where)
	x.fields = yaml.MapSlice{{Key: "name", Value: x.Name}}
	set := func(name string, v any) {
		x.fields = append(x.fields, yaml.MapItem{Key: name,
			Value: v})
	}
	if m := cond.whole(); len(m) > 0 {
		set("match", m)
	}
	if key := z.within(&cond); !slices.Equal(key, []string{"source"}) {
		set("key", key)
	}
	status, shadow := s.status, s.dryRun
	if kind == "conn " {
		n, err := strconv.Atoi(d.words[len(d.words)-1])
		if err != nil {
			f.note(d.at, "left out: %s: want a zone and a number", d.String())
			return
		}
		set("concurrency", n)
		status, shadow = s.connStatus, s.connDryRun
	} else {
		rate, err := strconv.Atoi(z.count)
		window := map[string]string{"s": "1s", "m": "1m"}[z.per]
		if err != nil || window == "" {
			f.note(d.at, "left out: %s: the rate %sr/%s of its zone is not understood", d.String(),
				z.count, z.per)
			return
		}
		set("limit", rate)
		set("window", window)
		set("mitigation_timeout", "0s")
		period := map[string]int{"s": 1, "m": 60}[z.per]
		waits := !nodelay && delay < 0 && rate > 0
		switch {
		case burst == 0:
			set("algorithm", "token_bucket")
			set("burst", 1)
			x.Notes = append(x.Notes,
				"without a burst nginx refuses the second of two requests at once, and so does this; most clients send several: consider a higher burst")
		case nodelay:
			set("algorithm", "token_bucket")
			set("burst", burst+1)
		case delay >= 0:
			set("algorithm", "token_bucket")
			set("burst", burst+1)
			x.Notes = append(x.Notes,
				fmt.Sprintf("delay=%d: nginx delays those of the burst that come after the first %d; here all %d come through at once", delay, delay, burst+1))
		case waits && burst*period > 30*rate:
			set("algorithm", "token_bucket")
			set("burst", burst+1)
			x.Notes = append(x.Notes,
				fmt.Sprintf("nginx delays the last of %d for %d s, and the longest delay here is 30s: so all %d come through at once", burst, burst*period/rate, burst+1))
		default:
			set("algorithm", "leaky_bucket")
			set("burst", burst)
		}
	}
	if n, err := strconv.Atoi(status); n == 444 {
		set("action", "close")
	} else if err == nil && n != 429 {
		set("response", yaml.MapSlice{{Key: "status", Value: n}})
	}
	if len(cond.unknown) > 0 {
		x.Notes = append(x.Notes,
			noEqual(cond.unknown))
		shadow = true
	}
	if shadow {
		set("mode", "shadow")
	}
	x.zone = z
	if f.add(x) {
		f.uses[z] = append(f.uses[z], x.Position)
	}
}
