package limitapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"sluice/edge"
	"sluice/edge/limitfields"
	"sluice/edge/rules"
)

// MaxAsks is how many asks one call may have.
const MaxAsks = 100

// An ask is one question, as JSON has it.
type ask struct {
	Rule string  `json:"rule"`
	Key  texts   `json:"key"`
	Cost *uint32 `json:"cost"`
	// What of Cost was counted before
	Estimated *uint32 `json:"estimated"`
}

// texts are one text or a list of them.
type texts []string

func (t *texts) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		if tooMany(text, maxParts) {
			return boundError(fmt.Sprintf("key: more than %d texts: no rule has a key of so many parts", maxParts))
		}
		return json.Unmarshal(text, (*[]string)(t))
	}
	var one string
	if err := json.Unmarshal(text, &one); err != nil {
		return errors.New("key: want a text, or a list of texts")
	}
	*t = texts{one}
	return nil
}

// A boundError says that a list has too many values.
type boundError string

func (e boundError) Error() string { return string(e) }

// maxParts is how many texts a key may have: more than the parts of any rule's key.
const maxParts = 64

// asks are those of a call. They are counted before room is made for them: a body that is allowed
// has place for 40,000 empty ones, which would take a hundred times its size.
type asks []ask

func (a *asks) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) && tooMany(text, MaxAsks) {
		return boundError(fmt.Sprintf("more than %d asks in a call: send %d at most", MaxAsks,
			MaxAsks))
	}
	*a = nil // of asks that were sent twice nothing stays
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*[]ask)(a))
}

// tooMany reports whether a list of JSON, which is known to be one, has more than so many values.
func tooMany(list []byte, most int) bool {
	depth, commas, quoted := 0, 0, false
	for i := 0; i < len(list); i++ {
		switch b := list[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '[' || b == '{':
			depth++
		case b == ']' || b == '}':
			depth--
		case b == ',' && depth == 1:
			if commas++; commas >= most {
				return true
			}
		}
	}
	return false
}

// An answer is what became of an ask, as JSON has it. Times are whole seconds, rounded up, as in
// Retry-After.
type answer struct {
	Allowed    bool    `json:"allowed"`
	Rule       string  `json:"rule"`
	Policy     string  `json:"policy,omitempty"`
	Verdict    string  `json:"verdict"`
	Limit      uint32  `json:"limit"`
	Window     int64   `json:"window"`
	Remaining  uint32  `json:"remaining"`
	Reset      int64   `json:"reset"`
	RetryAfter int64   `json:"retry_after,omitempty"`
	Delay      float64 `json:"delay,omitempty"`
}

func answerOf(a *edge.Answer) answer {
	to := answer{Allowed: a.Allowed, Rule: a.Rule, Policy: a.Policy, Verdict: a.Verdict,
		Limit: a.Limit, Window: limitfields.Seconds(a.Window), Remaining: a.Remaining,
		Delay: a.Delay.Seconds()}
	if a.Reset > 0 {
		to.Reset = limitfields.Seconds(a.Reset)
	}
	if a.RetryAfter > 0 {
		to.RetryAfter = limitfields.Seconds(a.RetryAfter)
	}
	return to
}

// A call is the life of one call. It is used again for the next.
type call struct {
	decided *edge.Call
	body    bytes.Buffer
	answers []edge.Answer
}

// body is what a call sends: one ask, or a list.
type body struct {
	ask
	Asks asks `json:"asks"`
}

// read reads a call. single says that it was one ask, and no list.
func (c *call) read(r io.Reader) (asks []rules.Ask, single bool, err error) {
	c.body.Reset()
	if _, err := c.body.ReadFrom(r); err != nil {
		return nil, false, err
	}
	var b body
	d := json.NewDecoder(&c.body)
	d.DisallowUnknownFields()
	err = d.Decode(&b)
	if of := new(json.UnmarshalTypeError); errors.As(err, &of) && of.Field != "" {
		want := map[string]string{"uint32": "a number from 0 to 1000000",
			"string": "a text"}[of.Type.String()]
		return nil, false, fmt.Errorf("%s: want %s, not %s", strings.TrimPrefix(of.Field, "ask."),
			cmp.Or(want, "a list"), of.Value)
	}
	if of := boundError(""); errors.As(err, &of) {
		return nil, false, of
	}
	if err != nil {
		return nil, false,
			fmt.Errorf(`the body is not {"rule": "NAME", "key": "WHO", "cost": 1} or {"asks": [...]}: %w`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, errors.New("the body goes on after its end: send one object")
	}
	single = b.Asks == nil
	switch {
	case !single && (b.Rule != "" || b.Key != nil || b.Cost != nil ||
		b.Estimated != nil):
		return nil, false,
			errors.New("asks is beside rule, key, cost or estimated: send one ask, or a list")
	case single:
		b.Asks = []ask{b.ask}
	case len(b.Asks) == 0:
		return nil, false, errors.New("asks is empty: send at least one")
	}
	asks = make([]rules.Ask, len(b.Asks))
	for i, q := range b.Asks {
		if q.Rule == "" {
			return nil, false, fmt.Errorf("%srule is missing: name the rule that decides",
				placeOf(i, single))
		}
		asks[i] = rules.Ask{Rule: q.Rule, Key: q.Key, Cost: q.Cost, Estimated: q.Estimated}
	}
	return asks, single, nil
}

func placeOf(i int, single bool) string {
	if single {
		return ""
	}
	return fmt.Sprintf("asks[%d]: ", i)
}

// limit answers a call.
func (s *Service) limit(w http.ResponseWriter, r *http.Request) {
	invalid := func(status int, code, message string) {
		s.edge.InvalidAsk()
		fail(w, status, code, message)
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		invalid(http.StatusUnsupportedMediaType, "not_json", "want Content-Type: application/json")
		return
	}
	c := s.calls.Get().(*call)
	asks, single, err := c.read(http.MaxBytesReader(w, r.Body, maxBody))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		s.calls.Put(c)
		invalid(http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the body is larger than %d bytes: send fewer asks", maxBody))
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.calls.Put(c)
		invalid(http.StatusRequestTimeout, "timeout", fmt.Sprintf("the body did not come within %v",
			bodyTime))
		return
	}
	if err != nil {
		s.calls.Put(c)
		invalid(http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	var bad int
	c.answers, bad, err = c.decided.Ask(asks, c.answers[:0], time.Now())
	if errors.Is(err, edge.ErrFault) {
		fail(w, http.StatusInternalServerError, "fault", "a fault in the edge, which is in its log")
		return
	}
	defer s.calls.Put(c)
	switch {
	case errors.Is(err, edge.ErrNoRule):
		fail(w, http.StatusNotFound, "no_rule", fmt.Sprintf("%srule %.64q: %v",
			placeOf(bad, single), asks[bad].Rule, err))
		return
	case err != nil:
		fail(w, http.StatusUnprocessableEntity, "bad_ask", placeOf(bad, single)+err.Error())
		return
	}
	if single {
		reply(w, http.StatusOK, answerOf(&c.answers[0]))
		return
	}
	list := make([]answer, len(c.answers))
	for i := range list {
		list[i] = answerOf(&c.answers[i])
	}
	reply(w, http.StatusOK, struct {
		Answers []answer `json:"answers"`
	}{list})
}

// fail answers that nothing was decided, and why, in the form in which edges refuse.
func fail(w http.ResponseWriter, status int, code, message string) {
	type failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	reply(w, status, struct {
		Error failure `json:"error"`
	}{failure{code, message}})
}

func reply(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // nothing here has a value that JSON has not
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // who asked has gone
}
