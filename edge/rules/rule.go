// Package rules finds the rules that a request is under, and whom each of them counts: by host, path and method, all in canonical
// form, by headers, cookies and parameters, by the address that is believed, and by keys that are made of what the origin gets. What is
// decided then is the limiter's.
//
// A Set is immutable and swapped whole. Hosts and paths are looked up, so ten thousand rules cost little more than ten; of a path that
// origins read in several ways every reading is looked up.
package rules

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/message"
)

// A Rule is one RuleConfig made ready for the request path. It is immutable but for its tallies, which are shared with the
// rule of the same name in the snapshots before and after.
type Rule struct {
	limiter.Rule
	Config Config
	Parts  []KeyPart // nil: the source itself
	when   *conditions
	share  uint64 // percent of sources that the rule is about; 0: all
	key    string // what parts say: the same of all rules with the same parts
	Tally  *Tally
	Text   Text

	address int             // of a rule about descriptors: the entry that holds the source's address; less than 0: none
	Asked   []*counter.Rule // of a rule about descriptors: what counts for limits that proxies send, by their unit
}

// newRule completes a rule. Its counters are named by all that makes their numbers mean something else: the rule's name,
// its key, and whether it enforces, because a shadow counts what it would have admitted.
func newRule(c Config, defaults Defaults) (*Rule, error) {
	r := &Rule{Config: c, Rule: limiter.Rule{
		Timeout: time.Duration(c.MitigationTimeout), Shadow: c.Mode == Shadow || defaults.Shadow,
		Statuses: c.Count.Statuses, Refused: c.Count.Refused,
		OnStoreFailure: c.OnStoreFailure, FirstSight: c.FirstSight,
	}}
	if len(c.Escalate) > 0 {
		r.Repeat.Within = time.Duration(c.EscalateWithin)
		for _, t := range c.Escalate {
			r.Repeat.Timeouts = append(r.Repeat.Timeouts, time.Duration(t))
		}
	}
	if r.Shadow {
		r.Config.Mode = Shadow
	}
	if !slices.Equal(c.Key, []string{"source"}) {
		for _, text := range c.Key {
			part, err := ParseKeyPart(text)
			if err != nil {
				return nil, fmt.Errorf("rule %s: key: %w", c.Name, err)
			}
			r.Parts = append(r.Parts, part)
		}
		r.key = strings.Join(c.Key, ",")
	}
	estimate := defaults.Estimate
	if c.Estimate != nil {
		estimate = *c.Estimate
	}
	r.Config.Estimate = &estimate
	if c.Match.Path != "" && c.Match.Path[0] == '~' && c.Match.regexp == nil {
		if err := r.Config.Match.SetPath(c.Match.Path); err != nil {
			return nil, fmt.Errorf("rule %s: path: %w", c.Name, err)
		}
	}
	var err error
	if r.when, err = newConditions(&r.Config.Match); err != nil {
		return nil, fmt.Errorf("rule %s: match: %w", c.Name, err)
	}
	name := fmt.Sprintf("%s %s %s", c.Name, strings.ToLower(strings.Join(c.Key, ",")), r.Config.Mode)
	r.Counter, err = counter.NewRule(name, c.Limit, time.Duration(c.Window), c.SubWindows, estimate)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", c.Name, err)
	}
	if c.Share < 1 || c.Share > 100 {
		return nil, fmt.Errorf("rule %s: share %d: want 1 to 100", c.Name, c.Share)
	}
	r.share = uint64(c.Share % 100)
	if c.Candidate.Is() {
		if r.Candidate, err = newCandidate(r, c.Candidate); err != nil {
			return nil, fmt.Errorf("rule %s: candidate: %w", c.Name, err)
		}
	}
	if c.Match.Descriptors != nil {
		if err := r.described(); err != nil {
			return nil, fmt.Errorf("rule %s: match.descriptors: %w", c.Name, err)
		}
	}
	r.Text = NewText(c.Name, c.Limit, time.Duration(c.Window))
	return r, nil
}

// newCandidate makes a rule's candidate. Its mitigations are named by all that it says, so one that is changed begins afresh.
func newCandidate(r *Rule, c Candidate) (*limiter.Candidate, error) {
	limit, estimate, timeout := r.Config.Limit, r.Counter.Estimate, r.Timeout
	if c.Limit != 0 {
		limit = c.Limit
	}
	if c.Estimate != nil {
		estimate = *c.Estimate
	}
	if c.MitigationTimeout != nil {
		timeout = time.Duration(*c.MitigationTimeout)
	}
	name := fmt.Sprintf("%s candidate %d %v %v", r.Counter.Name, limit, estimate, timeout)
	if len(r.Config.Escalate) > 0 {
		name = fmt.Sprint(name, r.Config.Escalate)
	}
	bits, err := counter.NewRule(name, limit, r.Counter.Window, r.Counter.SubWindows, estimate)
	if err != nil {
		return nil, err
	}
	return &limiter.Candidate{Counter: r.Counter.With(limit, estimate), Bits: bits, Timeout: timeout, Repeat: r.Repeat}, nil
}

// IsAbout reports whether a source, as the rule counts it, is among those that the rule is about (share). All edges with the PoP's secret
// say the same, and whoever is within a share is within a larger one.
func (r *Rule) IsAbout(key Secret, source counter.Source) bool {
	if r.share == 0 {
		return true
	}
	var room [96]byte
	text := append(room[:0], shareOf)
	text = append(text, r.Config.Name...)
	return siphash.Hash(key.k0, key.k1, source.AppendBinary(text))%100 < r.share
}

// Loosened reports whether r admits something that before did not, so that who was blocked under before may not be
// blocked under r.
func (r *Rule) Loosened(before *Rule) bool {
	return r.Shadow != before.Shadow ||
		r.Config.Limit > before.Config.Limit ||
		float64(r.Config.Limit)/float64(r.Config.Window) > float64(before.Config.Limit)/float64(before.Config.Window) ||
		r.Timeout < before.Timeout ||
		r.Repeat.Longest(r.Timeout) < before.Repeat.Longest(before.Timeout) ||
		r.Config.Share < before.Config.Share
}

// SetPath reads a path pattern: exact, a prefix that ends in *, or a regular expression after ~.
func (m *Match) SetPath(text string) error {
	m.Path, m.regexp = text, nil
	switch {
	case strings.HasPrefix(text, "~"):
		re, err := regexp.Compile(text[1:])
		if err != nil {
			return fmt.Errorf("%q is not a regular expression: %v", text[1:], err)
		}
		m.regexp = re
	case !strings.HasPrefix(text, "/") && text != "*":
		return fmt.Errorf("%q is not a path: want /exact, /prefix/* or ~regexp", text)
	case strings.Contains(strings.TrimSuffix(text, "*"), "*"):
		return fmt.Errorf("%q has a * before its end: use a regular expression, which begins with ~", text)
	default:
		exact := strings.TrimSuffix(text, "*")
		if c, _ := message.AppendPath(nil, []byte(exact)); exact != "" && string(c) != exact {
			return fmt.Errorf("%q is never the path of a request as rules see it: write %s", text, string(c)+text[len(exact):])
		}
	}
	return nil
}

// Everything reports whether the rule is about all requests.
func (m *Match) Everything() bool {
	return (len(m.Hosts) == 0 || slices.Contains(m.Hosts, "*")) && (m.Path == "" || m.Path == "*" || m.Path == "/*") && len(m.Methods) == 0 && m.Plain()
}

// About reports whether the rule is about a path, at whatever host and by whatever method. It is for configurations; requests are looked up
// in a Set.
func (m *Match) About(path string) bool {
	var p paths
	p.add(&Rule{Config: Config{Match: Match{Path: m.Path, regexp: m.regexp}}})
	return len(p.match(nil, []byte(path), nil)) > 0
}

// method reports whether the rule is about requests with this method. What is about GET is about HEAD, which origins answer as they
// answer GET, at the same cost.
func (m *Match) method(method []byte) bool {
	if len(m.Methods) == 0 {
		return true
	}
	for _, want := range m.Methods {
		if string(method) == want || want == http.MethodGet && string(method) == http.MethodHead {
			return true
		}
	}
	return false
}

// Text is what a rule's answers say every time, made once.
type Text struct {
	Quoted []byte // "login"
	Policy []byte // "login";q=5;w=60
	Limit  []byte
	Window int64 // whole seconds, rounded up
}

// NewText makes what answers say of a limit.
func NewText(name string, limit uint32, window time.Duration) Text {
	t := Text{
		Quoted: strconv.AppendQuote(nil, name),
		Limit:  strconv.AppendUint(nil, uint64(limit), 10),
		Window: Seconds(window),
	}
	t.Policy = fmt.Appendf(nil, "%s;q=%s;w=%d", t.Quoted, t.Limit, t.Window)
	return t
}

// Seconds rounds up to whole seconds, at least 1, so that who waits that long has waited enough.
func Seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
