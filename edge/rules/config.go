package rules

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/limiter/shedding"
	"sluice/edge/limitfields"
	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// Config is one rule as an operator writes it. The JSON form has the names of the YAML form, so
// that what the API shows can be put into a file.
type Config struct {
	Name  string       `json:"name"`
	Match match.Config `json:"match"`
	Key   []string     `json:"key"`
	// 0: none; the rule counts nothing, and is there for its Priority, Queue or Concurrency
	Limit             uint32              `json:"limit,omitempty" want:"1 to 1000000000"`
	Window            Duration            `json:"window" want:"1s to 24h"`
	SubWindows        int                 `json:"sub_windows" want:"1 to 12"`
	Estimate          *algorithm.Estimate `json:"-"` // nil: Config.Estimate
	MitigationTimeout Duration            `json:"mitigation_timeout" want:"0, or 1ms to 24h"`
	// Timeouts of repeated blocks, ascending
	Escalate []Duration `json:"escalate,omitempty"`
	// How soon after the end of a block that is
	EscalateWithin Duration              `json:"escalate_within" want:"1s to 24h"`
	Mode           Mode                  `json:"mode" want:"enforce or shadow or off"`
	FirstSight     limiter.FirstSight    `json:"first_sight" want:"go or wait"`
	OnStoreFailure limiter.FailurePolicy `json:"on_store_failure" want:"local or share or open or closed"`
	Count          Count                 `json:"count"`
	// Percent of sources that the rule is about
	Share int `json:"share" want:"1 to 100"`
	// How many of the first characters of its key operators see
	ShowKey  int      `json:"show_key,omitempty" want:"0 to 16"`
	Action   Action   `json:"action"`
	Response Response `json:"response"`
	// Plans are the limits of clients by their plan (PlansConfig); Limit is that of those on any
	// other.
	Plans map[string]PlanLimit `json:"plans,omitempty"`
	// Other limits, beside Limit and Window
	Windows []Window `json:"windows,omitempty"`
	// In which addresses are counted; of a family without one, the source
	Prefixes  []Prefix      `json:"prefixes,omitempty"`
	Cost      Cost          `json:"cost"`
	Tag       TagHeader     `json:"tag"`
	Algorithm Algorithm     `json:"algorithm"`
	Burst     uint32        `json:"burst" want:"0 to 1000000000"` // of a bucket: how many may come at once, or wait
	Check     limiter.Check `json:"check" want:"async or sync"`
	// What its requests are to an origin that sheds load
	Priority Priority `json:"priority" want:"default or critical or sheddable"`
	// How long they may wait for a slot there; 0: not at all. Clients, and proxies before them, give
	// up after a few seconds
	Queue Duration `json:"queue" want:"0, or 1ms to 10s"`
	// Concurrency is how many requests of a key may be in flight at once, over the PoP; 0: any
	// number.
	Concurrency int `json:"concurrency" want:"0 to 1000000"`
	// Own are the fields of modules by their names, each a pointer to a struct of the module's
	Own map[string]any `json:"-"`
}

// MarshalJSON shows fields of modules as fields like others, and the estimate if there is one.
func (c Config) MarshalJSON() ([]byte, error) {
	type plain Config
	text, err := json.Marshal(plain(c))
	if err == nil && len(c.Own) > 0 {
		text, err = match.Joined(text, c.Own)
	}
	if err != nil || c.Estimate == nil {
		return text, err
	}
	return match.Joined(text, map[string]string{"estimate": c.Estimate.String()})
}

// About is the rule in a few words.
func (c *Config) About() string {
	text := fmt.Sprintf("%d in %v", c.Limit, c.Window)
	for _, w := range c.Windows {
		text += fmt.Sprintf(", %d in %v", w.Limit, w.Window)
	}
	text += " by " + strings.Join(c.Key, ", ")
	if !c.Match.Everything() {
		match, _ := json.Marshal(c.Match) // numbers and texts
		text += ", of " + string(match)
	}
	return text
}

// AsksTier reports whether each decision under the rule waits for the tier.
func (c *Config) AsksTier() bool { return c.Check == limiter.Sync }

// Defaults is what holds for all rules that do not say otherwise.
type Defaults struct {
	Estimate algorithm.Estimate
	Shadow   bool // every rule that is not off is a shadow
	Plans    PlansConfig
	// Facts and Actions are those of modules that rules may speak of.
	Facts   []*key.Fact
	Actions []OwnAction
}

// Mode is what a rule's verdict does.
type Mode string

const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // counts and decides under separate counters, refuses no request
	Off     Mode = "off"
)

// Count is which requests a rule counts. The zero Count is every admitted request.
type Count struct {
	// Only those that the origin answers with one of these
	Statuses []int `json:"statuses,omitempty" want:"200 to 599"`
	Refused  bool  `json:"refused,omitempty"` // refused ones as well: every attempt
}

// Action is what a rule does with a request that it refuses.
type Action string

const (
	Refuse Action = "refuse" // answers, and keeps the connection
	// Answers, and ends the connection, unless a trusted proxy has sent the request
	Close    Action = "close"
	Redirect Action = "redirect" // sends the client to Response.Location
	// None of these: it goes on to the origin, with a header that says so
	Tag Action = "tag"
	// Lets it wait for its turn, and refuses what would have to wait too long; of a token bucket
	Delay Action = "delay"
)

// An OwnAction is an action of a module. What it does is the module's.
type OwnAction struct {
	Name Action
	// Apart names a fact: a request of which that is known is counted by it alone, under a limit of
	// its own in the rule's window, and refused over that like any other. "": none is.
	Apart string
	Limit func(*Config) uint32 // that limit
}

// NamesOf are the actions of every edge, and own ones.
func NamesOf(own []OwnAction) []Action {
	names := []Action{Refuse, Close, Redirect, Tag, Delay}
	for _, a := range own {
		names = append(names, a.Name)
	}
	return names
}

// apart is the fact by which a rule counts requests in place of its limits, and the limit of that;
// nil: there is none. The action must be there.
func (d *Defaults) apart(c *Config) (*key.Fact, uint32, error) {
	a := c.Action
	if a != "" && !slices.Contains(NamesOf(d.Actions), a) {
		return nil, 0, fmt.Errorf("%q is not possible in this program", a)
	}
	for _, own := range d.Actions {
		if own.Name != a || own.Apart == "" {
			continue
		}
		for _, f := range d.Facts {
			if f.Name == own.Apart {
				return f, own.Limit(c), nil
			}
		}
		return nil, 0, fmt.Errorf("%s counts by %s, which nothing finds out", a, own.Apart)
	}
	return nil, 0, nil
}

// Cost is how much of a limit a request uses. At most one of Bytes, Header and JSON is set.
type Cost struct {
	Units uint32 `json:"-"` // 1 to algorithm.MaxCost, of each request
	// One for so many bytes of its body, at least 1; 0: it is not by bytes
	Bytes int `json:"bytes" want:"1 to 1024GiB"`
	// The number in this header of the origin's answer, 1 to algorithm.MaxCost; "": not by a header
	Header string `json:"header" want:"cost header"`
	// The sum of the numbers at these paths (package answercost) of the origin's answer, of which
	// events are read where SSE is set; none: it is not in an answer's body
	JSON []string `json:"json"`
	SSE  bool     `json:"sse"`
	// Of JSON what a request costs until its answer has said, and if that does not say
	Estimate uint32 `json:"estimate" want:"1 to 1000000"`
}

// Is reports whether a request may cost more than 1.
func (c Cost) Is() bool { return c.Units > 1 || c.Bytes > 0 || c.Header != "" || c.JSON != nil }

// Least is what a request costs when it is let in.
func (c Cost) Least() uint32 { return max(c.Units, c.Estimate) }

// most is what a request may cost.
func (c Cost) most() uint32 {
	if c.Bytes > 0 || c.Header != "" || c.JSON != nil {
		return algorithm.MaxCost
	}
	return max(1, c.Units)
}

// unit is what a cost is told in, none for requests, and how many of them one of the limit is.
func (c Cost) unit() (string, uint64) {
	switch {
	case c.Bytes > 0:
		return limitfields.ContentBytes, uint64(c.Bytes)
	case c.JSON != nil:
		return limitfields.Tokens, 1
	}
	return "", 1
}

// String names what is counted.
func (c Cost) String() string {
	switch {
	case c.Bytes > 0:
		return fmt.Sprintf("bytes:%d", c.Bytes)
	case c.Header != "":
		return "header:" + c.Header
	case c.JSON != nil:
		return "json:" + strings.Join(c.JSON, "+")
	}
	return fmt.Sprint(c.Units)
}

// MarshalJSON shows a cost as a file has it: a number, or what the cost is of.
func (c Cost) MarshalJSON() ([]byte, error) {
	switch {
	case c.Bytes > 0:
		return json.Marshal(map[string]int{"bytes": c.Bytes})
	case c.Header != "":
		return json.Marshal(map[string]string{"header": c.Header})
	case c.JSON != nil:
		said := map[string]any{"json": c.JSON}
		if len(c.JSON) == 1 {
			said["json"] = c.JSON[0]
		}
		if !c.SSE {
			said["sse"] = false
		}
		if c.Estimate > 1 {
			said["estimate"] = c.Estimate
		}
		return json.Marshal(said)
	}
	return json.Marshal(c.Units)
}

// TagHeader is the header that a rule that tags adds to a request over its limit, for the origin.
type TagHeader struct {
	Header string `json:"header" want:"tag header"`
	Value  string `json:"value" want:"tag value"`
}

// CheckTag returns what is wrong with the name of a header by which requests are tagged: clients'
// own of that name are dropped.
func CheckTag(name string) error {
	lower := strings.ToLower(name)
	if !message.IsToken([]byte(name)) || message.KindOf([]byte(name)) != message.Other ||
		!strings.HasPrefix(lower, "x-") && strings.Contains(taken, " "+lower+" ") {
		return fmt.Errorf("%q cannot tag a request: want a header of your own, such as X-Sluice-Verdict, because what clients send under that name is dropped", name)
	}
	return nil
}

// taken are headers that requests cannot do without.
const taken = " accept accept-charset accept-encoding accept-language authorization cache-control content-encoding content-language content-type date from if-match if-modified-since if-none-match if-range if-unmodified-since max-forwards origin pragma range referer user-agent "

// Priority says which requests are turned away first at an overloaded origin: see shedding.Level.
type Priority string

const (
	DefaultPriority Priority = "default" // the rule sets none
	Critical        Priority = "critical"
	Sheddable       Priority = "sheddable"
)

func (p Priority) level() shedding.Level {
	switch p {
	case Critical:
		return shedding.Critical
	case Sheddable:
		return shedding.Sheddable
	}
	return shedding.Default
}

// OrdersOrigin reports whether a rule sets a priority or a queue for origins that shed load, and so
// may be without a limit.
func (c *Config) OrdersOrigin() bool {
	return c.Priority.level() != shedding.Default || c.Queue > 0
}

// Response is what a refused client gets. An empty Body stands for the usual JSON.
type Response struct {
	Status      int    `json:"status" want:"300 to 599"`
	ContentType string `json:"content_type" want:"text of a header"`
	Body        string `json:"body"`
	Location    string `json:"location,omitempty"` // for Redirect
	// Of the wait: Retry-After is that much later at most
	Jitter Percent `json:"jitter,omitempty"`
	// Beside Body, for clients that would rather have another type (Accept)
	Bodies []Body `json:"bodies,omitempty"`
	// Further headers, by name: with {{origin}}, {{request_id}} and {{retry_after}} in their values
	Headers map[string]string `json:"headers,omitempty"`
}

// Body is an answer's body in one content type.
type Body struct {
	ContentType string `json:"content_type" want:"text of a header"`
	Body        string `json:"body"`
}

// Percent is written as in a configuration file: 10%.
type Percent int

// MarshalText makes JSON show the spelling of the file.
func (p Percent) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d%%", int(p)), nil }

// UnmarshalText reads it.
func (p *Percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || v > 100 {
		return fmt.Errorf("%q is not possible: want 0%% to 100%%", text)
	}
	*p = Percent(v)
	return nil
}

// CheckLocation returns what is wrong with a location to send clients to. It is a whole URL, or a
// path at the requested host, and is sent as it is written: nothing of a request becomes part of
// it.
func CheckLocation(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '\\'
	}):
	case (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil:
		return nil
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(text, "/") &&
		!strings.HasPrefix(text, "//"):
		return nil
	}
	return fmt.Errorf("%q is no location to send clients to: want https://HOST/PATH, or a path that begins with one slash", text)
}

// Default returns a rule with the default of every field but name and limit.
func Default(name string, limit uint32) Config {
	return Config{
		Name: name, Limit: limit,
		Key:               []string{"source"},
		Window:            Duration(time.Minute),
		SubWindows:        12,
		MitigationTimeout: Duration(time.Minute),
		EscalateWithin:    Duration(time.Hour),
		Mode:              Enforce,
		FirstSight:        limiter.Go,
		OnStoreFailure:    limiter.Local,
		Share:             100,
		Action:            Refuse,
		Algorithm:         Sliding,
		Response:          Response{Status: 429, ContentType: "application/json"},
		Cost:              Cost{Units: 1},
		Tag:               TagHeader{Header: "X-Sluice-Verdict", Value: "over"},
		Check:             limiter.Async,
		Priority:          DefaultPriority,
	}
}

// Duration is a time.Duration that is written as in a configuration file: 1m, 1h30m.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText makes JSON show the spelling of the file.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
