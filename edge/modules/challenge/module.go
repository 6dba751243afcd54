package challenge

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
	"sluice/edge/metric"
	"sluice/edge/operator"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/pop/secret"
)

// passName is the fact whose pass a request shows: a kind of key.
const passName = "pass"

// A module is what all configurations have in common.
type module struct {
	keys Keys // of the PoP
	uses uses // of passes, by network

	mu      sync.Mutex
	counts  map[string]*counts // by the name of a rule; "": of no rule that is known
	paces   map[string]*pace   // likewise, of those with when
	inForce atomic.Pointer[points]
	watches chan struct{} // has one once a rule of a configuration has when
}

// counts are those of a rule.
type counts [results]atomic.Uint64

// result is what became of a question or a pass.
type result uint8

const (
	shown   result = iota // a client was asked
	solved                // an answer made a pass
	passed                // a request showed one that is good
	refused               // an answer, or a pass, is not good
	results
)

func (r result) String() string { return [...]string{"shown", "solved", "passed", "refused"}[r] }

// Module challenges. keys are those of the PoP's secret (secret.Secret.Passes); none: the process
// makes one, and nobody else reads its passes.
func Module(keys [][16]byte) edge.Module {
	m := &module{keys: keys, counts: make(map[string]*counts), watches: make(chan struct{}, 1)}
	if len(keys) == 0 {
		m.keys = Keys{{}}
		crand.Read(m.keys[0][:]) // it never fails
	}
	return edge.Module{Name: name, Prepare: m.prepare, Run: m.run, Collect: m.collect,
		Commands: []operator.Command{command()},
		Config: config.Module{
			Rule: func() any { return defaultRule() },
			Actions: []rules.OwnAction{{Name: Action, Apart: passName,
				Limit: func(c *rules.Config) uint32 { return ruleOf(c).PassLimit }}},
			Facts: []*key.Fact{{Name: passName}},
			Lacks: func(c *config.Config, _, _ string) error { return lacks(c) },
			Check: check, Weaknesses: weaknesses,
		}}
}

// lacks says why nobody has a pass under a configuration.
func lacks(c *config.Config) error {
	if slices.ContainsFunc(c.Rules, func(r rules.Config) bool {
		return r.Action == Action && r.Mode != rules.Off
	}) {
		return nil
	}
	return errors.New("nobody has a pass, because no rule asks for one: give action: challenge to a rule, or take another key")
}

// countsOf are a rule's, which go on from one configuration to the next.
func (m *module) countsOf(rule string) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[rule]
	if c == nil {
		c = new(counts)
		m.counts[rule] = c
	}
	return c
}

// paceOf is a rule's, which goes on from one configuration to the next while its bound stays.
func (m *module) paceOf(rule string, over time.Duration) *pace {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.paces[rule]; p != nil && p.over == over {
		return p
	}
	if m.paces == nil {
		m.paces = make(map[string]*pace)
	}
	m.paces[rule] = &pace{over: over}
	return m.paces[rule]
}

// prepare makes the points under a configuration; none where no rule challenges.
func (m *module) prepare(s *edge.Setup) (edge.Points, error) {
	of, err := m.under(s.Config)
	if err != nil {
		return edge.Points{}, err
	}
	of.setup = s
	of.fact.Lacks = func(string) error { return lacks(s.Config) }
	points := edge.Points{Facts: []*key.Fact{of.fact}, InForce: func() { m.putInForce(of) }}
	if len(of.rules) > 0 {
		points.Gates = []edge.Gate{{Phase: edge.Own, Answer: of.gate}}
		points.Actions = map[rules.Action]func(*edge.Exchange, *rules.Rule) bool{Action: of.ask}
	}
	if of.timed {
		points.Observers = []edge.Observer{{Watch: of.observe}}
	}
	return points, nil
}

// putInForce has requests under a configuration from now on.
func (m *module) putInForce(of *points) {
	m.inForce.Store(of)
	for _, r := range of.list {
		if r.pace != nil {
			select {
			case m.watches <- struct{}{}:
			default: // it is known
			}
		}
	}
}

// under makes the module's part of a configuration.
func (m *module) under(c *config.Config) (*points, error) {
	p := &points{module: m, keys: m.keys, unknown: m.countsOf(""), rules: make(map[string]*rule)}
	p.fact = &key.Fact{Name: passName, Find: p.find}
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action != Action || r.Mode == rules.Off {
			continue
		}
		own := ruleOf(r)
		var page []byte
		var err error
		if own.SecretFile != "" {
			if p.keys, err = keysOf(own.SecretFile); err != nil {
				return nil, fmt.Errorf("rule %s: secret_file: %w", r.Name, err)
			}
		}
		if own.Page != "" {
			if page, err = os.ReadFile(own.Page); err != nil {
				return nil, fmt.Errorf("rule %s: page: %w", r.Name, err)
			}
		}
		made := &rule{Rule: own, name: r.Name, id: ruleID(r.Name), counts: m.countsOf(r.Name)}
		if over := whenOf(r); over > 0 {
			made.pace = m.paceOf(r.Name, over)
			if !slices.ContainsFunc(r.Match.Hosts,
				func(host string) bool { return strings.Contains(host, "*") }) {
				made.hosts = r.Match.Hosts
			}
			p.timed = true
		}
		if made.page, err = NewPage(page, own.Contact); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		p.rules[r.Name] = made
		p.list = append(p.list, made)
	}
	return p, nil
}

// keysOf are the keys of a secret of challenges alone: PoPs that share it read each other's passes.
// Each line is one, of which the second is the one before.
func keysOf(file string) (keys Keys, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		switch line = bytes.TrimSpace(line); {
		case len(line) == 0:
		case len(line) < leastSecret:
			return nil, fmt.Errorf("%s has a line of %d bytes: want at least %d in each, as openssl rand -hex 32 makes them",
				file, len(line), leastSecret)
		default:
			keys = append(keys, secret.Of(line).Passes()...)
		}
	}
	if len(keys) < 1 || len(keys) > secret.MaxLines {
		return nil, fmt.Errorf("%s has %d secrets, one on each line: want one, or two while one replaces the other",
			file, len(keys))
	}
	return keys, nil
}

// leastSecret is as much as the PoP's must have.
const leastSecret = 16

// points are the module under one configuration.
type points struct {
	*module
	setup   *edge.Setup
	keys    Keys
	fact    *key.Fact        // whose pass a request shows
	rules   map[string]*rule // that challenge, by name
	list    []*rule          // the same
	unknown *counts          // of what no rule that is known has asked
	timed   bool             // one of them has when
}

// A rule is one that challenges, made ready.
type rule struct {
	*Rule
	name   string
	id     uint16
	page   *Page
	counts *counts
	// How fast origins answer for these hosts, by which it challenges everybody; nil: it never does
	pace  *pace
	hosts []string // none: all
}

// over is the latency over which the rule challenges everybody; 0: none.
func (r *rule) over() time.Duration {
	if r.pace == nil {
		return 0
	}
	return r.pace.over
}

// countsBy are those of the rule by which a question or a pass was made.
func (p *points) countsBy(id uint16) *counts {
	for _, r := range p.list {
		if r.id == id {
			return r.counts
		}
	}
	return p.unknown
}

// gate takes passes out of a request, and answers what the page sends. Each request asks it, so it
// looks at what is there first. Over TLS a pass that a neighbour may have set is none.
func (p *points) gate(x *edge.Exchange) bool {
	good := shows(x.Request)
	if good && x.Front().Secure() {
		takeOut(x.Request, false, func([]byte) {})
	}
	good = good && x.Known().Fact(p.fact) != nil
	if string(x.Path) != Path || x.Checks() {
		return false
	}
	switch string(x.Method) {
	case http.MethodPost:
		p.answer(x)
	case http.MethodGet, http.MethodHead:
		if !good {
			x.Respond(noPass)
			break
		}
		p.noContent(x)
	default:
		x.Respond(noMethod)
	}
	return true
}

var (
	noPass = message.Refuse(http.StatusForbidden, "challenge",
		"The request shows no pass that is good here.")
	noAnswer = message.Refuse(http.StatusForbidden, "challenge",
		"The answer is wrong, late, or to a question of another site. Load the page again.")
	noMethod = message.Refuse(http.StatusMethodNotAllowed, "bad_method",
		"Answers to challenges come by POST.").With("Allow", "GET, HEAD, POST")
	noStore = []byte("no-store")
)

// answer makes a pass of an answer.
func (p *points) answer(x *edge.Exchange) {
	text, _, _ := x.Head.Header([]byte(AnswerHeader))
	h := holderOf(x)
	pass, ok := p.keys.Answer(text, h, x.Now())
	if !ok {
		p.unknown[refused].Add(1)
		x.Respond(noAnswer)
		return
	}
	p.countsBy(pass.Rule)[solved].Add(1)
	p.noContent(x)
	room := x.Room()
	*room = appendCookie(*room, p.keys, pass, h, x.Front().Secure(), x.Now())
	x.Add("Set-Cookie", *room)
}

func (p *points) noContent(x *edge.Exchange) {
	x.Begin(http.StatusNoContent, "", nil)
	x.Add("Cache-Control", noStore)
}

func holderOf(x *edge.Exchange) Holder { return Holder{x.Host, x.Client()} }

// ask answers a request that a rule refuses for want of a pass.
func (p *points) ask(x *edge.Exchange, by *rules.Rule) bool {
	r, room := p.rules[by.Config.Name], x.Room()
	r.counts[shown].Add(1)
	language := languageOf(&x.Head)
	loads := string(x.Method) == http.MethodGet || string(x.Method) == http.MethodHead
	switch page := x.Head.SaysAccept() && x.Head.Quality("text/html") > x.Head.Quality("application/json"); {
	case !page:
		*room = appendJSON(*room, by, x.RetryAfter())
		x.Begin(r.Status, "application/json", *room)
	case loads:
		q := Question{Asked: x.Now(), PassFor: time.Duration(r.PassFor), Difficulty: r.Difficulty,
			Bound: r.Bind == "network", Networks: r.Networks, Rule: r.id}
		binary.LittleEndian.PutUint64(q.ID[:], rand.Uint64())
		*room = r.page.Append(*room, language, p.keys, q, holderOf(x))
		x.Begin(r.Status, "text/html; charset=utf-8", *room)
		x.Add("Content-Security-Policy", r.page.Policy)
	default: // nothing is ever sent again
		x.Begin(r.Status, "text/html; charset=utf-8", r.page.Words(language))
		x.Add("Content-Security-Policy", r.page.WordsPolicy)
	}
	x.Add("Vary", vary)
	return true
}

var vary = []byte("Accept, Accept-Language, Cookie")

// appendJSON appends what programs get.
func appendJSON(b []byte, r *rules.Rule, retry int64) []byte {
	b = append(b, `{"error":{"code":"challenge","rule":`...)
	b = append(b, r.Limits[0].Texts[0].Quoted...) // its name
	b = append(b, `,"message":"This is very busy. A browser that loads a page here gets a pass, `+
		`with which requests are let through. Without one, try again later.","retry_after":`...)
	return append(strconv.AppendInt(b, retry, 10), "}}\n"...)
}

// shows reports whether a request has a cookie that may be a pass.
func shows(q *message.Request) bool {
	for i := range q.Head.Lines {
		if l := &q.Head.Lines[i]; l.Kind == message.Cookie && !l.Drop &&
			bytes.Contains(l.Value, []byte(cookieName)) {
			return true
		}
	}
	return false
}

func (m *module) collect(to metric.Sink) {
	send := func(rule string, c *counts, results ...result) {
		for _, r := range results {
			to.Count(c[r].Load(), "sluice_challenges_total",
				"Challenges by the rule that asked: clients that were asked (shown), answers that made a pass (solved), requests with a good pass (passed), and passes and answers that were not good (refused), of which those that no rule of this edge has asked have none.",
				"rule", rule, "result", r.String())
		}
	}
	if p := m.inForce.Load(); p != nil {
		for _, r := range p.list {
			send(r.name, r.counts, shown, solved, passed, refused)
		}
	}
	send("", m.countsOf(""), refused)
}

// takeOut takes cookies out of a request.
func takeOut(q *message.Request, hosts bool, found func(value []byte)) {
	for i := range q.Head.Lines {
		l := &q.Head.Lines[i]
		if l.Kind != message.Cookie || l.Drop {
			continue
		}
		if left := cookies(l.Value, hosts, found); len(left) < len(l.Value) {
			l.Value, l.Drop = left, len(left) == 0
		}
	}
}

// find appends whose pass a request shows, if it is good, and takes passes out of the request: they
// are not for the origin.
func (p *points) find(buf []byte, v *key.View) []byte {
	tried, good := 0, false
	var last Pass // that was an edge's, good or not
	takeOut(v.Request, true, func(value []byte) {
		if tried++; tried > passesMost || good {
			return // one is enough
		}
		pass, ok := p.keys.Pass(value, Holder{v.Request.Host, v.Client}, v.At)
		if pass.ID != (ID{}) {
			last = pass
		}
		if good = ok && p.uses.within(&pass, v.Client, v.At); good {
			buf = append(buf, pass.ID[:]...)
		}
	})
	switch c := p.countsBy(last.Rule); {
	case good:
		c[passed].Add(1)
	case last.ID != ID{}:
		c[refused].Add(1)
	case tried > 0:
		p.unknown[refused].Add(1)
	}
	return buf
}
