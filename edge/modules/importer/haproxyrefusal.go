package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	x.haproxyFile.leftOut(x.line.mention(), format, args...)
}

// use adds what a condition asks, and keeps its first test of a counter.
func (x *refusal) use(cond []string) {
	for _, term := range terms(cond) {
		tests := x.front.acls[term.acl]
		if tests == nil && predefined[term.acl] != nil {
			tests = [][]string{predefined[term.acl]}
		}
		switch one := oneTest(tests); {
		case term.test != nil:
			x.test(term.not, term.test)
		case one != nil:
			x.test(term.not, one)
		case len(tests) > 0 && term.not: // none of them
			for _, test := range tests {
				x.test(true, test)
			}
		case term.not:
			x.cond.unknown = append(x.cond.unknown, "!"+term.acl)
		default:
			x.cond.unknown = append(x.cond.unknown, term.acl)
		}
	}
}

func (x *refusal) test(not bool, test []string) {
	if m := ofAddress.FindStringSubmatch(word(test, 0)); m != nil {
		test = slices.Clone(test)
		test[0] = "src_" + m[1] + "(" + m[2] + ")"
	}
	if counterTest.MatchString(word(test, 0)) && !not && x.counter == nil {
		x.counter = test
		return
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
			x.rule.Notes = append(x.rule.Notes, fmt.Sprintf("a variable or a converter of HAProxy "+
				"carries this limit: %d is what this file shows of it", limit))
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
	x.add(x.rule, x.cond.unknown)
}

// findTrack finds what the counter is of.
func (x *refusal) findTrack(m []string) bool {
	args := strings.Split(m[4], ",")
	if m[1] == "src_" {
		return x.findAddresses(cmp.Or(args[0], x.front.name))
	}
	slot := m[2]
	if m[1] == "sc_" {
		slot, args = args[0], args[1:]
	}
	if x.track = x.front.tracks[slot]; x.track.key == "" {
		x.leftOut("nothing above it in this section is tracked in sc%s", slot)
		return false
	}
	x.track.table = cmp.Or(word(args, 0), x.track.table)
	if x.useOnly(x.track.cond); x.track.again {
		x.cond.unknown = append(x.cond.unknown, "sc"+slot+", which several lines fill")
	}
	return true
}

// findAddresses finds what is counted by address in a table.
func (x *refusal) findAddresses(table string) bool {
	x.track = track{key: "source", table: table}
	by := slices.DeleteFunc(slices.Clone(x.tracks[table]),
		func(o track) bool { return o.key != "source" })
	switch {
	case len(by) == 0:
		x.leftOut("no line of this file counts addresses in the table %s, so it refuses nobody",
			table)
		return false
	case slices.ContainsFunc(by, func(o track) bool { return o.cond == nil }):
	case len(by) == 1 && by[0].section.name == x.front.name:
		x.useOnly(by[0].cond)
	default:
		x.cond.unknown = append(x.cond.unknown, "which requests are counted in "+table)
	}
	return true
}

// noteOthers notes that HAProxy counts more requests than the rule.
func (x *refusal) noteOthers(what string) {
	refused := x.cond
	x.cond = condition{}
	x.useOnly(x.track.cond)
	counted := x.cond.requests()
	x.cond = refused
	if what == "http_req_rate" && slices.ContainsFunc(refused.requests(),
		func(field string) bool { return !slices.Contains(counted, field) }) {
		x.rule.Notes = append(x.rule.Notes, "HAProxy counts the client's other requests too; "+
			"here the rule counts those that it may refuse")
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
	kept := x.tables[x.track.table]
	if kept != nil {
		window = kept.rates[what]
	}
	switch {
	case what == "conn_cur":
		x.leftOut("connections at once of a source are limits.connections_per_source: %d; "+
			"requests at once are a rule's concurrency", limit)
	case what == "http_req_cnt":
		x.leftOut("http_req_cnt has no equal: it counts for as long as its entry lives, " +
			"and rules in a window")
	case what != "http_req_rate" && what != "http_err_rate":
		x.leftOut("%s has no equal: rules count requests", what)
	case kept != nil && kept.twice:
		x.leftOut("the section %s has two stick tables, and may have one", x.track.table)
	case window == "":
		x.leftOut("no stick table %s with a %s is in this file", x.track.table, what)
	default:
		return inGo(window), true
	}
	return "", false
}

// inGo is a period of HAProxy as a rule has it.
func inGo(period string) string {
	if _, err := strconv.Atoi(period); err == nil {
		return period + "ms"
	}
	if days, is := strings.CutSuffix(period, "d"); is {
		n, _ := strconv.Atoi(days)
		return fmt.Sprintf("%dh", 24*n)
	}
	return period
}

// write gives the rule its fields.
func (x *refusal) write(what string, limit int, window string) {
	c, rule, key := &x.cond, &x.rule, x.track.key
	if sample, is := strings.CutPrefix(key, "?"); is {
		c.unknown = append(c.unknown, sample)
		if header := namedBy(sample); header != "" {
			rule.Notes = append(rule.Notes, namesClient(header))
		}
		key = "source"
	}
	c.counted(key, key)
	x.begin(rule, x.front.name+"-"+what, c.whole())
	if key != "source" {
		rule.set("key", key)
	}
	rule.set("limit", limit)
	rule.set("window", window)
	rule.set("mitigation_timeout", "0s")
	if what == "http_err_rate" {
		rule.set("count", named("statuses", []int{400, 401, 403, 404, 405, 410, 413, 422, 429}))
		rule.Notes = append(rule.Notes,
			"http_err_rate counts every answer of 400 to 499; here those that count are named")
	} else {
		// HAProxy counts before it refuses
		rule.set("count", named("refused", true))
	}
	standard := 403
	switch x.verbs[0] {
	case "tarpit":
		standard = 500
		rule.Notes = append(rule.Notes,
			"tarpit holds the connection before it answers; here it is refused at once")
	case "reject", "silent-drop":
		rule.set("action", "close")
		return
	}
	if code := status(x.verbs, standard); code != 429 {
		rule.set("response", named("status", code))
	}
}
