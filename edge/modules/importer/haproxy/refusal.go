package haproxy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// refusal is the rule of a line that refuses by a counter, of one alternative of its condition.
func (f *file) refusal(s *frontend, l line, cond clause) (x limit.Rule, err error) {
	x.Mention = l.Mention
	var counter []string // its test: what, and how it compares
	s.understand(&x.Cond, cond, &counter)
	var t track
	if counter == nil {
		if counter, t = f.carried(s, cond); counter != nil {
			x.NoteThat("a variable or a converter of HAProxy carries this limit: %s is what this "+
				"file shows of it", counter[2])
		}
	}
	if counter == nil || cond[0].acl == "unless" {
		return x, errors.New("what it counts is not understood")
	}
	for _, passed := range s.passed[l.about] {
		if len(passed) == 0 {
			return x, errors.New("a line above it lets all requests pass")
		}
		s.except(&x.Cond, passed)
	}
	m := counterTest.FindStringSubmatch(counter[0])
	if t.table == "" {
		if t, err = f.tracked(s, &x.Cond, m); err != nil {
			return x, err
		}
	}
	var counted limit.Condition
	s.understand(&counted, t.cond, nil)
	what := m[3]
	if what == "http_req_rate" && requests(x.Cond) > requests(counted) {
		x.NoteThat("HAProxy counts the client's other requests too; here the rule counts those " +
			"that it may refuse")
	}
	if x.Most, err = mostOf(counter); err != nil {
		return x, err
	}
	if x.Window, err = f.window(t.table, what, x.Most); err != nil {
		return x, err
	}
	key := cmp.Or(t.key, "source")
	if t.key == "" {
		x.Cond.Unknown = append(x.Cond.Unknown, t.sample)
		if header := namedBy(t.sample); header != "" {
			x.Notes = append(x.Notes, limit.NamesClient(header))
		}
	}
	if x.Cond.Counted(key, key); key != "source" {
		x.Key = key
	}
	x.Name = s.name + "-" + what
	x.Count = limit.Named("refused", true) // HAProxy counts before it refuses
	if what == "http_err_rate" {
		x.Count = limit.Named("statuses", []int{400, 401, 403, 404, 405, 410, 413, 422, 429})
		x.NoteThat("http_err_rate counts every answer of 400 to 499; " +
			"here those that count are named")
	}
	standard := refusing[l.verbs[0]]
	if x.Status, x.Closes = l.status(standard), standard == 0; l.verbs[0] == "tarpit" {
		x.NoteThat("tarpit holds the connection before it answers; here it is refused at once")
	}
	return x, nil
}

// carried is the test of a condition where a variable or a converter of HAProxy carries the count
// or the limit, as one of a counter, and who is counted; nil: the limit is not known.
func (f *file) carried(s *frontend, cond clause) (counter []string, t track) {
	for _, term := range cond {
		if term.not {
			continue
		}
		for _, test := range s.tests(term) {
			text := f.expanded(strings.Join(test, " "))
			m := carriedCount.FindStringSubmatch(text)
			if m == nil || m[1] == "" && !strings.Contains(text, "var(") {
				continue
			}
			t = track{key: "source", table: s.name}
			if m[1] != "" {
				name, _, _ := strings.Cut(m[3], ",")
				t.key, t.sample, t.table = keyOf(m[1]), m[1], cmp.Or(name, s.name)
			}
			most, _ := mostOf(test)
			if d := carriedDefault.FindStringSubmatch(text); d != nil {
				most, _ = strconv.Atoi(d[1])
			}
			if most <= 0 {
				return nil, track{}
			}
			return []string{"src_" + m[2], "gt", strconv.Itoa(most)}, t
		}
	}
	return nil, t
}

// mostOf is the number that the counter of a test may reach.
func mostOf(test []string) (n int, err error) {
	operator := slices.DeleteFunc(slices.Clone(test[1:]),
		func(w string) bool { return w == "-m" || w == "int" })
	if len(operator) != 2 || operator[0] != "gt" && operator[0] != "ge" {
		return 0, errors.New("want gt or ge, and one number, for a limit")
	}
	if n, err = strconv.Atoi(operator[1]); err != nil {
		return 0, errors.New("what it compares the counter with is no number")
	}
	if operator[0] == "ge" {
		n--
	}
	return n, nil
}

// tracked is who is counted by a counter. Which requests of theirs are is added to a condition.
func (f *file) tracked(s *frontend, c *limit.Condition, m []string) (t track, err error) {
	args := strings.Split(m[4], ",")
	if strings.HasPrefix(m[1], "src") {
		return f.addresses(s, c, cmp.Or(args[0], s.name))
	}
	slot := m[2]
	if m[1] == "sc_" {
		slot, args = args[0], args[1:]
	}
	t, is := s.tracks[slot]
	if !is {
		return t, fmt.Errorf("nothing above it in this section is tracked in sc%s", slot)
	}
	t.table = cmp.Or(word(args, 0), t.table)
	if s.understand(c, t.cond, nil); t.again {
		c.Unknown = append(c.Unknown, "sc"+slot+", which several lines fill")
	}
	return t, nil
}

// addresses are those that are counted in a table.
func (f *file) addresses(s *frontend, c *limit.Condition, table string) (t track, err error) {
	by := slices.DeleteFunc(slices.Clone(f.tracks[table]),
		func(o track) bool { return o.key != "source" })
	switch {
	case len(by) == 0:
		return t, fmt.Errorf("no line of this file counts addresses in the table %s, so it "+
			"refuses nobody", table)
	case slices.ContainsFunc(by, func(o track) bool { return o.cond == nil }):
	case len(by) == 1 && by[0].section.name == s.name:
		s.understand(c, by[0].cond, nil)
	default:
		c.Unknown = append(c.Unknown, "which requests are counted in "+table)
	}
	return track{key: "source", table: table}, nil
}

// window is the period of a counter, as a rule has it.
func (f *file) window(name, what string, most int) (string, error) {
	kept := f.tables[name]
	switch {
	case what == "conn_cur":
		return "", fmt.Errorf("connections at once of a source are limits.connections_per_source: "+
			"%d; requests at once are a rule's concurrency", most)
	case what == "http_req_cnt":
		return "", errors.New("http_req_cnt has no equal: it counts for as long as its entry " +
			"lives, and rules in a window")
	case what != "http_req_rate" && what != "http_err_rate":
		return "", fmt.Errorf("%s has no equal: rules count requests", what)
	case kept != nil && kept.twice:
		return "", fmt.Errorf("the section %s has two stick tables, and may have one", name)
	case kept == nil || kept.rates[what] == "":
		return "", fmt.Errorf("no stick table %s with a %s is in this file", name, what)
	}
	period := kept.rates[what]
	if _, err := strconv.Atoi(period); err == nil {
		return period + "ms", nil
	}
	if days, is := strings.CutSuffix(period, "d"); is {
		n, _ := strconv.Atoi(days)
		return fmt.Sprintf("%dh", 24*n), nil
	}
	return period, nil
}

// requests are how many fields tell requests of one client apart.
func requests(c limit.Condition) (n int) {
	for _, item := range slices.Concat(c.Match, c.Not) {
		if item.Key != "sources" {
			n++
		}
	}
	return n
}
