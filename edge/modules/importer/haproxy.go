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
	line  line
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
	f := &haproxyFile{r, make(map[string]*table), make(map[string][]track), make(map[string]string)}
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
			f.passOver(t.line, "no line of this file refuses by it")
		}
	}
	return nil
}

// passOver notes that a line, which is accounted for as a limit, has no rule.
func (f *haproxyFile) passOver(l line, why string) {
	f.mention(lineOf(l.n), l.String())
	f.leftOut(l.mention(), "%s", why)
}

// collect reads what holds for the whole file.
func (f *haproxyFile) collect(s *section, l line) {
	name := s.name
	if s.kind == "peers" && l.words[0] == "table" && len(l.words) > 1 {
		name += "/" + l.words[1]
	}
	if l.words[0] == "stick-table" || name != s.name {
		t := &table{line: l, rates: make(map[string]string), twice: f.tables[name] != nil}
		for _, m := range rateOf.FindAllStringSubmatch(l.String(), -1) {
			t.rates[m[1]] = m[2]
		}
		f.tables[name] = t
	}
	if name, expression, is := variable(l.words); is {
		f.vars[name] += " " + expression
	}
	if _, t, is := trackOf(s, l.words); is {
		f.tracks[t.table] = append(f.tracks[t.table], t)
	}
}

// trackOf is what a line has counted in a slot.
func trackOf(s *section, words []string) (slot string, t track, is bool) {
	verbs := verbsOf(words)
	if len(verbs) < 2 || !strings.HasPrefix(verbs[0], "track-sc") {
		return "", t, false
	}
	t = track{key: haproxyKey(verbs[1]), table: s.name, cond: conditionOf(words), section: s}
	if i := slices.Index(verbs, "table"); i > 0 && i+1 < len(verbs) {
		t.table = verbs[i+1]
	}
	return strings.TrimPrefix(verbs[0], "track-sc"), t, true
}

var (
	rateOf = regexp.MustCompile(`\b(http_req_rate|http_err_rate|http_fail_rate|conn_rate|sess_rate|` +
		`gpc0_rate|gpc1_rate|bytes_in_rate|bytes_out_rate)\((\d+(?:us|ms|s|m|h|d)?)\)`)
	// A test of a counter: sc_http_req_rate(0,table), sc0_http_req_rate(table),
	// src_http_req_rate(table).
	counterTest = regexp.MustCompile(`^(sc_|sc(\d)_|src_)(http_req_rate|http_err_rate|` +
		`http_fail_rate|conn_rate|conn_cur|sess_rate|gpc0_rate|http_req_cnt|get_gpc0)(?:\(([^)]*)\))?$`)
	// The same of an address, as a converter
	ofAddress = regexp.MustCompile(`^src,table_(http_req_rate|http_err_rate|http_fail_rate|` +
		`conn_rate|conn_cur|http_req_cnt)\(([^)]*)\)$`)
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
func (f *haproxyFile) expanded(text string) string {
	for _, name := range unique(variableName.FindAllString(text, -1)) {
		text += " " + f.vars[name]
	}
	return text
}

// whole is a condition with all that its acls and variables stand for, as a text.
func (f *haproxyFile) whole(s *frontend, cond []string) string {
	text := strings.Join(cond, " ")
	for _, w := range strings.Fields(text) {
		for _, test := range s.acls[strings.TrimPrefix(w, "!")] {
			text += " " + strings.Join(test, " ")
		}
	}
	return f.expanded(text)
}

// counts reports whether a condition is about a counter.
func (f *haproxyFile) counts(s *frontend, cond []string) bool {
	return aCounter.MatchString(f.whole(s, cond))
}

// carried is what a condition counts where a variable or a converter of HAProxy carries the count
// or the limit; 0: the limit is not known.
func (f *haproxyFile) carried(s *frontend, cond []string) (what string, t track, limit int) {
	for _, term := range terms(cond) {
		tests := s.acls[term.acl]
		if term.not {
			tests = nil
		}
		if term.test != nil {
			tests = [][]string{term.test}
		}
		for _, test := range tests {
			text := f.expanded(strings.Join(test, " "))
			m := carriedCount.FindStringSubmatch(text)
			if m == nil || m[1] == "" && !strings.Contains(text, "var(") {
				continue
			}
			what, t = m[2], track{key: "source", table: s.name}
			if m[1] != "" {
				t.key = haproxyKey(m[1])
				if name, _, _ := strings.Cut(m[3], ","); name != "" {
					t.table = name
				}
			}
			switch limit, _ = strconv.Atoi(test[len(test)-1]); test[max(len(test)-2, 0)] {
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

// otherLimits are directives that limit something else than requests of a client.
var otherLimits = map[string]string{
	"maxconn":    "limits.connections bounds the connections of an edge",
	"fullconn":   "an origin's max_connections bounds its requests",
	"rate-limit": "limits bounds connections; rules count requests of a client",
}

// refusing are what a line does that refuses a request; and return, if its status says so.
var refusing = []string{"deny", "reject", "tarpit", "silent-drop", "return"}

// line reads a line of a section, of which the lines above it are known.
func (f *haproxyFile) line(s *frontend, l line) {
	words := l.words
	cond, verbs, kind := conditionOf(words), verbsOf(words), words[0]
	verb := word(verbs, 0)
	if verbs != nil && kind == "tcp-request" {
		kind += " " + words[1]
	}
	slot, t, tracks := trackOf(s.section, words)
	switch {
	case kind == "acl" && len(words) > 2:
		s.acls[words[1]] = append(s.acls[words[1]], words[2:])
	case tracks:
		// Who is counted by the first is not by the second
		before, again := s.tracks[slot]
		if again && before.cond == nil {
			f.leftOut(l.mention(), "a line above it has filled sc%s for all requests", slot)
			return
		}
		t.again = again
		s.tracks[slot] = t
	case otherLimits[kind] != "":
		f.passOver(l, "it is not about the requests of a client: "+otherLimits[kind])
	case kind == "filter" && strings.HasPrefix(word(words, 1), "bwlim-"):
		f.passOver(l, "answers have no limit of bytes a second")
	case verb == "allow" || verb == "accept":
		s.passed[kind] = append(s.passed[kind], cond)
	case !f.counts(s, cond):
	case !slices.Contains(refusing, verb) || verb == "return" && status(verbs, 200) < 400:
		f.passOver(l, "it looks at a counter, and does not refuse requests")
		f.use(s, cond)
	default:
		f.mention(lineOf(l.n), l.String())
		f.use(s, cond)
		f.refusals(s, l, kind, verbs, cond)
	}
}

// use notes that lines speak of the tables of a condition.
func (f *haproxyFile) use(s *frontend, cond []string) {
	text := f.whole(s, cond)
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
