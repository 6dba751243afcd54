package suggest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge/config"
	"sluice/edge/operator"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/edge/view"
)

// said is what is suggested for a rule, beside what is in force.
type said struct {
	Rule    string         `json:"rule"`
	About   string         `json:"about"` // as it is in force
	InForce uint32         `json:"in_force"`
	Window  rules.Duration `json:"window"`
	Mode    rules.Mode     `json:"mode"`
	*Suggestion
	// Whose sources it rests on, with those that are missing
	Edges []view.Edge `json:"edges,omitempty"`
}

func (m *module) routes() []route.Route {
	return []route.Route{{Pattern: "GET /v1/rules/{name}/suggestion", Serve: m.suggestion}}
}

// suggestion answers with the limit that the sources of a rule suggest: of this edge, or of all.
func (m *module) suggestion(a *route.API, w http.ResponseWriter, r *http.Request) {
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	share := 0.01
	if text := r.URL.Query().Get("refuse"); text != "" {
		var err error
		if share, err = strconv.ParseFloat(text, 64); err != nil {
			route.Fail(w, http.StatusBadRequest,
				"refuse is not possible: want a share of sources, such as 0.01")
			return
		}
	}
	if err := CheckShare(share); err != nil {
		route.Failed(w, err)
		return
	}
	name, now := r.PathValue("name"), time.Now()
	on := m.inForce.Load().setup.Rules().Configs()
	i := slices.IndexFunc(on, func(c rules.Config) bool { return c.Name == name })
	if i < 0 {
		route.Failed(w, fmt.Errorf("%w: %s", config.ErrNoRule, name))
		return
	}
	rule := &on[i]
	own := m.part(name, now)
	if err := hasPeaks(rule); err != nil {
		route.Failed(w, fmt.Errorf("no limit can be suggested for rule %s: %w", name, err))
		return
	} else if own == nil {
		route.Failed(w,
			fmt.Errorf("no limit can be suggested for rule %s: its mode is off, so nothing is counted", name))
		return
	}
	said := said{Rule: name, About: rule.About(), InForce: rule.Limit,
		Window: rule.Window, Mode: rule.Mode}
	parts := []*Part{own}
	if all {
		parts = nil
		question := about + name
		p := a.View.Look(r, question)
		said.Edges = p.EdgesTo(question)
		for _, answer := range view.Answers[Part](p, question) {
			if answer.Answer.Version == own.Version {
				parts = append(parts, &answer.Answer)
				continue
			}
			if i := slices.IndexFunc(said.Edges,
				func(e view.Edge) bool { return e.Name == answer.Edge }); i >= 0 {
				said.Edges[i].Missing = "it has another rule of that name, or is of an older version"
			}
		}
	}
	said.Suggestion = Suggest(parts, time.Duration(rule.Window), share, now)
	route.Reply(w, said)
}

// command is the command that suggests a limit.
func command() operator.Command {
	set := operator.NewFlagSet("suggest")
	refuse := set.String("refuse", "1%",
		"the `SHARE` of the sources that look honest that may be refused, 0.4% to 50%")
	c := operator.Asks(set, "RULE",
		"suggest a limit for a rule, with its confidence, from what its sources have sent",
		func(c *operator.Client, args []string) error {
			share, err := percent(*refuse)
			if err != nil {
				return operator.UsageErrorf("--refuse %w", err)
			}
			return show(c, args[0], share)
		})
	c.Examples = `Examples:
  sluice suggest login                 the smallest limit under which at most 1% of the sources that look honest would have been refused
  sluice suggest login --refuse 5%     needs fewer sources
docs/operating/trying.md says how it is found, and what it rests on.

`
	return c
}

// percent reads a share such as 1%.
func percent(text string) (float64, error) {
	n, is := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
	if err != nil || !is {
		return 0, fmt.Errorf("%q: want a share in percent, such as 1%%", text)
	}
	if err := CheckShare(percent / 100); err != nil {
		return 0, fmt.Errorf("%q: want %g%% to %g%%", text, 100*LeastShare,
			100*MostShare)
	}
	return percent / 100, nil
}

// suggested is said as the command reads it.
type suggested struct {
	Rule, About string
	InForce     uint64 `json:"in_force"`
	Mode        string
	Suggestion
	Edges []view.Edge
}

// show shows the limit under which at most a share of a rule's sources that look honest would
// have been refused.
func show(c *operator.Client, rule string, refuse float64) error {
	path := "/v1/rules/" + url.PathEscape(rule) + "/suggestion?scope=" + operator.WholePoP + "&refuse=" +
		strconv.FormatFloat(refuse, 'g', -1, 64)
	return operator.Show(c, http.MethodGet, path, nil, func(s suggested) error {
		fmt.Fprintf(c.Out, "in force   %s (%s), mode %s\n", operator.Printable(s.Rule), operator.Printable(s.About),
			operator.Printable(s.Mode))
		print(c.Out, &s)
		if s.Edges == nil {
			return nil
		}
		return operator.EdgesShown(c.Out, s.Edges)
	})
}

func print(w io.Writer, s *suggested) {
	share := fmt.Sprintf("%.3g %%", 100*s.Refuse)
	switch {
	case s.Missing != "":
		fmt.Fprintf(w, "suggested  nothing: not enough was seen yet of %s\n",
			operator.Printable(s.Missing))
		if least := ShareOf(s.Honest); s.Windows >= 1 && least <= MostShare {
			fmt.Fprintf(w, "           with this many, use --refuse %.1f%%\n", 100*least)
		}
	case s.AtLeast:
		fmt.Fprintf(w,
			"suggested  limit=%d at least: the rule refused sources that look honest there, and how many hits they wanted is not known\n", s.Limit)
		fmt.Fprintf(w,
			"           to learn that, put the rule into shadow with a limit that nobody reaches, and ask again\n")
	default:
		fmt.Fprintf(w,
			"suggested  limit=%d: at most %s of the sources that look honest would have been refused\n", s.Limit, share)
	}
	if s.Limit > 0 {
		high := fmt.Sprintf("and %d", s.High)
		if s.High == 0 {
			high = "and what those wanted that were refused"
		}
		fmt.Fprintf(w, "%.0f %% sure  between %d %s\n", 100*Confidence, s.Low, high)
	}
	of := ""
	if s.Sources > uint64(s.Sample) {
		of = fmt.Sprintf(", of about %s", operator.Number(s.Sources))
	}
	fmt.Fprintf(w, "rests on   %s that look honest, of a sample of %s%s\n",
		operator.Counted(s.Honest, "source"), operator.Number(uint64(s.Sample)), of)
	if s.Honest > 0 {
		fmt.Fprintf(w, "refused    %d of these %d were over the limit of %d in force\n",
			s.Refused, s.Honest, s.InForce)
	}
	if !s.Since.IsZero() {
		fmt.Fprintf(w, "over       %s: %s windows\n",
			operator.Span(s.At.Sub(s.Since).Truncate(time.Second)), strconv.FormatFloat(s.Windows, 'f', -1,
				64))
	}
}
