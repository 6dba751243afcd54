// Package rules finds the rules that a request is under, and the source that each of them counts:
// by host, path and method, all in canonical form, by headers, cookies and parameters, by the
// address that is believed, and by keys that are made of what the origin gets. What is decided then
// is the limiter's.
//
// A Set is immutable and swapped whole. Hosts and paths are looked up, so ten thousand rules cost
// little more than ten; of a path that origins read in several ways every reading is looked up.
package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/answercost"
	"sluice/edge/limiter"
	"sluice/edge/limiter/shedding"
	"sluice/edge/limitfields"
	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/mitigation"
)

// A Rule is one RuleConfig made ready for the request path. It is immutable but for its tallies,
// which are shared with the rule of the same name in the snapshots before and after.
type Rule struct {
	limiter.Rule
	Config Config
	Parts  []key.Part        // nil: the source itself
	when   *match.Conditions // nil: none
	share  uint64            // percent of sources that the rule is about; 0: all
	// What parts say, each in one spelling: the same of all rules with the same parts
	key string
	// How many characters of the key are shown: as many as one of the rules with the same parts
	// says
	shows int
	Tally *Tally
	Place int      // in Set.Rules; less than 0: it is a variant, or only tried
	plans *planned // nil: the rule does not use plans
	// Of a rule without plans, for clients that have a limit of their own; nil: none can have one
	own *planned
	of  *Rule // the rule that this is a variant of; nil: none
	// Limits are what a request must be within, one of them if the rule has neither windows nor
	// prefixes. The first is Rule itself.
	Limits  []Limit
	several bool // not only the request's own source under Rule
	// By which requests that have it are counted in place of Limits, but for the last, which is for
	// them; nil: none are
	apart *key.Fact
	slow  bool // a part is a fact that may take long to find out
	tag   message.Field
	level shedding.Level // of a request under it; a shadow sets none
	queue time.Duration

	// Of a rule about descriptors: the entry that holds the source's address; less than 0: none
	address int
	// Of a rule about descriptors: what counts for limits that proxies send, by their unit
	Asked []*algorithm.Spec

	reads []answercost.Path // of an answer's body: what requests cost

	Headers []Header // of its refusals, beside the usual ones

	Crowded *Text // the answer for requests that find no slot; nil: it has no concurrency
}

// AsksTier reports whether each request under the rule waits for the tier before its verdict.
func (r *Rule) AsksTier() bool { return r.Exact != nil || r.InFlight != nil }

// Stalls reports whether the verdict on a request under the rule may have to wait: for the tier,
// its turn, or a fact.
func (r *Rule) Stalls() bool {
	return r.AsksTier() || r.FirstSight == limiter.Wait || r.Config.Action == Delay ||
		r.Config.Algorithm == LeakyBucket || r.slow
}

// IsSlow reports whether the rule counts by a fact that may take long to find out.
func (r *Rule) IsSlow() bool { return r.slow }

// newRule completes a rule. Its counters are named by all that makes their numbers mean something
// else: the rule's name, its key, and whether it enforces, because a shadow counts what it would
// have admitted.
func newRule(c Config, defaults Defaults) (*Rule, error) {
	r := &Rule{Config: c, Rule: limiter.Rule{
		Rule: mitigation.Rule{Name: c.Name, Timeout: time.Duration(c.MitigationTimeout),
			Shadow: c.Mode == Shadow || defaults.Shadow},
		Statuses: c.Count.Statuses, Refused: c.Count.Refused,
		OnStoreFailure: c.OnStoreFailure, FirstSight: c.FirstSight,
		Tag: c.Action == Tag, Costs: c.Cost.Is(),
	}}
	if r.Rule.Tag {
		r.tag = message.Field{Name: c.Tag.Header, Value: []byte(c.Tag.Value)}
	}
	for _, text := range c.Cost.JSON {
		path, err := answercost.ParsePath(text)
		if err != nil {
			return nil, fmt.Errorf("rule %s: cost.json: %q: %w", c.Name, text, err)
		}
		r.reads = append(r.reads, path)
	}
	if len(c.Escalate) > 0 {
		r.Repeat.Within = time.Duration(c.EscalateWithin)
		for _, t := range c.Escalate {
			r.Repeat.Timeouts = append(r.Repeat.Timeouts, time.Duration(t))
		}
	}
	if r.Shadow {
		r.Config.Mode = Shadow
	} else {
		r.level, r.queue = c.Priority.level(), time.Duration(c.Queue)
	}
	if !slices.Equal(c.Key, []string{"source"}) {
		var spelled []string
		for _, text := range c.Key {
			part, err := key.Parse(text, defaults.Facts...)
			if err != nil {
				return nil, fmt.Errorf("rule %s: key: %w", c.Name, err)
			}
			r.Parts = append(r.Parts, part)
			r.slow = r.slow || part.Fact() != nil && part.Fact().Slow
			if err := part.Check(); err != nil {
				return nil, fmt.Errorf("rule %s: key: %w", c.Name, err)
			}
			spelled = append(spelled, part.String())
		}
		r.key = strings.Join(spelled, ",")
	}
	estimate := defaults.Estimate
	if c.Estimate != nil {
		estimate = *c.Estimate
	}
	if c.Algorithm != Sliding || c.Limit == 0 {
		estimate = algorithm.Nearest // there is none to choose
	}
	r.Config.Estimate = &estimate
	err := r.Config.Match.Compile()
	if err != nil {
		return nil, fmt.Errorf("rule %s: path: %w", c.Name, err)
	}
	var apart uint32
	if r.apart, apart, err = defaults.apart(&c); err != nil {
		return nil, fmt.Errorf("rule %s: action: %w", c.Name, err)
	}
	if r.when, err = match.NewConditions(&r.Config.Match, defaults.Facts); err != nil {
		return nil, fmt.Errorf("rule %s: match: %w", c.Name, err)
	}
	if field, err := c.CheckAlgorithm(); err != nil {
		return nil, fmt.Errorf("rule %s: %s: %w", c.Name, field, err)
	}
	if r.Headers, err = c.Response.headers(); err != nil {
		return nil, fmt.Errorf("rule %s: response.headers: %w", c.Name, err)
	}
	r.Rule.Everybody = r.apart != nil
	if err = r.addLimits(estimate, apart); err != nil {
		return nil, fmt.Errorf("rule %s: %w", c.Name, err)
	}
	if err = r.addConcurrency(); err != nil {
		return nil, fmt.Errorf("rule %s: %w", c.Name, err)
	}
	if c.Share < 1 || c.Share > 100 {
		return nil, fmt.Errorf("rule %s: share %d: want 1 to 100", c.Name, c.Share)
	}
	r.share = uint64(c.Share % 100)
	if c.ShowKey < 0 || c.ShowKey > key.MaxStart {
		return nil, fmt.Errorf("rule %s: show_key %d: want 0 to %d", c.Name, c.ShowKey,
			key.MaxStart)
	}
	if c.ShowKey > 0 && r.Parts == nil {
		return nil,
			fmt.Errorf("rule %s: show_key: the rule counts by address, which everybody sees whole: remove it, or give the rule a key", c.Name)
	}
	if c.HasPlans() {
		if r.plans, err = newPlanned(&c, defaults.Plans); err != nil {
			return nil, fmt.Errorf("rule %s: %w", c.Name, err)
		}
	} else if _, counted := defaults.Plans.KeyOf(&c); counted && defaults.Plans.Key != "" {
		if r.own, err = newPlanned(&c, defaults.Plans); err != nil {
			return nil, fmt.Errorf("rule %s: %w", c.Name, err)
		}
	}
	if c.Match.Descriptors != nil {
		if err := r.described(); err != nil {
			return nil, fmt.Errorf("rule %s: match.descriptors: %w", c.Name, err)
		}
	}
	return r, nil
}

// addNames adds the names of what the rule reads of a request.
func (r *Rule) addNames(names *key.Names) {
	for i := range r.Parts {
		names.Add(&r.Parts[i])
	}
	if r.plans != nil {
		names.Add(&r.plans.key[0])
	}
	if r.own != nil {
		names.Add(&r.own.key[0]) // which r.Parts have added: this finds its place
	}
	r.when.AddNames(names)
}

// KeyName is what the rule counts by, in one spelling; "": addresses, or descriptors. Set.Spelled
// is that for operators.
func (r *Rule) KeyName() string {
	if r.key == "" || r.Config.Match.Descriptors != nil {
		return ""
	}
	return r.key
}

// IsAbout reports whether a source, as the rule counts it, is among those that the rule is about
// (share). All edges with the PoP's secret agree, and a source within a share is within a larger
// one.
func (r *Rule) IsAbout(secret key.Secret, source counter.Source) bool {
	return r.share == 0 || secret.IsWithin(r.share, r.Config.Name, source)
}

// IsSure reports whether the rule counts a source's request for that source, whatever its headers.
func (r *Rule) IsSure(secret key.Secret, source counter.Source) bool {
	return r.Parts == nil && r.when == nil && r.plans == nil && r.apart == nil &&
		r.IsAbout(secret, source)
}

// Everybody is a source that is nobody's: what operators have in force against it under a rule that
// has an action for everybody (ForEverybody) is against all that come under the rule.
var Everybody = counter.SourceOfDigest([16]byte{})

// ForEverybody reports whether what the rule does to who is over its limit may be done to all:
// there is something by which clients are let through.
func (r *Rule) ForEverybody() bool { return r.apart != nil }

// Arguments are those of a fact by which rules that are not off count.
func (s *Set) Arguments(f *key.Fact) (list []string) {
	for _, r := range slices.Concat(s.Rules, s.Trials) {
		for _, p := range r.Parts {
			if p.Fact() == f {
				list = append(list, p.Argument())
			}
		}
	}
	return list
}

// Tags are the names of headers by which rules that are not off tag requests.
func (s *Set) Tags() (names [][]byte) {
	for _, r := range s.Rules {
		if r.Rule.Tag {
			names = append(names, []byte(strings.ToLower(r.tag.Name)))
		}
	}
	return names
}

// Text is what answers under a limit say every time, made once.
type Text struct {
	Quoted []byte // "login"
	Policy []byte // "login";q=5;w=60; an item for each of the rule's limits
	Limit  []byte
	Body   []byte // "limit":5,"window":60,"scope":"source"
	Each   uint64 // how many of the policy's units one of the limit is
	// Of the rule's key, if a client may be told what of its request that is; nil: it is not told
	Partition []key.Part
}

// newText makes the text of a limit for clients of one family, of the rule whose policy that is.
func newText(l *Limit, policy []byte, v4 bool) Text {
	width := l.v6
	if v4 {
		width = l.v4
	}
	_, each := l.Parent.Config.Cost.unit()
	text := Text{
		Quoted: limitfields.AppendName(nil, l.Policy),
		Policy: policy,
		Each:   each,
		// Of a bucket as much as it holds, and when that has drained
		Limit: strconv.AppendUint(nil, uint64(l.Counter.Limit), 10),
		Body: fmt.Appendf(nil, `"limit":%d,"window":%d,"scope":%s`, l.Counter.Limit,
			limitfields.Seconds(l.Counter.Window), l.scope(width)),
	}
	if !l.apart && key.AreOpen(l.Parent.Parts) {
		text.Partition = l.Parent.Parts
	}
	return text
}

// scope is what the limit counts apart, as JSON: its rule's key as the configuration has it,
// and never what a client sent. width is that of a prefix.
func (l *Limit) scope(width int) []byte {
	r := l.Parent
	scope := strings.Join(r.Config.Key, ",") // a comma is in no part
	switch {
	case r.Config.Match.Descriptors != nil:
		scope = key.Descriptor.String()
	case l.apart:
		scope = r.apart.Name
	case width != own:
		scope = fmt.Sprintf("%s/%d", scope, width)
	}
	text, _ := json.Marshal(scope) // a string has JSON
	return text
}

// policy lists limits for the clients of one family.
func policy(limits []Limit, v4 bool) (text []byte) {
	for i := range limits {
		l := &limits[i]
		if v4 && l.v4 == none || !v4 && l.v6 == none {
			continue
		}
		if text != nil {
			text = append(text, ", "...)
		}
		text = l.appendPolicy(text)
	}
	return text
}

// appendPolicy appends the limit as RateLimit-Policy has it.
func (l *Limit) appendPolicy(text []byte) []byte {
	unit, each := l.Parent.Config.Cost.unit()
	item := limitfields.Policy{Name: l.Policy, Quota: uint64(l.Counter.Limit) * each, Unit: unit,
		Window: l.Counter.Window}
	return item.Append(text)
}
