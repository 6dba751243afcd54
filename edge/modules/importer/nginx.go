package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	elseSource bool  // who has nothing of the key counts by address
	byServer   bool  // $server_name is in the key
	rules      []int // that count in it
}

// nginxFile is what is known of one.
type nginxFile struct {
	*Result
	maps   map[string]directive // map and geo, by the variable that they set
	zones  map[string]*zone     // by "limit_req NAME" or "limit_conn NAME"
	used   map[string]bool      // zones that a limit names, in the same way
	unread bool                 // a header names clients that Sluice could not read
	// Directives about limits that are not known: any of the limits may mean something else by them
	unknown []string
}

// scope is where a limit stands: what encloses it says which requests it is about.
type scope struct {
	cond  condition
	set   map[string]string // settings, as limit_req_status
	taken []place           // locations that nginx prefers for some of its paths
	where string
}

func nginx(r *Result, text string) error {
	list, err := r.nginxFiles(text)
	if err != nil {
		return err
	}
	f := &nginxFile{Result: r, maps: make(map[string]directive), zones: make(map[string]*zone),
		used: make(map[string]bool)}
	list = slices.DeleteFunc(list, func(d directive) bool {
		other := d.block && (d.name() == "stream" || d.name() == "mail")
		if other {
			f.leftOut(d.mention(), "it is not about HTTP")
			each(d.within, true, func(d directive) {
				if saysLimit(d) {
					f.passOver(d.mention(), "it is not about HTTP")
				}
			})
		}
		return other
	})
	each(list, true, func(d directive) {
		if f.mentionOf(d); d.isMap() {
			f.maps[d.last()] = d
		}
	})
	each(list, false, f.collect)
	if len(f.trust) == 0 || f.unread {
		f.trust, f.header = nil, ""
	}
	f.walk(list, scope{set: make(map[string]string)})
	for _, z := range f.zones {
		f.noteShared(z.rules)
	}
	return nil
}

// noteShared notes of the rules of a zone that nginx counts for all of them at once.
func (f *nginxFile) noteShared(rules []int) {
	for _, i := range rules {
		var others []string
		for _, j := range rules {
			if at := f.Rules[j].Position; at != f.Rules[i].Position {
				others = append(others, at.String())
			}
		}
		if len(rules) > 1 {
			f.Rules[i].noteThat("nginx counts this together with %s, in one zone; here each rule "+
				"counts for itself", cmp.Or(strings.Join(unique(others), ", "),
				"other places that include it"))
		}
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

// mentionOf has a directive accounted for that is a limit, and knows what any names: a zone that none
// does is left out.
func (f *nginxFile) mentionOf(d directive) {
	if saysLimit(d) {
		f.mention(d.mention())
	}
	for _, w := range d.words[min(1, len(d.words)):] {
		f.used[d.name()+" "+strings.TrimPrefix(w, "zone=")] = true
	}
}

// each calls do with the directives of a list and of the blocks in it; words in maps, which look like
// directives, are among them if it says so.
func each(list []directive, inMaps bool, do func(directive)) {
	for _, d := range list {
		if do(d); inMaps || !d.isMap() {
			each(d.within, inMaps, do)
		}
	}
}

// noEqual are directives about requests that are no limits of a rule, and why they are left out.
var noEqual = map[string]string{
	"limit_rate":       "has no equal: answers have no limit of bytes a second",
	"limit_rate_after": "has no equal: answers have no limit of bytes a second",
	"allow":            listsHold,
	"deny":             listsHold,
	"auth_request":     listsHold,
}

const listsHold = "is not a limit, and is left out; deny and allow lists of Sluice hold for all requests"

// collect reads what is said once for the whole file.
func (f *nginxFile) collect(d directive) {
	switch name := d.name(); {
	case name == "limit_req_zone" || name == "limit_conn_zone":
		f.zone(d, strings.TrimSuffix(name, "_zone"))
	case strings.Contains(d.program, "resty.limit"):
		f.passOver(d.mention(), "it is a program that limits requests, and is not read")
	case d.program != "":
		f.note(d.at, "%s is a program, and is not read", d.String())
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
	case name == "real_ip_header":
		if f.header = d.last(); !address.IsSourceHeader(f.header) {
			f.unread = true
			f.note(d.at, "left out, with what set_real_ip_from says: %s: Sluice reads the address "+
				"of a client from X-Forwarded-For, Forwarded, or a header that holds one address",
				d.String())
		}
	case noEqual[name] != "":
		f.note(d.at, "%s %s", d.String(), noEqual[name])
	case name != "limit_req" && name != "limit_conn" && saysLimit(d):
		// Of a module, or of a later nginx
		f.note(d.at, "%s is not known, so all limits of the file become shadows", d.String())
		f.unknown = append(f.unknown, d.String())
	}
}

// zone reads a zone: who is counted in it, and how many requests.
func (f *nginxFile) zone(d directive, kind string) {
	if len(d.words) < 3 || strings.HasPrefix(d.words[1], "zone=") {
		f.passOver(d.mention(), "it has no key or no zone")
		return
	}
	z, name := f.key(d.words[1]), ""
	for _, w := range d.words[2:] {
		switch option, v, _ := strings.Cut(w, "="); option {
		case "rate":
			z.count, z.per, _ = strings.Cut(v, "r/")
		case "zone":
			name, _, _ = strings.Cut(v, ":")
		case "sync":
		default:
			z.cond.unknown = append(z.cond.unknown, w+" in "+d.String())
		}
	}
	if f.zones[kind+" "+name] = z; !f.used[kind+" "+name] {
		f.passOver(d.mention(), "no %s of this file uses it", kind)
	}
}

// walk makes rules of the limits of a block and of those within.
func (f *nginxFile) walk(list []directive, s scope) {
	var own []directive
	s.set = maps.Clone(s.set)
	hosts, bad := hostsOf(list)
	for _, h := range bad {
		s.cond.unknown = append(s.cond.unknown, "server_name "+h)
	}
	if len(hosts) > 0 {
		s.cond.put(false, "hosts", hosts, "server_name "+strings.Join(hosts, " "))
		s.where = hosts[0]
	}
	for _, d := range list {
		switch name := d.name(); {
		case slices.Contains(settings, name):
			s.set[name] = d.last()
		case name != "limit_req" && name != "limit_conn":
		case len(d.words) == 2 && d.last() == "off": // of Tengine
			f.note(d.at, "%s has no rule: it ends the limits around it here", d.String())
		default:
			own = append(own, d)
		}
	}
	for _, d := range own {
		if x, z, err := f.limit(d, f.without(s, d, list)); f.add(x, err) {
			z.rules = append(z.rules, len(f.Rules)-1)
		}
	}
	for i, d := range list {
		if !d.block || d.isMap() {
			continue
		}
		inner := s
		inner.cond = s.cond.clone()
		switch d.name() {
		case "location":
			inner.location(d)
			inner.taken = takenBeside(i, list)
		case "server":
			inner.cond.others(i, list)
		case "if", "limit_except":
			inner.cond.unknown = append(inner.cond.unknown, d.String())
		}
		f.walk(d.within, inner)
	}
}

// location says which paths are those of one.
func (s *scope) location(d directive) {
	s.cond.match = slices.DeleteFunc(s.cond.match,
		func(i yaml.MapItem) bool { return i.Key == "path" }) // of the location around it
	switch p, is := placeOf(d); {
	case !is:
		s.cond.unknown = append(s.cond.unknown, d.String())
	case p.isPrefix() && p.path == "/":
	default:
		s.where = strings.Trim(s.where+p.pattern(), "*")
		s.cond.put(false, "path", p.pattern(), d.String())
	}
}

// options are what a limit_req or a limit_conn says, as burst to 20, and what is not known of it.
func options(d directive) (said map[string]string, unknown []string) {
	if d.name() == "limit_conn" && len(d.words) == 3 {
		return map[string]string{"zone": d.words[1], "most": d.words[2]}, nil
	}
	said = make(map[string]string)
	for _, w := range d.words[1:] {
		key, v, _ := strings.Cut(w, "=")
		if said[key] = v; w != "nodelay" && key != "zone" && key != "burst" && key != "delay" {
			unknown = append(unknown, w)
		}
	}
	return said, unknown
}

// limit is the rule of a limit_req or a limit_conn.
func (f *nginxFile) limit(d directive, s scope) (x Rule, z *zone, err error) {
	x = Rule{mention: d.mention(), shadow: s.set[d.name()+"_dry_run"] == "on"}
	said, unknown := options(d)
	name := said["zone"]
	if z = f.zones[d.name()+" "+name]; z == nil {
		return x, z, fmt.Errorf("its zone %s is not in this file", name)
	}
	x.Name, x.Notes, x.cond = name+"-"+s.where, slices.Clone(z.notes), s.cond.clone()
	x.cond.unknown = slices.Concat(x.cond.unknown, unknown, z.cond.unknown, f.unknown)
	x.cond.and(z.cond, d.String())
	x.cond.leave(s.taken)
	if key := z.within(&x.cond); !slices.Equal(key, []string{"source"}) {
		x.key = key
	}
	x.status, _ = strconv.Atoi(cmp.Or(s.set[d.name()+"_status"], "503"))
	if x.closes = x.status == 444; d.name() == "limit_req" {
		return x, z, z.rate(&x, said)
	}
	if x.most, err = strconv.Atoi(said["most"]); err != nil {
		err = errors.New("want a zone and a number")
	}
	return x, z, err
}

// rate gives a rule the rate of a zone, and the burst of a limit.
func (z *zone) rate(x *Rule, said map[string]string) (err error) {
	x.most, err = strconv.Atoi(z.count)
	seconds := map[string]int{"s": 1, "m": 60}[z.per]
	if err != nil || seconds == 0 {
		return fmt.Errorf("the rate %sr/%s of its zone is not understood", z.count, z.per)
	}
	wait, delays := said["delay"]
	if _, err := strconv.Atoi(cmp.Or(wait, "0")); err != nil {
		return fmt.Errorf("%s is no number", wait)
	}
	burst, err := strconv.Atoi(cmp.Or(said["burst"], "0"))
	if err != nil {
		return fmt.Errorf("%s is no number", said["burst"])
	}
	_, nodelay := said["nodelay"]
	x.window, x.bucket, x.burst = "1"+z.per, "token_bucket", burst+1
	switch {
	case burst == 0:
		x.noteThat("without a burst nginx refuses the second of two requests at once, and so " +
			"does this; most clients send several: consider a higher burst")
	case nodelay:
	case delays:
		x.noteThat("delay=%s: nginx delays those of the burst that come after the first %s; "+
			"here all %d come through at once", wait, wait, x.burst)
	case x.most > 0 && burst*seconds > 30*x.most:
		x.noteThat("nginx delays the last of %d for %d s, and the longest delay here is 30s: so "+
			"all %d come through at once", burst, burst*seconds/x.most, x.burst)
	default:
		x.bucket, x.burst = "leaky_bucket", burst
	}
	return nil
}
