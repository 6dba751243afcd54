package why

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sluice/edge/operator"
)

// Request is what access logs say of one request.
type Request struct {
	Time     time.Time `json:"time"`
	ID       string    `json:"id"`
	Edge     string    `json:"edge,omitempty"`
	Source   string    `json:"source"`
	Key      string    `json:"key,omitempty"`
	Method   string    `json:"method,omitempty"`
	Host     string    `json:"host,omitempty"`
	Path     string    `json:"path,omitempty"`
	Status   int       `json:"status"`
	From     string    `json:"from,omitempty"` // which side answered: origin, limit or edge
	Rule     string    `json:"rule,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	Verdict  string    `json:"verdict,omitempty"`
	Action   string    `json:"action,omitempty"` // of the rule, in place of a refusal
	Estimate float64   `json:"estimate,omitempty"`
	Limit    uint32    `json:"limit,omitempty"`
	Window   float64   `json:"window,omitempty"` // seconds
	Until    time.Time `json:"until,omitzero"`
	By       string    `json:"by,omitempty"`
	Who      string    `json:"who,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// IsID reports whether a text may be what an edge calls a request: as edges name them, or as a
// proxy before them does, in 8 to 128 letters, digits and signs with a digit among them. An address
// or a prefix is none.
func IsID(text string) bool {
	if len(text) < 8 || len(text) > 128 || !strings.ContainsAny(text, "0123456789") {
		return false
	}
	return !strings.ContainsFunc(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') &&
			!strings.ContainsRune("-_.:=", c)
	})
}

// Find reads logs for the request of a name. Several edges may have passed one on, under the same
// name.
func Find(id string, logs ...io.Reader) ([]Request, error) {
	quoted, _ := json.Marshal(id)
	field := append([]byte(`"id":`), quoted...)
	list, lines := []Request{}, 0
	err := scan(logs, func(n int, text []byte) error {
		lines = n
		var one Request
		if bytes.Contains(text, field) && json.Unmarshal(text, &one) == nil && one.ID == id {
			one.Time, one.Until = one.Time.UTC(), one.Until.UTC()
			list = append(list, one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil,
			fmt.Errorf("why: no request %s in %d lines: want access logs in JSON (access_log.format: json) of the edge that answered it, "+
				"and of that time; a log that holds a sample (access_log.refused, access_log.succeeded) has not all", id, lines)
	}
	return list, nil
}

// Text writes for people what became of a request.
func (r *Request) Text(w io.Writer) error {
	b := new(strings.Builder)
	line := func(format string, args ...any) {
		b.WriteString(operator.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	at := ""
	if r.Edge != "" {
		at = " at edge " + r.Edge
	}
	line("%s  %s from %s%s: %s, answered by %s", r.Time.Format(toMilli),
		cmp.Or(strings.TrimSpace(r.Method+" "+r.Host+r.Path), "a request that is not understood"),
		r.Source, at, strconv.Itoa(r.Status), cmp.Or(map[string]string{"origin": "the origin",
			"limit": "a rule"}[r.From], "the edge"))
	if r.Action != "" {
		line("the rule's answer is its action: %s", r.Action)
	}
	rule := cmp.Or(r.Policy, r.Rule)
	measured := ""
	if r.Limit > 0 && r.Window > 0 {
		measured = fmt.Sprintf(": %.4g requests in %v, %d are allowed", r.Estimate,
			time.Duration(r.Window*float64(time.Second)), r.Limit)
	}
	switch {
	case r.By != "":
		line("blocked under rule %s until %s: %s", rule, r.Until.Format(toMilli),
			ordered(r.Who, r.Reason))
	case r.Verdict == "mitigated":
		line("blocked by rule %s until %s", rule, r.Until.Format(toMilli))
	case r.Verdict == "limited" && !r.Until.IsZero():
		line("over the limit of rule %s%s; blocked until %s", rule, measured,
			r.Until.Format(toMilli))
	case r.Verdict == "limited":
		line("over the limit of rule %s%s", rule, measured)
	case r.Verdict == "denied":
		line("refused by the list deny")
	case r.Verdict == "closed":
		line("refused by rule %s, because no node of the tier answered", rule)
	case r.Verdict == "maintenance":
		line("refused by maintenance")
	case r.Verdict == "":
		line("no rule decided about it")
	default:
		line("let through by rule %s (%s)%s", rule, r.Verdict, measured)
	}
	line("sluice why %s --at %s LOG… tells what else its source sent", r.Source,
		r.Time.Format(time.RFC3339))
	_, err := io.WriteString(w, b.String())
	return err
}
