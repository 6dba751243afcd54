package try

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/edge/honest"
	"sluice/edge/operator"
)

// maxRuleFile bounds what is read of a rule: more does not travel.
const maxRuleFile = 64 << 10

// command is the command by which rules are tried.
func command() operator.Command {
	set := operator.NewFlagSet(name)
	length := operator.DurationFlag(set, new(time.Duration), "for", 10*time.Minute,
		"for how long: a `TIME` such as 10m or 1d, 7 days at most")
	called := set.String("name", "", "the `NAME` of the try; without, the first try-N that is free")
	file := set.String("file", "",
		"the rule's fields from a `FILE` in YAML or JSON; - is standard input; fields given beside it win")
	detach := set.Bool("detach", false, "only begin: sluice try show NAME tells how it goes")
	const forms = "want try FIELD=VALUE…, try list, try show NAME, or try stop NAME"
	c := operator.Asks(set, "[FIELD=VALUE…|list|show|stop]",
		"try a rule beside those in force: whom it would refuse, and how many of them look honest",
		func(c *operator.Client, args []string) error {
			var does string
			if len(args) > 0 {
				does = args[0]
			}
			switch does {
			case "list", "show", "stop":
				for _, f := range []string{"for", "name", "file", "detach"} {
					if set.Changed(f) {
						return operator.UsageErrorf("--%s is for a new try: leave it out", f)
					}
				}
				switch {
				case does == "list" && len(args) == 1:
					return listAt(c)
				case does == "show" && len(args) == 2:
					return showAt(c, args[1])
				case does == "stop" && len(args) == 2:
					return stopAt(c, args[1])
				}
				return operator.UsageErrorf(forms)
			}
			if err := checkTime(*length); err != nil {
				return operator.UsageErrorf("--for: %w", err)
			}
			rule, err := givenRule(*file, args)
			if err != nil {
				return err
			}
			if len(rule) == 0 {
				return operator.UsageErrorf("nothing is to be tried: " + forms +
					", such as sluice try 'limit=50 window=1m'")
			}
			begun, err := beginAt(c, *called, rule, *length)
			switch {
			case err != nil:
				return err
			case *detach && c.JSON:
				return showAt(c, begun)
			case *detach:
				return nil
			}
			ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer cancel()
			return watch(ctx, c, begun, *length)
		})
	c.Examples = `Examples:
  sluice try 'limit=50 window=1m key=header:X-Api-Key' --for 10m    any fields of a rule; refuses nobody
  sluice try limit=5 window=1m 'match.methods=[GET, POST]' --name login --detach
  sluice try --file rule.yaml limit=40                              a file's fields, and another limit
  sluice try list; sluice try show login; sluice try stop login
Ctrl-C stops it, and shows what it has seen. docs/operating/trying.md has all of it.

`
	return c
}

// givenRule is the rule of a file with the fields of the command line over it.
func givenRule(file string, args []string) (rule map[string]any, err error) {
	if file != "" {
		from := io.Reader(os.Stdin)
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			from = f
		}
		text, err := io.ReadAll(io.LimitReader(from, maxRuleFile+1))
		if err != nil {
			return nil, err
		}
		if len(text) > maxRuleFile {
			return nil, fmt.Errorf("%s is longer than a rule may be", file)
		}
		if rule, err = ruleOfFile(text); err != nil {
			return nil, err
		}
	}
	line, err := ruleOfLine(args)
	if err != nil {
		return nil, operator.UsageErrorf("%w", err)
	}
	return merged(rule, line), nil
}

func urlOf(name string) string {
	return "/v1/tries/" + url.PathEscape(name) + "?scope=" + operator.WholePoP
}

// beginAt has a rule tried on all edges, and returns its name.
func beginAt(c *operator.Client, name string, rule map[string]any,
	length time.Duration) (string, error) {
	var done begun
	if err := c.Do(http.MethodPost, "/v1/tries", map[string]any{"name": name,
		"for": length.String(), "rule": rule}, &done); err != nil {
		return "", err
	}
	if c.JSON {
		return done.Name, nil
	}
	where := "on this edge"
	if done.Edges != nil {
		where = (*operator.Spread)(done.Edges).String()
	}
	fmt.Fprintf(c.Out, "%s is tried for %s %s, and refuses nobody\n", operator.Printable(done.Name),
		operator.Span(length), operator.Printable(where))
	for _, w := range done.Warnings {
		fmt.Fprintln(c.Out, "but: "+operator.Printable(w))
	}
	return done.Name, nil
}

// looks is how often a try is looked at while it runs: twenty times, and not more than once a
// second.
func looks(length time.Duration) time.Duration {
	return max(length/20, time.Second).Round(time.Second)
}

// watch shows how a try goes until it ends, and then what it would have done. When ctx is done
// it is stopped. An edge that does not answer meanwhile is asked again.
func watch(ctx context.Context, c *operator.Client, name string, length time.Duration) error {
	end, tick := time.NewTimer(length+200*time.Millisecond), time.NewTicker(looks(length))
	defer end.Stop()
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return stopAt(c, name)
		case <-end.C:
			return showAt(c, name)
		case now := <-tick.C:
			var t shown
			if err := c.Get(urlOf(name), &t); err != nil {
				if operator.IsRefusal(err, http.StatusNotFound) {
					return err
				}
				if !c.JSON {
					fmt.Fprintf(c.Out, "%8s  %v\n", operator.Span(now.Sub(began)), err)
				}
				continue
			}
			if t.Ended {
				return showAt(c, name)
			}
			if !c.JSON {
				r := &t.Result
				fmt.Fprintf(c.Out, "%8s  %s requests, %s would be refused, of %s\n",
					operator.Span(now.Sub(began)), operator.Number(r.Requests),
					operator.Number(r.Refused), sources(&r.RefusedSources))
			}
		}
	}
}

// stopAt ends a try on all edges, and shows what it would have done.
func stopAt(c *operator.Client, name string) error {
	return operator.Show(c, http.MethodDelete, urlOf(name), nil, printing(c))
}

// showAt shows what a try has seen so far, or would have done.
func showAt(c *operator.Client, name string) error {
	return operator.Show(c, http.MethodGet, urlOf(name), nil, printing(c))
}

// listAt lists those that run, and the last of those that have ended.
func listAt(c *operator.Client) error {
	return operator.Show(c, http.MethodGet, "/v1/tries", nil, func(list []shown) error {
		if len(list) == 0 {
			_, err := fmt.Fprintln(c.Out, "nothing is tried")
			return err
		}
		t := operator.Table{Columns: []operator.Column{{Title: "TRY"}, {Title: "STATE"},
			{Title: "REQUESTS HERE", Form: operator.Right},
			{Title: "WOULD REFUSE", Form: operator.Right}, {Title: "RULE", Form: operator.Text}}}
		for _, o := range list {
			state := "ended"
			if !o.Ended {
				state = operator.Span(o.Until.Sub(c.Now)) + " left"
			}
			t.Add(o.Name, state, operator.Number(o.Result.Requests),
				operator.Number(o.Result.Refused), o.About)
		}
		return t.Write(c.Out)
	})
}

// sources is a number of them in words.
func sources(n *Number) string {
	text := operator.Counted(int(n.N), "source")
	if n.Error > 0 {
		text = fmt.Sprintf("about %s sources (give or take %.0f %%)", operator.Number(n.N),
			196*n.Error)
	}
	if n.AtLeast {
		text = "at least " + strings.TrimPrefix(text, "about ")
	}
	return text
}

// printing prints a try.
func printing(c *operator.Client) func(shown) error {
	return func(t shown) error { return t.print(c) }
}

func (t *shown) print(c *operator.Client) error {
	r := &t.Result
	state := "runs, " + operator.Span(time.Until(t.Until)) + " left"
	if t.Ended {
		state = "ended after " + operator.Span(t.Until.Sub(t.Began))
	}
	fmt.Fprintf(c.Out, "%s (%s), begun at %s by %s: %s\n", operator.Printable(t.Name),
		operator.Printable(t.About), operator.Printable(t.Edge),
		operator.Printable(cmp.Or(t.Who, "an operator")), state)
	fmt.Fprintf(c.Out,
		"requests      %s that the rules in force let through, of %s; further %s they refused\n",
		operator.Number(r.Requests), sources(&r.Sources), operator.Number(r.Moot))
	share := ""
	if r.Requests > 0 {
		share = fmt.Sprintf(" (%.2g %%)", 100*r.RefusedRatio)
	}
	fmt.Fprintf(c.Out, "would refuse  %s of these%s, of %s\n", operator.Number(r.Refused), share,
		sources(&r.RefusedSources))
	fmt.Fprintf(c.Out,
		"look honest   %s of those: %d answers or more before, nine in ten of them 2xx or 3xx\n",
		sources(&r.Honest), honest.Answers)
	if r.Known > 0 {
		fmt.Fprintf(c.Out,
			"answered      %s of the requests that it would refuse got an answer of the origin, %s of these 2xx or 3xx\n",
			operator.Number(r.Known), operator.Number(r.Well))
	}
	cost := fmt.Sprintf("%.1f MB of memory on an edge", float64(r.Bytes)/1e6)
	if r.Requests > 0 {
		cost = fmt.Sprintf("%.2f commands to the tier a request, ",
			float64(r.Commands)/float64(r.Requests)) + cost
	}
	fmt.Fprintf(c.Out, "costs         %s\n", cost)
	if r.Forgotten > 0 {
		fmt.Fprintf(c.Out,
			"forgotten     %s sources, for which there was no room: who of them was answered before is not known\n",
			operator.Number(r.Forgotten))
	}
	if len(r.Heavy) > 0 {
		s := operator.Table{Columns: []operator.Column{{Title: "SOURCE"},
			{Title: "KEY", Form: operator.Cut}, {Title: "REQUESTS", Form: operator.Right},
			{Title: "WOULD REFUSE", Form: operator.Right}, {Title: "AT LEAST", Form: operator.Right},
			{Title: "ANSWERED BEFORE", Form: operator.Right}, {Title: "LOOKS"}}}
		for _, h := range r.Heavy {
			looks, least := "", ""
			if h.Honest {
				looks = "honest"
			}
			if h.Error > 0 {
				least = operator.Number(h.Count - h.Error)
			}
			start := h.Start
			if start != "" {
				start += "…"
			}
			s.Add(h.Source, start, operator.Number(h.Requests), operator.Number(h.Count), least,
				strconv.FormatUint(h.Well, 10)+" of "+strconv.FormatUint(h.Answers, 10), looks)
		}
		if err := s.Write(c.Out); err != nil {
			return err
		}
	}
	if t.Edges != nil {
		if err := operator.EdgesShown(c.Out, t.Edges); err != nil {
			return err
		}
	}
	for _, l := range t.Late {
		fmt.Fprintf(c.Out,
			"LATE: %s started %s after the try began: what it saw before is not in this\n",
			operator.Printable(l.Edge), operator.Span(l.Since.Sub(t.Began)))
	}
	return nil
}

// ruleOfLine is a rule as an operator writes it in one word or several: fields with their values,
// limit=50 window=1m, separated by blanks.
func ruleOfLine(words []string) (map[string]any, error) {
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
	return operator.CheckFields(fields)
}

func isField(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_.") == ""
}

// ruleOfFile is a rule of a file: fields as a configuration has them, in YAML or JSON.
func ruleOfFile(text []byte) (map[string]any, error) {
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

// merged is a rule of a file with the fields of a command line over it.
func merged(file, line map[string]any) map[string]any {
	for name, v := range line {
		if file == nil {
			file = make(map[string]any)
		}
		inner, is := v.(map[string]any)
		its, was := file[name].(map[string]any)
		if is && was {
			file[name] = merged(its, inner)
		} else {
			file[name] = v
		}
	}
	return file
}
