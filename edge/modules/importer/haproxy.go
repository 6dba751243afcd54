package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// haproxyFile is what is known of a configuration of HAProxy.
type haproxyFile struct {
	*Result
	tables map[string]*table
	tracks map[string][]track // by the table that they count in
	vars   map[string]string  // what variables of the file are set to
}

// A table is a stick table: what it keeps, by its periods, as http_req_rate to 10s.
type table struct {
	at    Position
	text  string
	rates map[string]string
	used  bool // a line refuses by it, or a note speaks of it
	twice bool // its section has another, and which of them counts is not known
}

// A frontend is what is known of a section above a line of it.
type frontend struct {
	*section
	acls   map[string][][]string // each acl's conditions, one of which is enough
	tracks map[string]track      // by slot
	// Conditions of requests that further lines of a kind are not about, as http-request allow says
	passed map[string][][]string
}

// A track says what a slot counts.
type track struct {
	key, table string
	cond       []string // of those that are counted
	section    *section
	again      bool // another line may have filled the slot before
}

// haproxy makes rules of what refuses by a counter.
func haproxy(r *Result, text string) error {
	sections, err := parseHAProxy(text)
	if err != nil {
		return err
	}
	f := &haproxyFile{r, make(map[string]*table), make(map[string][]track),
		make(map[string]string)}
	for _, s := range sections {
		for _, l := range s.lines {
			f.collect(s, l)
		}
	}
	for _, s := range sections {
		front := &frontend{s, make(map[string][][]string), make(map[string]track),
			make(map[string][][]string)}
		for _, l := range s.lines {
			f.line(front, l)
		}
	}
	for _, t := range f.tables {
		if !t.used && len(t.rates) > 0 {
			f.mention(t.at, t.text)
			f.note(t.at, "left out: %s: no line of this file refuses by it", t.text)
		}
	}
	return nil
}

// collect reads what holds for the whole file.
func (f *haproxyFile) collect(s *section, l line) {
	name := s.name
	if s.kind == "peers" && l.words[0] == "table" && len(l.words) > 1 {
		name += "/" + l.words[1]
	}
	if l.words[0] == "stick-table" || name != s.name {
		t := &table{at: lineOf(l.n), text: l.String(), rates: make(map[string]string)}
		for _, m := range rateOf.FindAllStringSubmatch(t.text, -1) {
			t.rates[m[1]] = m[2]
		}
		t.twice = f.tables[name] != nil
		f.tables[name] = t
	}
	if name, expression, is := variable(l.words); is {
		f.vars[name] += " " + expression
	}
	if _, t, is := trackOf(s, l.words); is {
		f.tracks[t.table] = append(f.tracks[t.table], t)
	}
}

var (
	rateOf = regexp.MustCompile(`\b(http_req_rate|http_err_rate|http_fail_rate|conn_rate|sess_rate|gpc0_rate|gpc1_rate|bytes_in_rate|bytes_out_rate)\((\d+(?:us|ms|s|m|h|d)?)\)`)
	// A test of a counter: sc_http_req_rate(0,table), sc0_http_req_rate(table),
	// src_http_req_rate(table).
	counterTest = regexp.MustCompile(`^(sc_|sc(\d)_|src_)(http_req_rate|http_err_rate|http_fail_rate|conn_rate|conn_cur|sess_rate|gpc0_rate|http_req_cnt|get_gpc0)(?:\(([^)]*)\))?$`)
	// The same of an address, as a converter
	ofAddress = regexp.MustCompile(`^src,table_(http_req_rate|http_err_rate|http_fail_rate|conn_rate|conn_cur|http_req_cnt)\(([^)]*)\)$`)
	// aCounter is anything that a stick table counts.
	aCounter = regexp.MustCompile(`\b(?:(?:sc\d?|src)_\w*(?:rate|cnt|cur|gpc|gpt|bytes)|(?:in_)?table(?:_\w+)?\()`)
	// Where a limit stands that a variable or a converter carries: what counts, by which key, and
	// in which table; and what a map gives to whom it does not name.
	carriedCount   = regexp.MustCompile(`(?:(\S+),table|\bsc\d?|\bsrc)_(http_req_rate|http_err_rate)\(([^)]*)\)`)
	carriedDefault = regexp.MustCompile(`\bmap\w*\([^,()]+,(\d+)\)`)
	variableName   = regexp.MustCompile(`\b(?:proc|sess|txn|req|res|check)\.\w+`)
)

// expanded is a text of a condition with what the variables in it are set to.
func (f *haproxyFile) expanded(text string) string {
	for _, name := range unique(variableName.FindAllString(text, -1)) {
		text += " " + f.vars[name]
	}
	return text
}

// carried is what a condition counts where a variable or a converter of HAProxy carries the count
// or the limit; 0: the limit is not known.
func (f *haproxyFile) carried(s *frontend, cond []string) (what string, t track, limit int) {
	for _, term := range terms(cond) {
		tests := s.acls[term[0]]
		if len(term) > 1 {
			tests = [][]string{term[1:]}
		}
		for _, test := range tests {
			text := f.expanded(strings.Join(test, " "))
			m := carriedCount.FindStringSubmatch(text)
			if m == nil || m[1] == "" && !strings.Contains(text, "var(") {
				continue
			}
			what, t = m[2], track{key: haproxyKey(m[1]), table: s.name}
			if m[1] == "" {
				t.key = "source"
			} else if t.key == "" {
				t.key = "?" + m[1]
			}
			if name, _, _ := strings.Cut(m[3], ","); name != "" && m[1] != "" {
				t.table = name
			}
			limit, _ = strconv.Atoi(test[len(test)-1])
			switch operator := test[max(len(test)-2, 0)]; operator {
			case "gt":
			case "ge":
				limit--
			default:
				limit = 0
			}
			if d := carriedDefault.FindStringSubmatch(text); d != nil {
				limit, _ = strconv.Atoi(d[1])
			}
			return what, t, limit
		}
	}
	return "", t, 0
}

// counts reports whether a condition is about a counter.
func (f *haproxyFile) counts(s *frontend, cond []string) bool {
	if aCounter.MatchString(f.expanded(strings.Join(cond, " "))) {
		return true
	}
	for _, w := range strings.Fields(strings.Join(cond, " ")) {
		for _, test := range s.acls[strings.TrimPrefix(w, "!")] {
			if aCounter.MatchString(f.expanded(strings.Join(test, " "))) {
				return true
			}
		}
	}
	return false
}

// otherLimits are directives that limit something else than requests of a client.
var otherLimits = map[string]string{
	"maxconn":    "limits.connections bounds the connections of an edge",
	"fullconn":   "an origin's max_connections bounds its requests",
	"rate-limit": "limits bounds connections; rules count requests of a client",
}

// line reads a line of a section, of which the lines above it are known.
func (f *haproxyFile) line(s *frontend, l line) {
	text, words := l.String(), l.words
	if words[0] == "acl" && len(words) > 2 {
		s.acls[words[1]] = append(s.acls[words[1]], words[2:])
		return
	}
	if slot, t, is := trackOf(s.section, words); is {
		// Who is counted by the first is not by the second
		if before, again := s.tracks[slot]; again {
			if before.cond == nil {
				f.note(lineOf(l.n), "left out: %s: a line above it has filled sc%s for all requests",
					text, slot)
				return
			}
			t.again = true
		}
		s.tracks[slot] = t
		return
	}
	if instead, is := otherLimits[words[0]]; is {
		f.mention(lineOf(l.n), text)
		f.note(lineOf(l.n), "left out: %s: it is not about the requests of a client: %s", text,
			instead)
		return
	}
	if words[0] == "filter" && len(words) > 1 && strings.HasPrefix(words[1], "bwlim-") {
		f.mention(lineOf(l.n), text)
		f.note(lineOf(l.n), "left out: %s: answers have no limit of bytes a second", text)
		return
	}
	cond, verbs, kind, verb := conditionOf(words), verbsOf(words), words[0], ""
	if verbs != nil {
		verb = verbs[0]
		if kind == "tcp-request" {
			kind += " " + words[1]
		}
	}
	switch {
	case verb == "allow" || verb == "accept":
		s.passed[kind] = append(s.passed[kind], cond)
	case !f.counts(s, cond):
	case !slices.Contains([]string{"deny", "reject", "tarpit", "silent-drop", "return"}, verb) ||
		verb == "return" && status(verbs, 200) < 400:
		f.mention(lineOf(l.n), text)
		f.note(lineOf(l.n), "left out: %s: it looks at a counter, and does not refuse requests",
			text)
		f.use(s, cond)
	default:
		f.mention(lineOf(l.n), text)
		f.use(s, cond)
		f.refusals(s, l, kind, verbs, cond)
	}
}

// use notes that lines speak of the tables of a condition.
func (f *haproxyFile) use(s *frontend, cond []string) {
	text := strings.Join(cond, " ")
	for _, term := range terms(cond) {
		for _, test := range s.acls[strings.TrimPrefix(term[0], "!")] {
			text += " " + strings.Join(test, " ")
		}
	}
	text = f.expanded(text)
	for name, t := range f.tables {
		t.used = t.used || name == s.name || strings.Contains(text, "("+name+")") ||
			strings.Contains(text, ","+name+")")
	}
	for _, t := range s.tracks {
		if kept := f.tables[t.table]; kept != nil {
			kept.used = true
		}
	}
}

// refusals makes rules of a line that refuses by a counter: one for each of its alternatives.
func (f *haproxyFile) refusals(s *frontend, l line, kind string, verbs, cond []string) {
	for _, c := range alternatives(cond) {
		if len(c) != len(cond) && !f.counts(s, c) {
			f.note(lineOf(l.n), "left out of %s: %s: it is about no counter, and refuses always",
				l.String(), strings.Join(c, " "))
			continue
		}
		x := &refusal{haproxyFile: f, front: s, line: l, kind: kind, verbs: verbs}
		x.make(c)
	}
}
