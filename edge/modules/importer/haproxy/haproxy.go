// Package haproxy reads what refuses by a counter of a stick table.
//
// lines.go parses sections, lines and their conditions; haproxy.go knows what stands above a line;
// condition.go translates conditions, and refusal.go what a line refuses.
package haproxy

import (
	"regexp"
	"slices"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// file is what is known of a configuration of HAProxy.
type file struct {
	*limit.Result
	tables map[string]*table
	tracks map[string][]track // by the table that they count in
	vars   map[string]string  // what variables of the file are set to
}

// A table is a stick table: what it keeps, by its periods, as http_req_rate to 10s.
type table struct {
	line  line
	rates map[string]string
	used  bool // a line looks at it: it is a rule, or a note speaks of it
	twice bool // its section has another, and which of them counts is not known
}

// A frontend is what is known of a section above a line of it.
type frontend struct {
	*section
	acls   map[string][][]string // each acl's conditions, one of which is enough
	tracks map[string]track      // by slot
	// Conditions of requests that further lines are not about, as http-request allow says
	passed map[string][]clause
}

// A track says what a slot counts.
type track struct {
	key, sample string // the key is "" if the sample, which says it, is not understood
	table       string
	cond        clause // of those that are counted
	section     *section
	again       bool // another line may have filled the slot before
}

// Read makes rules of the lines of a file of HAProxy that refuse by a counter.
func Read(r *limit.Result, text string) error {
	sections, err := parse(text)
	if err != nil {
		return err
	}
	f := &file{r, make(map[string]*table), make(map[string][]track), make(map[string]string)}
	for _, s := range sections {
		for _, l := range s.lines {
			f.collect(s, l)
		}
	}
	for _, s := range sections {
		front := &frontend{s, make(map[string][][]string), make(map[string]track),
			make(map[string][]clause)}
		for _, l := range s.lines {
			f.line(front, l)
		}
	}
	for _, t := range f.tables {
		if !t.used && len(t.rates) > 0 {
			f.PassOver(t.line.Mention, "no line of this file refuses by it")
		}
	}
	return nil
}

// collect reads what holds for the whole file.
func (f *file) collect(s *section, l line) {
	name, verb := s.name, word(l.verbs, 0)
	if s.kind == "peers" && l.about == "table" && len(l.words) > 1 {
		name += "/" + l.words[1]
	}
	if l.about == "stick-table" || name != s.name {
		t := &table{line: l, rates: make(map[string]string), twice: f.tables[name] != nil}
		for _, m := range rateOf.FindAllStringSubmatch(l.From, -1) {
			t.rates[m[1]] = m[2]
		}
		f.tables[name] = t
	}
	switch {
	case l.about == "set-var" && len(l.words) > 2: // of global
		f.vars[l.words[1]] += " " + l.words[2]
	case strings.HasPrefix(verb, "set-var") && len(l.verbs) > 1:
		_, name, _ := strings.Cut(strings.TrimSuffix(verb, ")"), "(")
		name, _, _ = strings.Cut(name, ",") // a condition on what it was
		f.vars[name] += " " + l.verbs[1]
	}
	if _, t, is := l.track(s); is {
		f.tracks[t.table] = append(f.tracks[t.table], t)
	}
}

// track is what a line has counted in a slot.
func (l *line) track(s *section) (slot string, t track, is bool) {
	if slot, is = strings.CutPrefix(word(l.verbs, 0), "track-sc"); !is || len(l.verbs) < 2 {
		return "", t, false
	}
	t = track{keyOf(l.verbs[1]), l.verbs[1], s.name, l.cond, s, false}
	if i := slices.Index(l.verbs, "table"); i > 0 && i+1 < len(l.verbs) {
		t.table = l.verbs[i+1]
	}
	return slot, t, true
}

var (
	rateOf = regexp.MustCompile(
		`\b(http_req_rate|http_err_rate|http_fail_rate|conn_rate|sess_rate|gpc0_rate|gpc1_rate|bytes_in_rate|bytes_out_rate)\((\d+(?:us|ms|s|m|h|d)?)\)`)
	// A test of a counter: sc_http_req_rate(0,table), sc0_http_req_rate(table), and of an address
	// src_http_req_rate(table), or src,table_http_req_rate(table).
	counterTest = regexp.MustCompile(
		`^(sc_|sc(\d)_|src_|src,table_)(http_req_rate|http_err_rate|http_fail_rate|conn_rate|` +
			`conn_cur|sess_rate|gpc0_rate|http_req_cnt|get_gpc0)(?:\(([^)]*)\))?$`)
	// aCounter is anything that a stick table counts.
	aCounter = regexp.MustCompile(
		`\b(?:(?:sc\d?|src)_\w*(?:rate|cnt|cur|gpc|gpt|bytes)|(?:in_)?table(?:_\w+)?\()`)
	// Where a limit stands that a variable or a converter carries: what counts, by which key, and
	// in which table; and what a map gives to whom it does not name.
	carriedCount = regexp.MustCompile(
		`(?:(\S+),table|\bsc\d?|\bsrc)_(http_req_rate|http_err_rate)\(([^)]*)\)`)
	carriedDefault = regexp.MustCompile(`\bmap\w*\([^,()]+,(\d+)\)`)
	variableName   = regexp.MustCompile(`\b(?:proc|sess|txn|req|res|check)\.\w+`)
)

// expanded is a text of a condition with what the variables in it are set to.
func (f *file) expanded(text string) string {
	for _, name := range limit.Unique(variableName.FindAllString(text, -1)) {
		text += " " + f.vars[name]
	}
	return text
}

// whole is a condition with all that its acls and variables stand for, as a text.
func (f *file) whole(s *frontend, c clause) string {
	text := c.String()
	for _, w := range strings.Fields(text) {
		for _, test := range s.acls[strings.TrimPrefix(w, "!")] {
			text += " " + strings.Join(test, " ")
		}
	}
	return f.expanded(text)
}

// counts reports whether a condition is about a counter. The line then speaks of its table.
func (f *file) counts(s *frontend, c clause) bool {
	text := f.whole(s, c)
	if !aCounter.MatchString(text) {
		return false
	}
	here := []string{s.name}
	for _, t := range s.tracks {
		here = append(here, t.table)
	}
	for name, t := range f.tables {
		t.used = t.used || slices.Contains(here, name) || strings.Contains(text, "("+name+")") ||
			strings.Contains(text, ","+name+")")
	}
	return true
}

// otherLimits are directives that limit something else than requests of a client.
var otherLimits = map[string]string{
	"maxconn":    "limits.connections bounds the connections of an edge",
	"fullconn":   "an origin's max_connections bounds its requests",
	"rate-limit": "limits bounds connections; rules count requests of a client",
}

// refusing are what a line does that refuses a request, and the status of that; 0: it gives no
// answer. Return refuses if it says such a status.
var refusing = map[string]int{"deny": 403, "tarpit": 500, "return": 200, "reject": 0,
	"silent-drop": 0}

// line reads a line of a section, of which the lines above it are known.
func (f *file) line(s *frontend, l line) {
	verb := word(l.verbs, 0)
	standard, refuses := refusing[verb]
	slot, t, tracks := l.track(s.section)
	switch {
	case l.about == "acl" && len(l.words) > 2:
		s.acls[l.words[1]] = joined(s.acls[l.words[1]], l.words[2:])
	case tracks:
		// Who is counted by the first is not by the second
		before, again := s.tracks[slot]
		if again && before.cond == nil {
			f.LeftOut(l.Mention, "a line above it has filled sc%s for all requests", slot)
			return
		}
		t.again = again
		s.tracks[slot] = t
	case otherLimits[l.about] != "":
		f.PassOver(l.Mention, "it is not about the requests of a client: %s",
			otherLimits[l.about])
	case l.about == "filter" && strings.HasPrefix(word(l.words, 1), "bwlim-"):
		f.PassOver(l.Mention, "answers have no limit of bytes a second")
	case verb == "allow" || verb == "accept":
		s.passed[l.about] = append(s.passed[l.about], l.cond)
	case !f.counts(s, l.cond):
	case !refuses || verb == "return" && l.status(standard) < 400:
		f.PassOver(l.Mention, "it looks at a counter, and does not refuse requests")
	default:
		f.Mention(l.Mention)
		list := l.cond.alternatives()
		for _, c := range list {
			if len(list) > 1 && !f.counts(s, c) {
				f.Note(l.Position, "left out of %s: %v: it is about no counter, and refuses always",
					l.From, c)
				continue
			}
			f.Add(f.refusal(s, l, c))
		}
	}
}
