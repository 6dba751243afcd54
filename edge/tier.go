package edge

import (
	"errors"
	"time"

	"sluice/counter"
	"sluice/edge/events"
	"sluice/mitigation"
)

// Tier is what the edge asks of the PoP, as functions; any of them may be nil, and the zero Tier is an edge that counts
// alone. They are called from many goroutines, and but for Say must not wait. News of verdicts needs no function: the PoP takes it from the
// mitigation table.
type Tier struct {
	// Up reports whether somebody answers for a source: its node, or another that has taken its place. Where it does
	// not, a rule's on_store_failure decides.
	Up func(source counter.Source) bool
	// Ask asks the tier for what it has of a source, because a request waits for it (counter.Table.Await).
	Ask func(rule *counter.Rule, source counter.Source)
	// Rules tells which rules are in force from now on.
	Rules func(rules []TierRule)
	// Say puts what an operator said in force on all edges of the PoP, this one included. It waits for that, or for a while, and says
	// how far it has come. The error is ErrFull.
	Say func(w Word) (Spread, error)
	// Unready says why the edge should get no requests; "": it may.
	Unready func() string
	// EdgeCount is how many edges share the tier, this one included, as far as this one knows.
	EdgeCount func() int
	// Nodes describes the tier for the API.
	Nodes func() []NodeStatus
	// Edges describes the PoP for the API, this edge first.
	Edges func() []EdgeStatus
}

// ErrFull says that the PoP's list of what operators said has no room for more: some of it must end first.
var ErrFull = errors.New("edge: the list of what operators said is full: wait until some blocks and lifts have ended")

// ErrLong says that a rule is too long for that list.
var ErrLong = errors.New("edge: the rule is too long to be changed here: put it into the file")

// Word is what an operator said of a source under a rule: a block or, without End, a lift.
type Word struct {
	Rule       string
	Source     counter.Source
	Start, End time.Time
	Reason     string
	Operator
}

// Operator is who says something, as he calls himself, and the address that he came from; of what was said at another edge also which.
type Operator struct{ Who, From string }

// Event is the word as operators are told of it, at the edge where it was said and at all others.
func (w *Word) Event(now time.Time) events.Event {
	e := events.Event{Time: now, Kind: events.Operator, Rule: w.Rule, Source: w.Source.String(), Who: w.Who, From: w.From, Until: w.End}
	done := "blocked"
	switch w.Rule {
	case Allow:
		e.Rule, done = "", "allowed"
	case Deny:
		e.Rule, done = "", "denied"
	}
	switch {
	case !w.End.IsZero():
		e.Text = done + " for " + w.End.Sub(w.Start).String() + reason(w.Reason)
		e.New = blockText(&mitigation.Bit{End: w.End, By: mitigation.ByAdmin, Reason: w.Reason})
	case e.Rule == "":
		e.Text = done + " no more"
	default:
		e.Text = "lifted"
	}
	return e
}

// blockText is a bit as events show what was and what is.
func blockText(b *mitigation.Bit) string {
	return "until " + b.End.UTC().Format(time.RFC3339) + " by " + b.By.String() + reason(b.Reason)
}

// Spread is how far a word has come.
type Spread struct {
	Known   int      `json:"known"`   // edges of the PoP, this one included
	Have    int      `json:"have"`    // of them, those where it is in force
	Missing []string `json:"missing"` // the others, by name
}

// TierRule is what a tier needs to know of a rule.
type TierRule struct {
	Counter *counter.Rule
	Name    string
	Timeout time.Duration // bounds every mitigation that comes out of the tier; 0: there are none
	Shadow  bool
	// Candidate says that these are the mitigations of a rule's candidate: Counter counts nothing, lifts of Name hold, blocks do not.
	Candidate bool
}

// EdgeStatus describes an edge of the PoP, as it does itself.
type EdgeStatus struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	PoP        string    `json:"pop,omitempty"` // where edges of several are told of
	Address    string    `json:"address"`       // where it listens
	Version    string    `json:"version"`
	Started    time.Time `json:"started"`
	Generation uint64    `json:"generation"`  // the latest change of a rule that it knows of; 0: none
	ConfigHash uint64    `json:"config_hash"` // as sluice_config_hash there
	Since      time.Time `json:"since"`       // its rules are these
	Refused    int       `json:"refused"`     // changes that cannot be in force there
}

// NodeStatus describes a node of the tier.
type NodeStatus struct {
	Address string `json:"address"`
	Up      bool   `json:"up"`
	Joining bool   `json:"joining,omitempty"` // of the new list only, while a change of the list is under way
	Leaving bool   `json:"leaving,omitempty"` // of the old list only
}

// EtcdStatus describes the etcd over which edges of several PoPs have the same rules.
type EtcdStatus struct {
	Up    bool              `json:"up"`
	Since time.Time         `json:"since"`           // it is so
	Error string            `json:"error,omitempty"` // why it is not up
	Wrong map[string]string `json:"wrong,omitempty"` // by rule: why what etcd has of it cannot be read here
	Edges []EdgeStatus      `json:"edges"`           // that share it, this one first
}
