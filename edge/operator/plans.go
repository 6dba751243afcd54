package operator

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge/control"
)

// Key is a client: what it sends, and where, if that is not plans.key.
type Key struct{ Text, By string }

// path is where the API tells something of a client, with more parameters.
func (k Key) path(of, what string, query url.Values) string {
	if k.By != "" {
		query.Set("by", k.By)
	}
	path := "/v1/" + of + "/" + url.PathEscape(k.Text) + what
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// SetQuota says which plan or limit a client has.
func (c *Client) SetQuota(key Key, q control.Quota) error {
	return Show(c, http.MethodPut, key.path("quotas", "", url.Values{}), q, c.showQuotas)
}

// Quotas prints what is said of a client.
func (c *Client) Quotas(key Key) error {
	return Show(c, http.MethodGet, key.path("quotas", "", url.Values{}), nil, c.showQuotas)
}

func (c *Client) showQuotas(all control.Quotas) error {
	if _, err := io.WriteString(c.Out,
		Printable(all.Key+" is on plan "+all.Plan)+"\n"); err != nil || len(all.Quotas) == 0 {
		return err
	}
	t := Table{Columns: []Column{{"RULE", Cut}, {"PLAN", Cut}, {"LIMIT", Right}, {"FROM", Whole},
		{"UNTIL", Whole}, {"STATE", Text}}}
	for _, q := range all.Quotas {
		t.Add(cmp.Or(q.Rule, "all"), cmp.Or(q.Plan, "-"), limit(q.Limit), at(q.EffectiveAt),
			at(q.ExpiresAt), string(q.State))
	}
	return t.Write(c.Out)
}

// QuotaPage is which clients ListQuotas prints.
type QuotaPage struct {
	Plan  string // only those with a quota of it; "": all
	After string // what the page before has named; "": from the first
	N     int
}

// ListQuotas prints clients with a plan or a limit, and what they have used: a row for each rule
// that counts by their key, or about which something is said.
func (c *Client) ListQuotas(page QuotaPage) error {
	query := url.Values{"n": {strconv.Itoa(page.N)}}
	for name, value := range map[string]string{"plan": page.Plan, "after": page.After} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return Show(c, http.MethodGet, "/v1/quotas?"+query.Encode(), nil, func(all struct {
		Clients []control.ListedClient
		Next    string
	}) error {
		if len(all.Clients) == 0 {
			_, err := io.WriteString(c.Out, "no client has a quota of that kind\n")
			return err
		}
		t := Table{Columns: []Column{{"KEY", Cut}, {"PLAN", Cut}, {"RULE", Cut}, {"USED", Right},
			{"LIMIT", Right}, {"LEFT", Right}, {"SAID OF IT", Text}}}
		for i := range all.Clients {
			addClient(&t, &all.Clients[i])
		}
		if err := t.Write(c.Out); err != nil || all.Next == "" {
			return err
		}
		_, err := fmt.Fprintf(c.Out, "there are more: sluice quota list --after %s\n",
			Printable(all.Next))
		return err
	})
}

// addClient adds the rows of a client.
func addClient(t *Table, l *control.ListedClient) {
	key := l.Key
	if l.KeyStart != "" {
		key = l.Key + " " + l.KeyStart + "…"
	}
	if l.By != "" {
		key += " (" + l.By + ")"
	}
	said := (&control.Quotas{Quotas: l.Quotas}).ByRule()
	shown := make(map[string]bool)
	under := func(rule string) string {
		texts := slices.DeleteFunc([]string{said[""], said[rule]},
			func(s string) bool { return s == "" })
		shown[""], shown[rule] = true, true
		return strings.Join(texts, "; ")
	}
	for _, r := range l.Rules {
		what := under(r.Rule)
		if r.Until != nil {
			what = strings.TrimPrefix(what+"; blocked until "+Clock(*r.Until), "; ")
		}
		if r.Limit > 0 {
			t.Add(key, r.Plan, r.Rule, Number(uint64(r.Used+0.5)), Number(uint64(r.Limit)),
				Number(uint64(r.Remaining)), what)
		} else {
			t.Add(key, r.Plan, r.Rule, "-", "-", "-", what)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(said)) {
		if shown[rule] {
			continue
		}
		t.Add(key, l.Plan, cmp.Or(rule, "all"), "-", "-", "-", said[rule])
	}
}

// QuotaHistory prints who changed what of a client, the latest first; from which address JSON
// tells.
func (c *Client) QuotaHistory(key Key) error {
	return Show(c, http.MethodGet, key.path("quotas", "/history", url.Values{}), nil,
		func(list []control.QuotaChange) error {
			if len(list) == 0 {
				_, err := io.WriteString(c.Out, "the store has no change of it\n")
				return err
			}
			t := Table{Columns: []Column{{"WHEN", Whole}, {"WHO", Cut}, {"AT EDGE", Cut},
				{"WHAT", Cut},
				{"RULE", Cut}, {"PLAN", Cut}, {"LIMIT", Right}, {"FROM", Whole}, {"UNTIL", Text}}}
			for _, e := range list {
				rule := "-"
				if e.Rule != nil {
					rule = cmp.Or(*e.Rule, "all")
				}
				t.Add(Clock(e.At), cmp.Or(e.Who, e.From), e.Edge, string(e.Does), rule,
					cmp.Or(e.Plan, "-"), limit(e.Limit), at(e.EffectiveAt), at(e.ExpiresAt))
			}
			return t.Write(c.Out)
		})
}

// limit and at are what there is of a quota.
func limit(n uint32) string {
	if n == 0 {
		return "-"
	}
	return Number(uint64(n))
}

func at(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return Clock(*t)
}

// DeleteQuotas takes away what is said of a client, under one rule or, where rule is nil, at all.
func (c *Client) DeleteQuotas(key Key, rule *string) error {
	query := url.Values{}
	if rule != nil {
		query.Set("rule", *rule)
	}
	return Show(c, http.MethodDelete, key.path("quotas", "", query), nil,
		func(n struct{ Deleted int }) error {
			what := fmt.Sprintf("%d quotas of %s are deleted", n.Deleted, key.Text)
			switch n.Deleted {
			case 0:
				what = key.Text + " has no such quota"
			case 1:
				what = "a quota of " + key.Text + " is deleted"
			}
			_, err := io.WriteString(c.Out, Printable(what)+"\n")
			return err
		})
}

// Usage prints what a client has used.
func (c *Client) Usage(key Key) error {
	return Show(c, http.MethodGet, key.path("usage", "", url.Values{}), nil,
		func(u control.Used) error {
			if _, err := io.WriteString(c.Out,
				Printable(u.Key+" is on plan "+u.Plan)+"\n"); err != nil {
				return err
			}
			if len(u.Rules) == 0 {
				_, err := io.WriteString(c.Out, "no rule counts by that alone\n")
				return err
			}
			t := usageTable()
			for _, r := range u.Rules {
				addUsage(&t, r)
			}
			return t.Write(c.Out)
		})
}

func usageTable() Table {
	return Table{Columns: []Column{{"RULE", Cut}, {"PLAN", Cut}, {"USED", Right}, {"LIMIT", Right},
		{"LEFT", Right}, {"RESET", Whole}, {"BLOCKED", Text}}}
}

// addUsage adds how a client stands under a rule.
func addUsage(t *Table, r control.Usage) {
	blocked := ""
	if r.Until != nil {
		blocked = "until " + Clock(*r.Until)
	}
	if r.Limit > 0 {
		t.Add(r.Rule, r.Plan, Number(uint64(r.Used+0.5)), Number(uint64(r.Limit)),
			Number(uint64(r.Remaining)), Clock(r.Reset), blocked)
	}
	if p := r.Places; p != nil {
		t.Add(r.Rule+" in flight", r.Plan, Number(uint64(p.Held)), Number(uint64(p.Limit)),
			Number(uint64(p.Limit-min(p.Held, p.Limit))), "-", blocked)
	}
}
