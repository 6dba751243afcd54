// Package control is the control plane of an edge: what its operators see of it, and what they say.
//
// It reads the tables that decisions read (limiter) and the rules in force, and writes nothing of
// them but bits. Where there is a PoP, what operators say goes to all its edges, this one included,
// and comes into force here as it does there; an edge that counts alone does it at once. No
// decision asks anything here. Times are as the clock has them; a source is named as counter.Source
// writes it.
package control

import (
	"errors"
	"net/netip"
	"time"

	"sluice/counter/member"
	"sluice/edge/address"
	"sluice/edge/events"
	"sluice/edge/limiter"
	"sluice/edge/plans"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/seen"
	"sluice/edge/top"
	"sluice/mitigation"
)

// Options is what an Admin works with.
type Options struct {
	Limiter     *limiter.Limiter
	View        func() View // what is in force now
	PoP         PoP         // the zero PoP: there is none
	Secret      key.Secret  // tells which sources a rule for a share of them is about
	Requests    *top.Top    // who asks most
	Refusals    *top.Top    // who is refused most
	NotEnforced *top.Top    // whom shadows would refuse most
	Keys        *seen.Keys  // of whom rules count by a key; nil: nobody remembers
	Events      *events.Log // is told what operators say; nil: nobody asks
	// Kernel tells how the kernel refuses new connections from a prefix; nil: it does not, or, in
	// place of the function, never does.
	Kernel func(netip.Prefix) *Kernel
}

// Admin is the control plane of one edge. It is safe for concurrent use.
type Admin struct{ with Options }

// New makes an Admin.
func New(o Options) *Admin { return &Admin{o} }

// Events is what has happened lately; nil if it is not kept.
func (c *Admin) Events() *events.Log { return c.with.Events }

// View is what requests are judged by, of one version.
type View struct {
	Rules       *rules.Set
	Sources     *address.Sources
	Deny, Allow *address.Group // by the configuration; nil: nobody
	Facts       []*key.Fact
	Plans       *plans.Snapshot
	PlansConfig rules.PlansConfig
}

// PoP is what operators ask of the PoP, as functions; the zero PoP is an edge that counts alone.
type PoP struct {
	// Order puts what an operator said in force on all edges of the PoP, this one included. It
	// waits for that, or for a while, and says how far it has come. The error is ErrFull.
	Order func(mitigation.Order) (Spread, error)
	// Nodes describes the tier for the API.
	Nodes func() []member.Node
	// Edges describes the PoP for the API, this edge first.
	Edges func() []EdgeStatus
	// Secret describes under which secret this edge counts, and who counts apart.
	Secret func() SecretStatus
}

// ErrFull says that the PoP's list of what operators said has no room for more: some of it must end
// first.
var ErrFull = errors.New("edge: the list of what operators said is full: wait until some blocks and lifts have ended")

// ErrLong says that a rule is too long for that list.
var ErrLong = errors.New("edge: the rule is too long to be changed here: put it into the file")

// Operator is who says something, as he calls himself, and the address that he came from; of what
// was said at another edge also which.
type Operator struct{ Who, From string }

// Event is an operator's block or lift as operators are told of it, at the edge where it was said
// and at all others. idle says that nothing was in force here that it could lift.
func Event(o *mitigation.Order, idle bool, now time.Time) events.Event {
	e := events.Event{Time: now, Kind: events.Operator, Rule: o.Rule, Source: nameOf(o.Source),
		Who: o.Who, From: o.From, Until: o.End}
	done := "blocked"
	switch o.Rule {
	case Allow:
		e.Rule, done = "", "allowed"
	case Deny:
		e.Rule, done = "", "denied"
	case Site:
		e.Rule, e.Source, done = "", "", Site[1:]
	}
	switch {
	case o.Kind == mitigation.OrderBlock:
		e.Text = done + " for " + rules.Duration(o.End.Sub(o.Start)).String() + Reason(o.Reason)
		e.New = blockText(&mitigation.Bit{End: o.End, By: mitigation.ByAdmin, Reason: o.Reason})
	case e.Rule == "":
		e.Text = done + " no more"
	default:
		e.Text = "lifted"
	}
	if idle {
		e.Text += ": nothing was in force here"
	}
	return e
}

// blockText is a bit as events show what was and what is.
func blockText(b *mitigation.Bit) string {
	return "until " + b.End.UTC().Format(time.RFC3339) + " by " + b.By.String() + Reason(b.Reason)
}

// Spread is how far an order has come.
type Spread struct {
	mitigation.Spread
	// To how many the edges belong, where rules travel to those of several
	PoPs int `json:"pops,omitempty"`
	// Edges that are not among those known: so many as pop.edges says there are, and those that
	// count under another secret.
	Expected int `json:"expected,omitempty"` // pop.edges, where fewer are known
	Apart    int `json:"apart,omitempty"`
	// Silent are edges that went in the last ten minutes without saying that they end: killed,
	// hung, or cut off from the tier.
	Silent []string `json:"silent,omitempty"`
}

// PoPStatus describes a PoP.
type PoPStatus struct {
	Name   string        `json:"name"`
	Edges  []EdgeStatus  `json:"edges"` // this one first
	Nodes  []member.Node `json:"nodes"`
	Secret *SecretStatus `json:"secret,omitempty"` // nil: the edge counts alone
	Etcd   *EtcdStatus   `json:"etcd,omitempty"`   // nil: changes of rules do not travel over etcd
}

// EdgeStatus describes an edge of the PoP, as it does itself.
type EdgeStatus struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	PoP  string `json:"pop,omitempty"` // where edges of several are told of
	member.About
	Refused int `json:"refused"` // changes that cannot be in force there
}

// SecretStatus is under which secret an edge counts, and which edges of its PoP's name count under
// another, as marks on the nodes say. Whoever reaches a node can write marks.
type SecretStatus struct {
	// Of the lines of pop.secret_file, which tell nothing of it; the edge counts under the first
	Digests []string    `json:"digests"`
	Apart   []ApartEdge `json:"apart"`
	// The edge is not ready, because it seems to be the only one with its secret
	Held    bool   `json:"held"`
	Warning string `json:"warning,omitempty"` // what is wrong, and what to do
}

// ApartEdge is an edge that counts under another secret.
type ApartEdge struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Address  string `json:"address"`
	Digest   string `json:"digest"`
	Rotating bool   `json:"rotating"` // it has a line of pop.secret_file in common with this one
}

// EtcdStatus describes the etcd over which edges of several PoPs have the same rules.
type EtcdStatus struct {
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`           // it is so
	Error string    `json:"error,omitempty"` // why it is not up
	// By rule: why what etcd has of it cannot be read here
	Wrong map[string]string `json:"wrong,omitempty"`
	Edges []EdgeStatus      `json:"edges"` // that share it, this one first
}

// TopRequests returns at most n of the sources with the most requests, the heaviest first. Counts
// are halved every ten minutes; a thousand sources are counted at most.
func (c *Admin) TopRequests(n int) []top.Heavy { return c.with.Requests.Heaviest(n) }

// TopRefused is TopRequests for requests that were refused.
func (c *Admin) TopRefused(n int) []top.Heavy { return c.with.Refusals.Heaviest(n) }

// TopShadow is TopRequests for requests that were admitted, and that a shadow would have refused.
func (c *Admin) TopShadow(n int) []top.Heavy { return c.with.NotEnforced.Heaviest(n) }

// Tops are the lists of heavy sources that this edge has, n of each at most, by what they are heavy
// in.
func (c *Admin) Tops(n int) map[string]top.List {
	return map[string]top.List{"requests": c.with.Requests.List(n),
		"refused": c.with.Refusals.List(n), "shadow": c.with.NotEnforced.List(n)}
}

// Nodes describes the tier; none on an edge that counts alone.
func (c *Admin) Nodes() []member.Node {
	if c.with.PoP.Nodes == nil {
		return nil
	}
	return c.with.PoP.Nodes()
}

// Edges describes the PoP, this edge first; nothing on an edge that counts alone.
func (c *Admin) Edges() []EdgeStatus {
	if c.with.PoP.Edges == nil {
		return nil
	}
	return c.with.PoP.Edges()
}

// Secret describes under which secret this edge counts, and who counts apart; nil: it counts alone.
func (c *Admin) Secret() *SecretStatus {
	if c.with.PoP.Secret == nil {
		return nil
	}
	s := c.with.PoP.Secret()
	return &s
}

// Reason is an operator's reason as it follows what he did; nothing where he gave none.
func Reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
