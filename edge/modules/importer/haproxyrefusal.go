package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// A refusal is a line that refuses by a counter, on its way to a rule.
type refusal struct {
	*haproxyFile
	front *frontend
	line  line
	kind  string   // what the line is about: http-request, tcp-request connection
	verbs []string // what it does

	rule    Rule
	cond    condition
	counter []string // the test of a counter: what, and how it compares
	track   track
}

// leftOut notes that no rule comes of the line.
func (x *refusal) leftOut(format string, args ...any) {
	x.note(lineOf(x.line.n), "left out: %s: %s", x.line.String(), fmt.Sprintf(format, args...))
}

// use adds what a condition asks, and keeps its first test of a counter.
func (x *refusal) use(cond []string) {
	for _, term := range terms(cond) {
		not, test := strings.HasPrefix(term[0], "!"), term[1:]
		if len(term) > 1 {
			x.test(not, test)
			continue
		}
		name := strings.TrimPrefix(term[0], "!")
		tests := x.front.acls[name]
		if tests == nil && predefined[name] != nil {
			tests = [][]string{predefined[name]}
		}
		switch one := oneTest(tests); {
		case one != nil:
			x.test(not, one)
		case len(tests) > 0 && not: // none of them
			for _, test := range tests {
				x.test(true, test)
			}
		default:
			x.cond.unknown = append(x.cond.unknown, term[0])
		}
	}
}

func (x *refusal) test(not bool, test []string) {
	if len(test) > 0 {
		if m := ofAddress.FindStringSubmatch(test[0]); m != nil {
			test = slices.Clone(test)
			test[0] = "src_" + m[1] + "(" + m[2] + ")"
		}
		if counterTest.MatchString(test[0]) && !not && x.counter == nil {
			x.counter = test
			return
		}
	}
	x.cond.haproxy(not, test)
}

// useOnly adds what a condition asks, and no counter.
func (x *refusal) useOnly(cond []string) {
	kept := x.counter
	x.use(cond)
	x.counter = kept
}

// make makes the rule, or notes why there is none.
func (x *refusal) make(cond []string) {
	x.rule = Rule{Position: lineOf(x.line.n), From: x.line.String()}
	x.use(cond)
	if x.counter == nil {
		if what, by, limit := x.carried(x.front, cond); limit > 0 {
			x.track, x.counter = by, []string{"src_" + what, "gt", strconv.Itoa(limit)}
			x.rule.Notes = append(x.rule.Notes,
				fmt.Sprintf("a variable or a converter of HAProxy carries this limit: %d is what this file shows of it", limit))
		}
	}
	if x.counter == nil || cond[0] == "unless" {
		x.leftOut("what it counts is not understood")
		return
	}
	for _, passed := range x.front.passed[x.kind] {
		if len(passed) == 0 {
			x.leftOut("a line above it lets all requests pass")
			return
		}
		x.cond.except(x.front, passed)
	}
	m := counterTest.FindStringSubmatch(x.counter[0])
	what := m[3]
	if x.track.table == "" && !x.findTrack(m) {
		return
	}
	x.noteOthers(what)
	limit, is := x.limit()
	if !is {
		return
	}
	window, is := x.window(what, limit)
	if !is {
		return
	}
	x.write(what, limit, window)
	x.add(x.rule)
}

// findTrack finds what the counter is of.
func (x *refusal) findTrack(m []string) bool {
	args := strings.Split(m[4], ",")
	if m[1] == "src_" {
		x.track = track{key: "source", table: x.front.name}
		if m[4] != "" {
			x.track.table = args[0]
		}
		by := slices.DeleteFunc(slices.Clone(x.tracks[x.track.table]),
			func(o track) bool { return o.key != "source" })
		switch {
		case len(by) == 0:
			x.leftOut("no line of this file counts addresses in the table %s, so it refuses nobody",
				x.track.table)
			return false
		case slices.ContainsFunc(by, func(o track) bool { return o.cond == nil }):
		case len(by) == 1 && by[0].section.name == x.front.name:
			x.useOnly(by[0].cond)
		default:
			x.cond.unknown = append(x.cond.unknown,
				"which requests are counted in "+x.track.table)
		}
		return true
	}
	slot := m[2]
	if m[1] == "sc_" {
		slot, args = args[0], args[1:]
	}
	if x.track = x.front.tracks[slot]; len(args) > 0 && args[0] != "" {
		x.track.table = args[0]
	}
	if x.track.key == "" {
		x.leftOut("nothing above it in this section is tracked in sc%s", slot)
		return false
	}
	if x.useOnly(x.track.cond); x.track.again {
		x.cond.unknown = append(x.cond.unknown, "sc"+slot+", which several lines fill")
	}
	return true
}

// noteOthers notes that HAProxy counts more requests than the rule.
func (x *refusal) noteOthers(what string) {
	refused := x.cond
	x.cond = condition{}
	x.useOnly(x.track.cond)
	counted := x.cond
	x.cond = refused
	for _, field := range refused.requests() {
		if !slices.Contains(counted.requests(), field) && what == "http_req_rate" {
			x.rule.Notes = append(x.rule.Notes,
				"HAProxy counts the client's other requests too; here the rule counts those that it may refuse")
			return
		}
	}
}

// limit is the number that the counter may reach.
func (x *refusal) limit() (n int, is bool) {
	operator := slices.DeleteFunc(slices.Clone(x.counter[1:]),
		func(w string) bool { return w == "-m" || w == "int" })
	if len(operator) != 2 || operator[0] != "gt" && operator[0] != "ge" {
		x.leftOut("want gt or ge, and one number, for a limit")
		return 0, false
	}
	n, err := strconv.Atoi(operator[1])
	if err != nil {
		x.leftOut("what it compares the counter with is no number")
		return 0, false
	}
	if operator[0] == "ge" {
		n--
	}
	return n, true
}

// window is the period of the counter.
func (x *refusal) window(what string, limit int) (window string, is bool) {
	if kept := x.tables[x.track.table]; kept != nil {
		window = kept.rates[what]
	}
	switch {
	case what == "conn_cur":
		x.leftOut("connections at once of a source are limits.connections_per_source: %d; requests at once are a rule's concurrency", limit)
		return "", false
	case what == "http_req_cnt":
		x.leftOut("http_req_cnt has no equal: it counts for as long as its entry lives, and rules in a window")
		return "", false
	case what != "http_req_rate" && what != "http_err_rate":
		x.leftOut("%s has no equal: rules count requests", what)
		return "", false
	case x.tables[x.track.table] != nil && x.tables[x.track.table].twice:
		x.leftOut("the section %s has two stick tables, and may have one", x.track.table)
		return "", false
	case window == "":
		x.leftOut("no stick table %s with a %s is in this file", x.track.table, what)
		return "", false
	}
	if _, err := strconv.Atoi(window); err == nil {
		window += "ms" // HAProxy's unit
	}
	if days, is := strings.CutSuffix(window, "d"); is {
		h, _ := strconv.Atoi(days)
		window = fmt.Sprintf("%dh", 24*h)
	}
	return window, true
}

// write gives the rule its fields.
func (x *refusal) write(what string, limit int, window string) {
	c, rule := &x.cond, &x.rule
	key := x.track.key
	if sample, is := strings.CutPrefix(key, "?"); is {
		c.unknown = append(c.unknown, sample)
		if header := namedBy(sample); header != "" {
			rule.Notes = append(rule.Notes, namesClient(header))
		}
		key = "source"
	}
	rule.Name = x.name(x.front.name + "-" + what)
	rule.fields = yaml.MapSlice{{Key: "name", Value: rule.Name}}
	set := func(name string, v any) {
		rule.fields = append(rule.fields, yaml.MapItem{Key: name, Value: v})
	}
	if of, name, is := strings.Cut(key, ":"); is { // who has none is not counted by HAProxy
		field := map[string]string{"header": "headers", "cookie": "cookies", "query": "query"}[of]
		if !c.names(field, name) {
			c.put(&c.match, field, yaml.MapSlice{{Key: name, Value: "*"}}, key)
		}
	}
	if m := c.whole(); len(m) > 0 {
		set("match", m)
	}
	if key != "source" {
		set("key", key)
	}
	set("limit", limit)
	set("window", window)
	set("mitigation_timeout", "0s")
	if what == "http_err_rate" {
		set("count", yaml.MapSlice{{Key: "statuses", Value: []int{400, 401, 403, 404, 405, 410, 413,
			422, 429}}})
		rule.Notes = append(rule.Notes,
			"http_err_rate counts every answer of 400 to 499; here those that count are named")
	} else {
		// HAProxy counts before it refuses
		set("count", yaml.MapSlice{{Key: "refused", Value: true}})
	}
	switch verb := x.verbs[0]; verb {
	case "deny", "tarpit", "return":
		standard := 403
		if verb == "tarpit" {
			standard = 500
			rule.Notes = append(rule.Notes,
				"tarpit holds the connection before it answers; here it is refused at once")
		}
		if code := status(x.verbs, standard); code != 429 {
			set("response", yaml.MapSlice{{Key: "status", Value: code}})
		}
	default:
		set("action", "close")
	}
	if len(c.unknown) > 0 {
		rule.Notes = append(rule.Notes, noEqual(c.unknown))
		set("mode", "shadow")
	}
}
