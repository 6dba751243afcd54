// Package nginx reads limit_req and limit_conn: which zone counts whom (key.go), which requests of
// them a location or server has (places.go), and what other files say (files.go).
package nginx

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
	"sluice/edge/modules/importer/limit"
)

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	key        []string
	count, per string // of a rate
	cond       limit.Condition
	notes      []string
	elseSource bool  // who has nothing of the key counts by address
	byServer   bool  // $server_name is in the key
	rules      []int // that count in it
}

// file is what is known of one.
type file struct {
	*limit.Result
	maps   map[string]directive // map and geo, by the variable that they set
	zones  map[string]*zone     // by "limit_req NAME" or "limit_conn NAME"
	used   map[string]bool      // zones that a limit names, in the same way
	unread bool                 // a header names clients that Sluice could not read
	// Directives about limits that are not known: any of the limits may mean something else by them
	unknown []string
}

// scope is where a limit stands: what encloses it says which requests it is about.
type scope struct {
	cond  limit.Condition
	set   map[string]string // settings, as limit_req_status
	taken []place           // locations that nginx prefers for some of its paths
	where string
}

// Read makes rules of the limits of a file of nginx, and of those that it includes.
func Read(r *limit.Result, text string) error {
	list, err := readFiles(r, text)
	if err != nil {
		return err
	}
	f := &file{Result: r, maps: make(map[string]directive), zones: make(map[string]*zone),
		used: make(map[string]bool)}
	list = slices.DeleteFunc(list, func(d directive) bool {
		other := d.block && (d.name() == "stream" || d.name() == "mail")
		if other {
			f.LeftOut(d.mention(), "it is not about HTTP")
			each(d.within, true, func(d directive) {
				if saysLimit(d) {
					f.PassOver(d.mention(), "it is not about HTTP")
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
	if len(f.Trust) == 0 || f.unread {
		f.Trust, f.Header = nil, ""
	}
	f.walk(list, scope{set: make(map[string]string)})
	for _, z := range f.zones {
		f.noteShared(z.rules)
	}
	return nil
}

// noteShared notes of the rules of a zone that nginx counts for all of them at once.
func (f *file) noteShared(rules []int) {
	for _, i := range rules {
		var others []string
		for _, j := range rules {
			if at := f.Rules[j].Position; at != f.Rules[i].Position {
				others = append(others, at.String())
			}
		}
		if len(rules) > 1 {
			f.Rules[i].NoteThat("nginx counts this together with %s, in one zone; here each rule "+
				"counts for itself", cmp.Or(strings.Join(limit.Unique(others), ", "),
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

// mentionOf has a directive accounted for that is a limit, and knows what any names: a zone that
// none does is left out.
func (f *file) mentionOf(d directive) {
	if saysLimit(d) {
		f.Mention(d.mention())
	}
	for _, w := range d.words[min(1, len(d.words)):] {
		f.used[d.name()+" "+strings.TrimPrefix(w, "zone=")] = true
	}
}

// each calls do with the directives of a list and of the blocks in it; words in maps, which look
// like directives, are among them if it says so.
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

const listsHold = "is not a limit, and is left out; deny and allow lists of Sluice hold for all " +
	"requests"

// collect reads what is said once for the whole file.
func (f *file) collect(d directive) {
	switch name := d.name(); {
	case name == "limit_req_zone" || name == "limit_conn_zone":
		f.zone(d, strings.TrimSuffix(name, "_zone"))
	case strings.Contains(d.program, "resty.limit"):
		f.PassOver(d.mention(), "it is a program that limits requests, and is not read")
	case d.program != "":
		f.Note(d.at, "%s is a program, and is not read", d.String())
	case name == "set_real_ip_from":
		good, bad := limit.Prefixes(d.words[1:])
		f.Trust = append(f.Trust, good...)
		f.Header = cmp.Or(f.Header, "X-Real-IP") // which is nginx's default
		for _, b := range bad {
			f.Note(d.at, "set_real_ip_from %s: only addresses and prefixes can be trusted", b)
		}
	case name == "real_ip_header" && d.last() == "proxy_protocol":
		f.Note(d.at, "real_ip_header proxy_protocol: say source.proxy_protocol: true")
		f.Header = "X-Forwarded-For"
	case name == "real_ip_header":
		if f.Header = d.last(); !address.IsSourceHeader(f.Header) {
			f.unread = true
			f.Note(d.at, "left out, with what set_real_ip_from says: %s: Sluice reads the address "+
				"of a client from X-Forwarded-For, Forwarded, or a header that holds one address",
				d.String())
		}
	case noEqual[name] != "":
		f.Note(d.at, "%s %s", d.String(), noEqual[name])
	case name != "limit_req" && name != "limit_conn" && saysLimit(d):
		// Of a module, or of a later nginx
		f.Note(d.at, "%s is not known, so all limits of the file become shadows", d.String())
		f.unknown = append(f.unknown, d.String())
	}
}

// zone reads a zone: who is counted in it, and how many requests.
func (f *file) zone(d directive, kind string) {
	if len(d.words) < 3 || strings.HasPrefix(d.words[1], "zone=") {
		f.PassOver(d.mention(), "it has no key or no zone")
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
			z.cond.Unknown = append(z.cond.Unknown, w+" in "+d.String())
		}
	}
	if f.zones[kind+" "+name] = z; !f.used[kind+" "+name] {
		f.PassOver(d.mention(), "no %s of this file uses it", kind)
	}
}

// walk makes rules of the limits of a block and of those within.
func (f *file) walk(list []directive, s scope) {
	var own []directive
	s.set = maps.Clone(s.set)
	hosts, bad := hostsOf(list)
	for _, h := range bad {
		s.cond.Unknown = append(s.cond.Unknown, "server_name "+h)
	}
	if len(hosts) > 0 {
		s.cond.Put(false, "hosts", hosts, "server_name "+strings.Join(hosts, " "))
		s.where = hosts[0]
	}
	for _, d := range list {
		switch name := d.name(); {
		case slices.Contains(settings, name):
			s.set[name] = d.last()
		case name != "limit_req" && name != "limit_conn":
		case len(d.words) == 2 && d.last() == "off": // of Tengine
			f.Note(d.at, "%s has no rule: it ends the limits around it here", d.String())
		default:
			own = append(own, d)
		}
	}
	for _, d := range own {
		if x, z, err := f.limit(d, f.without(s, d, list)); f.Add(x, err) {
			z.rules = append(z.rules, len(f.Rules)-1)
		}
	}
	for i, d := range list {
		if !d.block || d.isMap() {
			continue
		}
		inner := s
		inner.cond = s.cond.Clone()
		switch d.name() {
		case "location":
			inner.location(d)
			inner.taken = takenBeside(i, list)
		case "server":
			inner.others(i, list)
		case "if", "limit_except":
			inner.cond.Unknown = append(inner.cond.Unknown, d.String())
		}
		f.walk(d.within, inner)
	}
}

// location says which paths are those of one.
func (s *scope) location(d directive) {
	s.cond.Match = slices.DeleteFunc(s.cond.Match,
		func(i yaml.MapItem) bool { return i.Key == "path" }) // of the location around it
	switch p, is := placeOf(d); {
	case !is:
		s.cond.Unknown = append(s.cond.Unknown, d.String())
	case p.isPrefix() && p.path == "/":
	default:
		s.where = strings.Trim(s.where+p.pattern(), "*")
		s.cond.Put(false, "path", p.pattern(), d.String())
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
func (f *file) limit(d directive, s scope) (x limit.Rule, z *zone, err error) {
	x = limit.Rule{Mention: d.mention(), Shadow: s.set[d.name()+"_dry_run"] == "on"}
	said, unknown := options(d)
	name := said["zone"]
	if z = f.zones[d.name()+" "+name]; z == nil {
		return x, z, fmt.Errorf("its zone %s is not in this file", name)
	}
	x.Name, x.Notes, x.Cond = name+"-"+s.where, slices.Clone(z.notes), s.cond.Clone()
	x.Cond.Unknown = slices.Concat(x.Cond.Unknown, unknown, z.cond.Unknown, f.unknown)
	x.Cond.And(z.cond, d.String())
	s.leave(&x.Cond)
	if key := z.within(&x.Cond); !slices.Equal(key, []string{"source"}) {
		x.Key = key
	}
	x.Status, _ = strconv.Atoi(cmp.Or(s.set[d.name()+"_status"], "503"))
	if x.Closes = x.Status == 444; d.name() == "limit_req" {
		return x, z, z.rate(&x, said)
	}
	if x.Most, err = strconv.Atoi(said["most"]); err != nil {
		err = errors.New("want a zone and a number")
	}
	return x, z, err
}

// rate gives a rule the rate of a zone, and the burst of a limit.
func (z *zone) rate(x *limit.Rule, said map[string]string) (err error) {
	x.Most, err = strconv.Atoi(z.count)
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
	x.Window, x.Bucket, x.Burst = "1"+z.per, "token_bucket", burst+1
	switch {
	case burst == 0:
		x.NoteThat("without a burst nginx refuses the second of two requests at once, and so " +
			"does this; most clients send several: consider a higher burst")
	case nodelay:
	case delays:
		x.NoteThat("delay=%s: nginx delays those of the burst that come after the first %s; "+
			"here all %d come through at once", wait, wait, x.Burst)
	case x.Most > 0 && burst*seconds > 30*x.Most:
		x.NoteThat("nginx delays the last of %d for %d s, and the longest delay here is 30s: so "+
			"all %d come through at once", burst, burst*seconds/x.Most, x.Burst)
	default:
		x.Bucket, x.Burst = "leaky_bucket", burst
	}
	return nil
}
