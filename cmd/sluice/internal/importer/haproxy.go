package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// A table is a stick table: what it keeps, by its periods, as http_req_rate to 10s.
type table struct {
	line  int
	rates map[string]string
}

// proxySection is a frontend, backend or listen of HAProxy.
type proxySection struct {
	name   string
	acls   map[string][][]string // each acl's conditions, one of which is enough
	tracks map[string]track      // by slot
	vars   map[string]string     // what variables of the file are set to
	// Conditions of requests that further lines of a kind are not about, as http-request allow says
	passed map[string][][]string
}

// A track says what a slot counts.
type track struct {
	key, table string
	cond       []string // of those that are counted
	section    *proxySection
	again      bool // another line may have filled the slot before
}

// haproxy reads the lines of a configuration of HAProxy twice: for its tables, and for what refuses
// by them.
func haproxy(r *Result, text string) error {
	tables, tracked, vars := make(map[string]*table), make(map[string][]track),
		make(map[string]string)
	each := func(do func(n int, section *proxySection, words []string)) error {
		s, sections := &proxySection{}, 0
		n := 0
		for line := range strings.Lines(text) {
			n++
			words, err := haproxyWords(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			if len(words) == 0 {
				continue
			}
			switch words[0] {
			case "frontend", "backend", "listen", "defaults", "global", "peers", "cache",
				"resolvers", "userlist", "program", "http-errors", "mailers", "ring", "log-forward",
				"fcgi-app":
				sections++
				s = &proxySection{acls: make(map[string][][]string), tracks: make(map[string]track),
					vars: vars, passed: make(map[string][][]string)}
				if len(words) > 1 {
					s.name = words[1]
				}
				continue
			}
			if sections == 0 {
				return fmt.Errorf("line %d: %s stands in no section: is this a file of HAProxy?", n,
					words[0])
			}
			do(n, s, words)
		}
		return nil
	}
	if err := each(func(n int, s *proxySection, words []string) {
		if words[0] == "stick-table" {
			t := &table{n, make(map[string]string)}
			for _, m := range rateOf.FindAllStringSubmatch(strings.Join(words, " "), -1) {
				t.rates[m[1]] = m[2]
			}
			tables[s.name] = t
		}
		if name, expression, is := variable(words); is {
			vars[name] += " " + expression
		}
		if _, t, is := trackOf(s, words); is {
			tracked[t.table] = append(tracked[t.table], t)
		}
	}); err != nil {
		return err
	}
	return each(func(n int, s *proxySection, words []string) {
		r.haproxyLine(n, s, words, tables,
			tracked)
	})
}

var (
	rateOf = regexp.MustCompile(`\b(http_req_rate|http_err_rate|conn_rate|gpc0_rate|gpc1_rate|bytes_in_rate|bytes_out_rate)\((\d+(?:us|ms|s|m|h|d)?)\)`)
	// A test of a counter: sc_http_req_rate(0,table), sc0_http_req_rate(table),
	// src_http_req_rate(table).
	counterTest = regexp.MustCompile(`^(sc_|sc(\d)_|src_)(http_req_rate|http_err_rate|conn_rate|conn_cur|gpc0_rate|http_req_cnt|get_gpc0)(?:\(([^)]*)\))?$`)
)

var (
	// aCounter is anything that a stick table counts.
	aCounter = regexp.MustCompile(`\b(?:(?:sc\d?|src)_\w*(?:rate|cnt|cur|gpc|gpt|bytes)|(?:in_)?table(?:_\w+)?\()`)
	// Where a limit stands that a variable or a converter carries: what counts, by which key, and
	// in which table; and what a map gives to whom it does not name.
	carriedCount   = regexp.MustCompile(`(?:(\S+),table|\bsc\d?|\bsrc)_(http_req_rate|http_err_rate)\(([^)]*)\)`)
	carriedDefault = regexp.MustCompile(`\bmap\w*\([^,()]+,(\d+)\)`)
	variableName   = regexp.MustCompile(`\b(?:proc|sess|txn|req|res|check)\.\w+`)
)

// expanded is a text of a condition with what the variables in it are set to.
func (s *proxySection) expanded(text string) string {
	for _, name := range unique(variableName.FindAllString(text, -1)) {
		text += " " + s.vars[name]
	}
	return text
}

// carried is what a condition counts where a variable or a converter of HAProxy carries the count
// or the limit; 0: the limit is not known.
func (s *proxySection) carried(cond []string) (what string, t track, limit int) {
	for _, term := range terms(cond) {
		tests := s.acls[term[0]]
		if len(term) > 1 {
			tests = [][]string{term[1:]}
		}
		for _, test := range tests {
			text := s.expanded(strings.Join(test, " "))
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
func (s *proxySection) counts(cond []string) bool {
	if aCounter.MatchString(s.expanded(strings.Join(cond, " "))) {
		return true
	}
	for _, w := range strings.Fields(strings.Join(cond, " ")) {
		for _, test := range s.acls[strings.TrimPrefix(w, "!")] {
			if aCounter.MatchString(s.expanded(strings.Join(test, " "))) {
				return true
			}
		}
	}
	return false
}

func (r *Result) haproxyLine(n int, s *proxySection, words []string, tables map[string]*table,
	tracked map[string][]track) {
	line := strings.Join(words, " ")
	if words[0] == "acl" && len(words) > 2 {
		s.acls[words[1]] = append(s.acls[words[1]], words[2:])
		return
	}
	if slot, t, is := trackOf(s, words); is {
		// Who is counted by the first is not by the second
		if before, again := s.tracks[slot]; again {
			if before.cond == nil {
				r.note(lineOf(n), "left out: %s: a line above it has filled sc%s for all requests",
					line, slot)
				return
			}
			t.again = true
		}
		s.tracks[slot] = t
		return
	}
	cond := conditionOf(words)
	verbs := verbsOf(words)
	verb, kind := "", words[0]
	if verbs != nil {
		verb = verbs[0]
		if kind == "tcp-request" {
			kind += " " + words[1]
		}
	}
	switch {
	case verb == "allow" || verb == "accept":
		s.passed[kind] = append(s.passed[kind], cond)
	case !s.counts(cond):
	case !slices.Contains([]string{"deny", "reject", "tarpit", "silent-drop", "return"}, verb) ||
		verb == "return" && status(verbs, 200) < 400:
		r.note(lineOf(n), "left out: %s: it looks at a counter, and does not refuse requests", line)
	default:
		r.haproxyRefusal(n, line, kind, s, verbs, cond, tables, tracked)
	}
}

// haproxyRefusal makes a rule of a line that refuses by a counter.
func (r *Result) haproxyRefusal(n int, line, kind string, s *proxySection, verbs, cond []string,
	tables map[string]*table, tracked map[string][]track) {
	x := Rule{Position: lineOf(n), From: line}
	var c condition
	var counter []string
	use := func(list []string) {
		for _, term := range terms(list) {
			not, test := strings.HasPrefix(term[0], "!"), term[1:]
			if len(term) == 1 {
				name := strings.TrimPrefix(term[0], "!")
				all := s.acls[name]
				if len(all) != 1 {
					c.unknown = append(c.unknown, term[0])
					continue
				}
				test = all[0]
			}
			if len(test) > 0 && counterTest.MatchString(test[0]) && !not && counter == nil {
				counter = test
				continue
			}
			c.haproxy(not, test)
		}
	}
	use(cond)
	var t track
	if counter == nil {
		what, by, limit := s.carried(cond)
		if limit > 0 {
			t, counter = by, []string{"src_" + what, "gt", strconv.Itoa(limit)}
			x.Notes = append(x.Notes,
				fmt.Sprintf("a variable or a converter of HAProxy carries this limit: %d is what this file shows of it", limit))
		}
	}
	if counter == nil || cond[0] == "unless" {
		r.note(lineOf(n), "left out: %s: what it counts is not understood", line)
		return
	}
	for _, passed := range s.passed[kind] {
		if len(passed) == 0 {
			r.note(lineOf(n), "left out: %s: a line above it lets all requests pass", line)
			return
		}
		c.except(s, passed)
	}
	m := counterTest.FindStringSubmatch(counter[0])
	what, args := m[3], strings.Split(m[4], ",")
	switch {
	case t.table != "":
	case m[1] == "src_":
		t = track{key: "source", table: s.name}
		if m[4] != "" {
			t.table = args[0]
		}
		by := slices.DeleteFunc(slices.Clone(tracked[t.table]),
			func(o track) bool { return o.key != "source" })
		always := slices.ContainsFunc(by, func(o track) bool { return o.cond == nil })
		switch {
		case len(by) == 0:
			r.note(lineOf(n),
				"left out: %s: no line of this file counts addresses in the table %s, so it refuses nobody", line, t.table)
			return
		case always:
		case len(by) == 1 && by[0].section.name == s.name:
			counted := counter
			use(by[0].cond)
			counter = counted
		default:
			c.unknown = append(c.unknown, "which requests are counted in "+t.table)
		}
	default:
		slot := m[2]
		if m[1] == "sc_" {
			slot, args = args[0], args[1:]
		}
		if t = s.tracks[slot]; len(args) > 0 && args[0] != "" {
			t.table = args[0]
		}
		if t.key == "" {
			r.note(lineOf(n), "left out: %s: nothing above it in this section is tracked in sc%s",
				line, slot)
			return
		}
		counted := counter
		use(t.cond)
		if counter = counted; t.again {
			c.unknown = append(c.unknown, "sc"+slot+", which several lines fill")
		}
	}
	refused := c
	if c = (condition{}); t.cond != nil {
		counted := counter
		use(t.cond)
		counter = counted
	}
	for _, field := range refused.requests() {
		if !slices.Contains(c.requests(), field) && what == "http_req_rate" {
			x.Notes = append(x.Notes,
				"HAProxy counts the client's other requests too; here the rule counts those that it may refuse")
			break
		}
	}
	c = refused
	operator := slices.DeleteFunc(slices.Clone(counter[1:]),
		func(w string) bool { return w == "-m" || w == "int" })
	if len(operator) != 2 || operator[0] != "gt" && operator[0] != "ge" {
		r.note(lineOf(n), "left out: %s: want gt or ge, and one number, for a limit", line)
		return
	}
	ge := operator[0] == "ge"
	number, err := strconv.Atoi(operator[1])
	if err != nil {
		r.note(lineOf(n), "left out: %s: what it compares the counter with is no number", line)
		return
	}
	if ge {
		number--
	}
	window := ""
	if kept := tables[t.table]; kept != nil {
		window = kept.rates[what]
	}
	switch {
	case what == "conn_cur":
		r.note(lineOf(n),
			"left out: %s: connections at once of a source are limits.connections_per_source: %d; requests at once are a rule's concurrency", line, number)
		return
	case what != "http_req_rate" && what != "http_err_rate":
		r.note(lineOf(n), "left out: %s: %s has no equal: rules count requests", line, what)
		return
	case window == "":
		r.note(lineOf(n), "left out: %s: no stick table %s with a %s is in this file", line,
			t.table, what)
		return
	}
	if _, err := strconv.Atoi(window); err == nil {
		window += "ms" // HAProxy's unit
	}
	if days, is := strings.CutSuffix(window, "d"); is {
		h, _ := strconv.Atoi(days)
		window = fmt.Sprintf("%dh", 24*h)
	}
	if strings.HasPrefix(t.key, "?") {
		c.unknown = append(c.unknown, t.key[1:])
		if header := namedBy(t.key[1:]); header != "" {
			x.Notes = append(x.Notes, namesClient(header))
		}
		t.key = "source"
	}
	x.Name = r.name(s.name + "-" + what)
	x.fields = yaml.MapSlice{{Key: "name", Value: x.Name}}
	set := func(name string, v any) {
		x.fields = append(x.fields, yaml.MapItem{Key: name,
			Value: v})
	}
	if of, name, is := strings.Cut(t.key, ":"); is { // who has none is not counted by HAProxy
		field := map[string]string{"header": "headers", "cookie": "cookies", "query": "query"}[of]
		if !c.names(field, name) {
			c.put(&c.match, field, yaml.MapSlice{{Key: name, Value: "*"}}, t.key)
		}
	}
	if m := c.whole(); len(m) > 0 {
		set("match", m)
	}
	if t.key != "source" {
		set("key", t.key)
	}
	set("limit", number)
	set("window", window)
	set("mitigation_timeout", "0s")
	if what == "http_err_rate" {
		set("count", yaml.MapSlice{{Key: "statuses", Value: []int{400, 401, 403, 404, 405, 410, 413,
			422, 429}}})
		x.Notes = append(x.Notes,
			"http_err_rate counts every answer of 400 to 499; here those that count are named")
	} else {
		// HAProxy counts before it refuses
		set("count", yaml.MapSlice{{Key: "refused", Value: true}})
	}
	switch verb := verbs[0]; verb {
	case "deny", "tarpit", "return":
		standard := 403
		if verb == "tarpit" {
			standard = 500
			x.Notes = append(x.Notes,
				"tarpit holds the connection before it answers; here it is refused at once")
		}
		if code := status(verbs, standard); code != 429 {
			set("response", yaml.MapSlice{{Key: "status", Value: code}})
		}
	default:
		set("action", "close")
	}
	if len(c.unknown) > 0 {
		x.Notes = append(x.Notes,
			"a shadow, because this has no equal, or is not understood: "+strings.Join(c.unknown,
				", "))
		set("mode", "shadow")
	}
	r.add(x)
}
