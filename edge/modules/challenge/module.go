package challenge

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
	"sluice/edge/metric"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/pop/secret"
)

// Settings are what a configuration says of all challenges.
type Settings struct {
	Page       string `json:"page" want:"file"`        // in place of the edge's own
	Contact    string `json:"contact"`                 // whom to ask, on the page
	SecretFile string `json:"secret_file" want:"file"` // of passes; none: the PoP's
}

// Rule is what a rule says of its own.
type Rule struct {
	Difficulty int            `json:"difficulty" want:"1 to 20"`
	PassFor    rules.Duration `json:"pass_for" want:"1m to 24h"`
	PassLimit  uint32         `json:"pass_limit" want:"1 to 1000000"`
	Bind       string         `json:"bind" want:"none or network"`
	Status     int            `json:"status" want:"400 to 503"`
}

func defaultRule() *Rule {
	return &Rule{Difficulty: DefaultDifficulty, PassFor: rules.Duration(time.Hour), PassLimit: 60,
		Bind: "none", Status: http.StatusTooManyRequests}
}

// Action is what rules say to have requests challenged.
const Action rules.Action = "challenge"

const name = "challenge"

// ruleOf is what a rule says.
func ruleOf(c *rules.Config) *Rule {
	if own, is := c.Own[name].(*Rule); is {
		return own
	}
	return defaultRule()
}

// passName is the fact whose pass a request shows: a kind of key.
const passName = "pass"

// A module is what all configurations have in common.
type module struct {
	keys   Keys // of the PoP
	counts [results]atomic.Uint64
}

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
	m := &module{keys: keys}
	if len(keys) == 0 {
		m.keys = Keys{{}}
		crand.Read(m.keys[0][:]) // it never fails
	}
	return edge.Module{Name: name, Prepare: m.prepare, Collect: m.collect,
		Config: config.Module{
			Settings: func() any { return new(Settings) },
			Rule:     func() any { return defaultRule() },
			Actions: []rules.OwnAction{{Name: Action, Apart: passName,
				Limit: func(c *rules.Config) uint32 { return ruleOf(c).PassLimit }}},
			Facts: []*key.Fact{{Name: passName}},
			Check: check, Weaknesses: weaknesses,
		}}
}

// check returns what is wrong with the rules that challenge.
func check(c *config.Config) error {
	said, _ := c.Settings[name].(*Settings)
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action != Action {
			if r.Own[name] != nil {
				return fmt.Errorf("rule %s: challenge: only action: challenge asks anything: add it, or remove challenge", r.Name)
			}
			continue
		}
		switch own := ruleOf(r); {
		case r.Match.Descriptors != nil:
			return fmt.Errorf("rule %s: action: challenge asks browsers, and a rule about descriptors answers a proxy: take refuse", r.Name)
		case r.Algorithm != rules.Sliding && r.Algorithm != rules.Fixed:
			return fmt.Errorf("rule %s: action: challenge counts in sliding or fixed windows, not by %s: take one of them, or another action", r.Name, r.Algorithm)
		case r.Concurrency > 0:
			return fmt.Errorf("rule %s: action: challenge asks who is over a limit, and requests in flight end by themselves: give concurrency to a rule of its own", r.Name)
		case r.HasPlans():
			return fmt.Errorf("rule %s: action: challenge asks browsers, which are on no plan: give plans to a rule of their own", r.Name)
		case own.Status != 429 && own.Status != 403 && own.Status != 503:
			return fmt.Errorf("rule %s: challenge.status: %d is not possible: want 429, 403 or 503",
				r.Name, own.Status)
		case len(c.PoP.Memcached) > 0 && c.PoP.SecretFile == "" && (said == nil || said.SecretFile == ""):
			return fmt.Errorf("rule %s: action: challenge needs a secret that nobody can guess, or anybody makes passes: give pop.secret_file, or challenge.secret_file", r.Name)
		}
	}
	return nil
}

// fewSources are as few as an attacker has, who would have everybody challenged.
const fewSources = 5

// weaknesses are rules that challenge everybody as soon as a few sources want it.
func weaknesses(c *config.Config) (all []string) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action != Action || r.Mode == rules.Off || slices.Equal(r.Key, []string{"source"}) {
			continue
		}
		least, of := math.MaxInt, ""
		for _, o := range c.BySource(r) {
			if n := perWindow(o, r.Window); n < least {
				least, of = n, o.Name
			}
		}
		if of == "" {
			all = append(all, fmt.Sprintf("rule %s challenges all clients of a key once it is over, and one source can bring it there, because no rule refuses these requests by source: add one with key: source and a limit below %d",
				r.Name, r.Limit))
		} else if n := int(r.Limit)/least + 1; n < fewSources {
			all = append(all, fmt.Sprintf("rule %s challenges all clients of a key once it is over, and that takes no more than %d sources at their limit (rule %s): lower that limit, or raise this one",
				r.Name, n, of))
		}
	}
	return all
}

// perWindow is how many requests a rule by source admits of one in a window.
func perWindow(o *rules.Config, window rules.Duration) int {
	if o.Window >= window {
		return int(o.Limit)
	}
	return int(math.Ceil(float64(o.Limit) * float64(window) / float64(o.Window)))
}

// prepare makes the points under a configuration; none where no rule challenges.
func (m *module) prepare(s *edge.Setup) (edge.Points, error) {
	asks := false
	for i := range s.Config.Rules {
		asks = asks || s.Config.Rules[i].Action == Action && s.Config.Rules[i].Mode != rules.Off
	}
	if !asks {
		return edge.Points{}, nil
	}
	of, err := m.under(s.Config)
	if err != nil {
		return edge.Points{}, err
	}
	return edge.Points{
		Gates:   []edge.Gate{{Phase: edge.Own, Answer: of.gate}},
		Facts:   []*key.Fact{of.fact},
		Actions: map[rules.Action]func(*edge.Exchange, *rules.Rule) bool{Action: of.ask},
	}, nil
}

// under makes the module's part of a configuration.
func (m *module) under(c *config.Config) (*points, error) {
	p := &points{module: m, keys: m.keys}
	p.fact = &key.Fact{Name: passName, Find: p.find}
	said, _ := c.Settings[name].(*Settings)
	if said == nil {
		said = new(Settings)
	}
	var own []byte
	var err error
	if said.SecretFile != "" {
		if p.keys, err = keysOf(said.SecretFile); err != nil {
			return nil, fmt.Errorf("secret_file: %w", err)
		}
	}
	if said.Page != "" {
		if own, err = os.ReadFile(said.Page); err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
	}
	p.page, err = NewPage(own, said.Contact)
	return p, err
}

// keysOf are the keys of a secret of challenges alone: PoPs that share it read each other's passes.
func keysOf(file string) (Keys, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastSecret {
		return nil, fmt.Errorf("%s has %d bytes: want at least %d, as openssl rand -hex 32 makes them",
			file, len(text), leastSecret)
	}
	return secret.Of(text).Passes(), nil
}

// leastSecret is as much as the PoP's must have.
const leastSecret = 16

// points are the module under one configuration.
type points struct {
	*module
	keys Keys
	page *Page
	fact *key.Fact // whose pass a request shows
}

// gate takes passes out of a request, and answers what the page sends. Each request asks it, so it
// looks at what is there first.
func (p *points) gate(x *edge.Exchange) bool {
	shows := p.shows(x.Request)
	good := false
	if shows {
		good = x.Known().Fact(p.fact) != nil // before it is taken out
		p.each(x.Request, func([]byte) {})
		if good {
			p.counts[passed].Add(1)
		} else {
			p.counts[refused].Add(1)
		}
	}
	if string(x.Path) != Path {
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
		p.counts[refused].Add(1)
		x.Respond(noAnswer)
		return
	}
	p.counts[solved].Add(1)
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
func (p *points) ask(x *edge.Exchange, r *rules.Rule) bool {
	p.counts[shown].Add(1)
	own, room := ruleOf(&r.Config), x.Room()
	language := languageOf(&x.Head)
	loads := string(x.Method) == http.MethodGet || string(x.Method) == http.MethodHead
	switch page := x.Head.SaysAccept() && x.Head.Quality("text/html") > x.Head.Quality("application/json"); {
	case !page:
		*room = appendJSON(*room, r)
		x.Begin(own.Status, "application/json", *room)
	case loads:
		q := Question{Asked: x.Now(), PassFor: time.Duration(own.PassFor),
			Difficulty: own.Difficulty, Bound: own.Bind == "network"}
		binary.LittleEndian.PutUint64(q.ID[:], rand.Uint64())
		*room = p.page.Append(*room, language, p.keys, q, holderOf(x))
		x.Begin(own.Status, "text/html; charset=utf-8", *room)
		x.Add("Content-Security-Policy", p.page.Policy)
	default: // nothing is ever sent again
		x.Begin(own.Status, "text/html; charset=utf-8", p.page.Words(language))
		x.Add("Content-Security-Policy", p.page.WordsPolicy)
	}
	x.Add("Vary", vary)
	return true
}

var vary = []byte("Accept, Accept-Language, Cookie")

// appendJSON appends what programs get.
func appendJSON(b []byte, r *rules.Rule) []byte {
	b = append(b, `{"error":{"code":"challenge","rule":`...)
	b = append(b, r.Limits[0].Texts[0].Quoted...) // its name
	return append(b, `,"message":"This is very busy. A browser that loads a page here gets a pass, `+
		`with which requests are let through. Without one, try again later."}}`+"\n"...)
}

// shows reports whether a request has a cookie that may be a pass.
func (p *points) shows(q *message.Request) bool {
	for i := range q.Head.Lines {
		if l := &q.Head.Lines[i]; l.Kind == message.Cookie && !l.Drop &&
			bytes.Contains(l.Value, []byte(cookieName)) {
			return true
		}
	}
	return false
}

func (m *module) collect(to metric.Sink) {
	for r := range results {
		to.Count(m.counts[r].Load(), "sluice_challenges_total",
			"Challenges: clients that were asked (shown), answers that made a pass (solved), requests with a good pass (passed), and passes and answers that were not good (refused).",
			"result", r.String())
	}
}

// find appends whose pass a request shows, if it is good.
func (p *points) find(buf []byte, v *key.View) []byte {
	is := false
	p.each(v.Request, func(value []byte) {
		if is {
			return // one is enough
		}
		var pass Pass
		pass, is = p.keys.Pass(value, Holder{v.Request.Host, v.Client}, time.Now())
		if is {
			buf = append(buf, pass.ID[:]...)
		}
	})
	return buf
}

// each calls found for each pass that a request shows, and takes them out of it: they are not for
// the origin.
func (p *points) each(q *message.Request, found func(value []byte)) {
	tried := 0
	for i := range q.Head.Lines {
		l := &q.Head.Lines[i]
		if l.Kind != message.Cookie || l.Drop {
			continue
		}
		left := cookies(l.Value, func(value []byte) {
			if tried++; tried <= passesMost {
				found(value)
			}
		})
		if len(left) < len(l.Value) {
			l.Value, l.Drop = left, len(left) == 0
		}
	}
}
