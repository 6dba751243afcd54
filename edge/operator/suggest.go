package operator

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sluice/edge/peaks"
	"sluice/edge/view"
)

// suggested is what an edge suggests for a rule.
type suggested struct {
	Rule, About string
	InForce     uint64 `json:"in_force"`
	Mode        string
	peaks.Suggestion
	Edges []view.Edge
}

// Suggest shows the limit under which at most a share of a rule's sources that look honest would
// have been refused.
func (c *Client) Suggest(rule string, refuse float64) error {
	path := "/v1/rules/" + url.PathEscape(rule) + "/suggestion?scope=" + wholePoP + "&refuse=" +
		strconv.FormatFloat(refuse, 'g', -1, 64)
	return Show(c, http.MethodGet, path, nil, func(s suggested) error {
		fmt.Fprintf(c.Out, "in force   %s (%s), mode %s\n", Printable(s.Rule), Printable(s.About),
			Printable(s.Mode))
		c.printSuggestion(&s)
		if s.Edges == nil {
			return nil
		}
		return EdgesShown(c.Out, s.Edges)
	})
}

func (c *Client) printSuggestion(s *suggested) {
	share := fmt.Sprintf("%.3g %%", 100*s.Refuse)
	switch {
	case s.Missing != "":
		fmt.Fprintf(c.Out, "suggested  nothing: not enough was seen yet of %s\n",
			Printable(s.Missing))
		if least := peaks.ShareOf(s.Honest); s.Windows >= 1 && least <= peaks.MostShare {
			fmt.Fprintf(c.Out, "           with this many, use --refuse %.1f%%\n", 100*least)
		}
	case s.AtLeast:
		fmt.Fprintf(c.Out,
			"suggested  limit=%d at least: the rule refused sources that look honest there, and how many hits they wanted is not known\n", s.Limit)
		fmt.Fprintf(c.Out,
			"           to learn that, put the rule into shadow with a limit that nobody reaches, and ask again\n")
	default:
		fmt.Fprintf(c.Out,
			"suggested  limit=%d: at most %s of the sources that look honest would have been refused\n", s.Limit, share)
	}
	if s.Limit > 0 {
		high := fmt.Sprintf("and %d", s.High)
		if s.High == 0 {
			high = "and what those wanted that were refused"
		}
		fmt.Fprintf(c.Out, "%.0f %% sure  between %d %s\n", 100*peaks.Confidence, s.Low, high)
	}
	of := ""
	if s.Sources > uint64(s.Sample) {
		of = fmt.Sprintf(", of about %s", number(s.Sources))
	}
	fmt.Fprintf(c.Out, "rests on   %s that look honest, of a sample of %s%s\n",
		Counted(s.Honest, "source"), number(uint64(s.Sample)), of)
	if s.Honest > 0 {
		fmt.Fprintf(c.Out, "refused    %d of these %d were over the limit of %d in force\n",
			s.Refused, s.Honest, s.InForce)
	}
	if !s.Since.IsZero() {
		fmt.Fprintf(c.Out, "over       %s: %s windows\n",
			span(s.At.Sub(s.Since).Truncate(time.Second)), strconv.FormatFloat(s.Windows, 'f', -1,
				64))
	}
}
