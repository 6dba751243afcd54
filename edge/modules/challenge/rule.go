package challenge

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/edge/config"
	"sluice/edge/rules"
)

// Rule is what a rule says of its own.
type Rule struct {
	Difficulty int            `json:"difficulty" want:"1 to 20"`
	PassFor    rules.Duration `json:"pass_for" want:"1m to 24h"`
	PassLimit  uint32         `json:"pass_limit" want:"1 to 1000000"`
	Bind       string         `json:"bind" want:"none or network"`
	Networks   int            `json:"networks" want:"0 to 16"` // 0: any number
	Status     int            `json:"status" want:"400 to 503"`
	Page       string         `json:"page" want:"file"`        // in place of the edge's own
	Contact    string         `json:"contact"`                 // whom to ask, on the page
	SecretFile string         `json:"secret_file" want:"file"` // of passes; none: the PoP's
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

// check returns what is wrong with the rules that challenge.
func check(c *config.Config) error {
	var first *rules.Config // that challenges
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action != Action {
			if r.Own[name] != nil {
				return fmt.Errorf("rule %s: challenge: only action: challenge asks anything: add it, or remove challenge", r.Name)
			}
			if r.Own[whenName] != nil {
				return fmt.Errorf("rule %s: when: it is about action: challenge: add that, or remove when", r.Name)
			}
			continue
		}
		switch own := ruleOf(r); {
		case r.Match.Descriptors != nil:
			return fmt.Errorf("rule %s: action: challenge asks browsers, and a rule about descriptors answers a proxy: take refuse", r.Name)
		case r.Algorithm != rules.Sliding && r.Algorithm != rules.Fixed:
			return fmt.Errorf("rule %s: action: challenge counts in sliding or fixed windows, not by %s: take one of them, or another action", r.Name, r.Algorithm)
		case r.Own[whenName] != nil && whenOf(r) == 0:
			return fmt.Errorf("rule %s: when: give origin_latency_p95, such as 800ms", r.Name)
		case r.Concurrency > 0:
			return fmt.Errorf("rule %s: action: challenge asks who is over a limit, and requests in flight end by themselves: give concurrency to a rule of its own", r.Name)
		case r.HasPlans():
			return fmt.Errorf("rule %s: action: challenge asks browsers, which are on no plan: give plans to a rule of their own", r.Name)
		case own.Status != 429 && own.Status != 403 && own.Status != 503:
			return fmt.Errorf("rule %s: challenge.status: %d is not possible: want 429, 403 or 503",
				r.Name, own.Status)
		case len(c.PoP.Memcached) > 0 && c.PoP.SecretFile == "" && own.SecretFile == "":
			return fmt.Errorf("rule %s: action: challenge needs a secret that nobody can guess, or anybody makes passes: give pop.secret_file, or the rule's challenge.secret_file", r.Name)
		case first != nil && own.SecretFile != ruleOf(first).SecretFile:
			return fmt.Errorf("rule %s: challenge.secret_file: a pass is good under all rules, and rule %s has another secret: give both the same",
				r.Name, first.Name)
		case first == nil:
			first = r
		}
	}
	return nil
}

// fewSources are as few as an attacker has, who would have everybody challenged.
const fewSources = 5

// weaknesses are rules that challenge everybody as soon as a few sources want it, and rules under
// which nobody finds a page.
func weaknesses(c *config.Config) (all []string) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action != Action || r.Mode == rules.Off {
			continue
		}
		if m := r.Match.Methods; len(m) > 0 && !slices.Contains(m, http.MethodGet) {
			all = append(all, fmt.Sprintf("rule %s challenges %s alone, and the page that gives a pass is the answer to GET: who is over can get none, unless another rule challenges pages: add GET, or take refuse",
				r.Name, strings.Join(m, ", ")))
		}
		if slices.Equal(r.Key, []string{"source"}) {
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
