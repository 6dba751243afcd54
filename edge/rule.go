package edge

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/message"
)

// A rule is one RuleConfig made ready for the request path. It is immutable but for its tallies, which are shared with the
// rule of the same name in the snapshots before and after.
type rule struct {
	limiter.Rule
	config RuleConfig
	parts  []keyPart // nil: the source itself
	key    string    // what parts say: the same of all rules with the same parts
	tally  *tally
	text   ruleText
}

// newRule completes a rule. Its counters are named by all that makes their numbers mean something else: the rule's name,
// its key, and whether it enforces, because a shadow counts what it would have admitted.
func newRule(c RuleConfig, defaults RuleDefaults) (*rule, error) {
	r := &rule{config: c, Rule: limiter.Rule{
		Timeout: time.Duration(c.MitigationTimeout), Shadow: c.Mode == Shadow || defaults.Shadow,
		Statuses: c.Count.Statuses, Refused: c.Count.Refused,
		OnStoreFailure: c.OnStoreFailure, FirstSight: c.FirstSight,
	}}
	if r.Shadow {
		r.config.Mode = Shadow
	}
	if !slices.Equal(c.Key, []string{"source"}) {
		for _, text := range c.Key {
			part, err := parseKeyPart(text)
			if err != nil {
				return nil, fmt.Errorf("rule %s: key: %w", c.Name, err)
			}
			r.parts = append(r.parts, part)
		}
		r.key = strings.Join(c.Key, ",")
	}
	estimate := defaults.Estimate
	if c.Estimate != nil {
		estimate = *c.Estimate
	}
	r.config.Estimate = &estimate
	if c.Match.Path != "" && c.Match.Path[0] == '~' && c.Match.regexp == nil {
		if err := r.config.Match.setPath(c.Match.Path); err != nil {
			return nil, fmt.Errorf("rule %s: path: %w", c.Name, err)
		}
	}
	var err error
	name := fmt.Sprintf("%s %s %s", c.Name, strings.ToLower(strings.Join(c.Key, ",")), r.config.Mode)
	r.Counter, err = counter.NewRule(name, c.Limit, time.Duration(c.Window), c.SubWindows, estimate)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", c.Name, err)
	}
	r.text = newRuleText(r)
	return r, nil
}

// loosened reports whether r admits something that before did not, so that who was blocked under before may not be
// blocked under r.
func (r *rule) loosened(before *rule) bool {
	return r.Shadow != before.Shadow ||
		r.config.Limit > before.config.Limit ||
		float64(r.config.Limit)/float64(r.config.Window) > float64(before.config.Limit)/float64(before.config.Window) ||
		r.Timeout < before.Timeout
}

// setPath reads a path pattern: exact, a prefix that ends in *, or a regular expression after ~.
func (m *Match) setPath(text string) error {
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

// everything reports whether the rule is about all requests.
func (m *Match) everything() bool {
	return (len(m.Hosts) == 0 || slices.Contains(m.Hosts, "*")) && (m.Path == "" || m.Path == "*" || m.Path == "/*") && len(m.Methods) == 0
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

// ruleText is what a rule's answers say every time, made once.
type ruleText struct {
	quoted []byte // "login"
	policy []byte // "login";q=5;w=60
	limit  []byte
	window int64 // whole seconds, rounded up
}

func newRuleText(r *rule) ruleText {
	t := ruleText{
		quoted: strconv.AppendQuote(nil, r.config.Name),
		limit:  strconv.AppendUint(nil, uint64(r.config.Limit), 10),
		window: seconds(time.Duration(r.config.Window)),
	}
	t.policy = fmt.Appendf(nil, "%s;q=%s;w=%d", t.quoted, t.limit, t.window)
	return t
}

// seconds rounds up to whole seconds, at least 1, so that who waits that long has waited enough.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
