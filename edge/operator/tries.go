package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/edge/control"
	"sluice/edge/tryout"
	"sluice/edge/view"
)

// tried is a try, as an edge shows it.
type tried struct {
	Name, About  string
	Began, Until time.Time
	Ended        bool
	Who, Edge    string
	Result       tryout.Result
	Edges        []view.Edge
	Late         []struct {
		Edge  string
		Since time.Time
	}
}

const tryPath = "/v1/tries/"

func tryURL(name string) string { return tryPath + url.PathEscape(name) + "?scope=" + WholePoP }

// BeginTry has a rule tried on all edges, and returns its name.
func (c *Client) BeginTry(name string, rule map[string]any, length time.Duration) (string, error) {
	var begun struct {
		Name     string
		Edges    *control.Spread
		Warnings []string
	}
	if err := c.Do(http.MethodPost, "/v1/tries", map[string]any{"name": name,
		"for": length.String(), "rule": rule}, &begun); err != nil {
		return "", err
	}
	if c.JSON {
		return begun.Name, nil
	}
	where := "on this edge"
	if begun.Edges != nil {
		where = (*Spread)(begun.Edges).String()
	}
	fmt.Fprintf(c.Out, "%s is tried for %s %s, and refuses nobody\n", Printable(begun.Name),
		Span(length), Printable(where))
	for _, w := range begun.Warnings {
		fmt.Fprintln(c.Out, "but: "+Printable(w))
	}
	return begun.Name, nil
}

// looks is how often a try is looked at while it runs: twenty times, and not more than once a
// second.
func looks(length time.Duration) time.Duration {
	return max(length/20, time.Second).Round(time.Second)
}

// WatchTry shows how a try goes until it ends, and then what it would have done. When ctx is done
// it is stopped. An edge that does not answer meanwhile is asked again.
func (c *Client) WatchTry(ctx context.Context, name string, length time.Duration) error {
	end, tick := time.NewTimer(length+200*time.Millisecond), time.NewTicker(looks(length))
	defer end.Stop()
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return c.StopTry(name)
		case <-end.C:
			return c.ShowTry(name)
		case now := <-tick.C:
			var t tried
			if err := c.Get(tryURL(name), &t); err != nil {
				if IsRefusal(err, http.StatusNotFound) {
					return err
				}
				if !c.JSON {
					fmt.Fprintf(c.Out, "%8s  %v\n", Span(now.Sub(began)), err)
				}
				continue
			}
			if t.Ended {
				return c.ShowTry(name)
			}
			if !c.JSON {
				fmt.Fprintf(c.Out, "%8s  %s requests, %s would be refused, of %s\n",
					Span(now.Sub(began)), Number(t.Result.Requests), Number(t.Result.Refused),
					sources(&t.Result.RefusedSources))
			}
		}
	}
}

// StopTry ends a try on all edges, and shows what it would have done.
func (c *Client) StopTry(name string) error {
	return Show(c, http.MethodDelete, tryURL(name), nil, c.printTry)
}

// ShowTry shows what a try has seen so far, or would have done.
func (c *Client) ShowTry(name string) error {
	return Show(c, http.MethodGet, tryURL(name), nil, c.printTry)
}

// Tries lists those that run, and the last of those that have ended.
func (c *Client) Tries() error {
	return Show(c, http.MethodGet, "/v1/tries", nil, func(list []tried) error {
		if len(list) == 0 {
			_, err := fmt.Fprintln(c.Out, "nothing is tried")
			return err
		}
		t := Table{Columns: []Column{{"TRY", Whole}, {"STATE", Whole}, {"REQUESTS HERE", Right},
			{"WOULD REFUSE", Right}, {"RULE", Text}}}
		for _, o := range list {
			state := "ended"
			if !o.Ended {
				state = Span(o.Until.Sub(c.Now)) + " left"
			}
			t.Add(o.Name, state, Number(o.Result.Requests), Number(o.Result.Refused), o.About)
		}
		return t.Write(c.Out)
	})
}

// sources is a number of them in words.
func sources(n *tryout.Number) string {
	text := Counted(int(n.N), "source")
	if n.Error > 0 {
		text = fmt.Sprintf("about %s sources (give or take %.0f %%)", Number(n.N), 196*n.Error)
	}
	if n.AtLeast {
		text = "at least " + strings.TrimPrefix(text, "about ")
	}
	return text
}

func (c *Client) printTry(t tried) error {
	r := &t.Result
	state := "runs, " + Span(time.Until(t.Until)) + " left"
	if t.Ended {
		state = "ended after " + Span(t.Until.Sub(t.Began))
	}
	fmt.Fprintf(c.Out, "%s (%s), begun at %s by %s: %s\n", Printable(t.Name), Printable(t.About),
		Printable(t.Edge), Printable(cmp.Or(t.Who, "an operator")), state)
	fmt.Fprintf(c.Out,
		"requests      %s that the rules in force let through, of %s; further %s they refused\n",
		Number(r.Requests), sources(&r.Sources), Number(r.Moot))
	share := ""
	if r.Requests > 0 {
		share = fmt.Sprintf(" (%.2g %%)", 100*r.RefusedRatio)
	}
	fmt.Fprintf(c.Out, "would refuse  %s of these%s, of %s\n", Number(r.Refused), share,
		sources(&r.RefusedSources))
	fmt.Fprintf(c.Out,
		"look honest   %s of those: %d answers or more before, nine in ten of them 2xx or 3xx\n",
		sources(&r.Honest), tryout.Answers)
	if r.Known > 0 {
		fmt.Fprintf(c.Out,
			"answered      %s of the requests that it would refuse got an answer of the origin, %s of these 2xx or 3xx\n", Number(r.Known), Number(r.Well))
	}
	cost := fmt.Sprintf("%.1f MB of memory on an edge", float64(r.Bytes)/1e6)
	if r.Requests > 0 {
		cost = fmt.Sprintf("%.2f commands to the tier a request, ",
			float64(r.Commands)/float64(r.Requests)) + cost
	}
	fmt.Fprintf(c.Out, "costs         %s\n", cost)
	if r.Forgotten > 0 {
		fmt.Fprintf(c.Out,
			"forgotten     %s sources, for which there was no room: who of them was answered before is not known\n", Number(r.Forgotten))
	}
	if len(r.Heavy) > 0 {
		s := Table{Columns: []Column{{"SOURCE", Whole}, {"KEY", Cut}, {"REQUESTS", Right},
			{"WOULD REFUSE", Right}, {"AT LEAST", Right}, {"ANSWERED BEFORE", Right}, {"LOOKS",
				Whole}}}
		for _, h := range r.Heavy {
			looks, least := "", ""
			if h.Honest {
				looks = "honest"
			}
			if h.Error > 0 {
				least = Number(h.Count - h.Error)
			}
			start := h.Start
			if start != "" {
				start += "…"
			}
			s.Add(h.Source, start, Number(h.Requests), Number(h.Count), least,
				strconv.FormatUint(h.Well, 10)+" of "+strconv.FormatUint(h.Answers, 10), looks)
		}
		if err := s.Write(c.Out); err != nil {
			return err
		}
	}
	if t.Edges != nil {
		if err := EdgesShown(c.Out, t.Edges); err != nil {
			return err
		}
	}
	for _, l := range t.Late {
		fmt.Fprintf(c.Out,
			"LATE: %s started %s after the try began: what it saw before is not in this\n",
			Printable(l.Edge), Span(l.Since.Sub(t.Began)))
	}
	return nil
}

// TryRule is a rule as an operator writes it in one word or several: fields with their values,
// limit=50 window=1m, separated by blanks.
func TryRule(words []string) (map[string]any, error) {
	var fields []string
	for _, text := range words {
		for _, word := range strings.Fields(text) {
			name, _, is := strings.Cut(word, "=")
			if is && isField(name) || len(fields) == 0 {
				fields = append(fields, word)
			} else {
				// Within a list, as in match.methods=[GET, POST]
				fields[len(fields)-1] += " " + word
			}
		}
	}
	return CheckFields(fields)
}

func isField(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_.") == ""
}

// TryFile is a rule of a file: fields as a configuration has them, in YAML or JSON.
func TryFile(text []byte) (map[string]any, error) {
	var rule map[string]any
	if err := yaml.Unmarshal(text, &rule); err != nil || len(rule) == 0 {
		return nil,
			fmt.Errorf("the file is no rule: want its fields, such as\n  limit: 50\n  window: 1m")
	}
	if _, is := rule["rules"]; is {
		return nil,
			fmt.Errorf("the file is a configuration: want the fields of one rule alone, such as limit: 50")
	}
	delete(rule, "name") // --name is
	return rule, nil
}

// MergeRule is a rule of a file with the fields of a command line over it.
func MergeRule(file, line map[string]any) map[string]any {
	for name, v := range line {
		if file == nil {
			file = make(map[string]any)
		}
		inner, is := v.(map[string]any)
		its, was := file[name].(map[string]any)
		if is && was {
			file[name] = MergeRule(its, inner)
		} else {
			file[name] = v
		}
	}
	return file
}
