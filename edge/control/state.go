package control

import (
	"net/netip"
	"time"

	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/mitigation"
)

// State is what operators should know of an edge beside what it counts: what is not as it should
// be.
type State struct {
	Ready string `json:"ready"` // "ready", or why it should get no requests
	// Drained is that an operator has the edge out of service. None: nobody has.
	Drained *Drained `json:"drained,omitempty"`
	// Maintenance is that operators have the PoP answer 503. None: it does not.
	Maintenance *MaintenanceStatus `json:"maintenance,omitempty"`
	// Everybody are the rules whose action is in force against all that come under them.
	Everybody []Mitigation `json:"everybody,omitempty"`
	// Alone is why the edge counts alone; "": it counts with its PoP.
	Alone string `json:"alone,omitempty"`
	// LearningUntil is until when the edge may not know of everybody whom others of the PoP blocked
	// before it started: of whom it does not know, it asks the tier at the first request. None: it
	// knows of all.
	LearningUntil *time.Time `json:"learning_until,omitempty"`
	Listeners     []Listener `json:"listeners"` // for clients
	// Certificates are those that are got by themselves.
	Certificates []Certificate `json:"certificates,omitempty"`
	// Failed is the latest reload, if it failed: what was in force before it still is.
	Failed  *FailedReload `json:"failed_reload,omitempty"`
	Waiting int           `json:"waiting"` // settings of the file that wait for a restart
	// SecretFile is why what is in pop.secret_file is not in force; "": it is, or there is none.
	SecretFile string `json:"secret_file,omitempty"`
	// Other PoPs that tell this one whom they block, and are told
	Peers  []PeerStatus `json:"peers"`
	Unkept []Unkept     `json:"unkept,omitempty"`
	// Unread are named lists and databases that are configured and cannot be read again.
	Unread []Unread `json:"unread,omitempty"`
	// AccessLog is that of which the latest lines could not be written. None: they were, or there
	// is no log.
	AccessLog *LostLines `json:"access_log,omitempty"`
	// Wall is how the kernel refuses sources that are blocked and go on connecting. None: it is not
	// to.
	Wall *Wall `json:"wall,omitempty"`
}

// A MaintenanceStatus is whether maintenance is on, and how.
type MaintenanceStatus struct {
	On      bool           `json:"on"`
	Since   time.Time      `json:"since,omitzero"`
	Until   time.Time      `json:"until,omitzero"` // it ends by itself
	Allow   []netip.Prefix `json:"allow"`          // who is served all the same
	Message string         `json:"message,omitempty"`
	By      string         `json:"by,omitempty"` // as the operator calls himself
	// The address that he came from, or the edge that he spoke to
	From string `json:"from,omitempty"`
	// Of one that was just said: false if it was so before
	Changed bool `json:"changed"`
	// Of one that was just said: what it takes the place of
	Warning string `json:"warning,omitempty"`
	// Of one that was just said: where it is in force
	Edges *Spread `json:"edges,omitempty"`
}

// Open reports whether no end was given: then it ends after the longest time that an order can
// have, which edges keep to a second.
func (m *MaintenanceStatus) Open() bool {
	return m.Until.Sub(m.Since) > mitigation.MaxBlock-time.Minute
}

// Drained is since when an edge is out of service by hand, and who has taken it out. It goes on
// serving whoever comes.
type Drained struct {
	Since time.Time `json:"since"`
	By    string    `json:"by,omitempty"`   // as the operator calls himself
	From  string    `json:"from,omitempty"` // the address that he came from
}

// Service is what came of taking an edge out of service, or back into it.
type Service struct {
	Changed bool     `json:"changed"`           // false: it was so before
	Ready   string   `json:"ready"`             // as in State
	Drained *Drained `json:"drained,omitempty"` // as in State
}

// Wall is how sluice-wall is.
type Wall struct {
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"` // it is so
	Error   string    `json:"error,omitempty"`
	Entries int       `json:"entries"` // prefixes that the kernel refuses
	Room    int       `json:"room"`    // how many there may be
	Refused uint64    `json:"refused"` // new connections, since the edge has started
}

// Listener is where clients connect.
type Listener struct {
	Field   string `json:"field"`   // listen or listen_tls
	Address string `json:"address"` // where it listens
	// The port of the https address that every request is sent to; 0: requests are served
	Redirect int    `json:"redirect,omitempty"`
	Accepted uint64 `json:"accepted"` // connections, since the edge has started
}

// Certificate is how one is that is got by itself.
type Certificate struct {
	Host     string    `json:"host"`
	Until    time.Time `json:"until,omitzero"`     // it expires; zero: there is none
	Error    string    `json:"error,omitempty"`    // why the latest attempt failed; "": it did not
	FailedAt time.Time `json:"failed_at,omitzero"` // when
}

// Waiting is what is wrong with it; "": nothing.
func (c Certificate) Waiting() string {
	why := ""
	if c.Error != "" {
		why = ": " + c.Error
	}
	switch {
	case c.Until.IsZero():
		return "waiting for a certificate for " + c.Host + why
	case c.Error != "":
		return "the certificate for " + c.Host + " could not be renewed" + why
	}
	return ""
}

// LostLines is an access log that cannot be written.
type LostLines struct {
	File  string `json:"file"`
	Error string `json:"error"`
	Lost  uint64 `json:"lost"` // lines, since the edge has started
}

// Unkept is a file of state_dir that cannot be written: what it should hold would be lost by a
// restart.
type Unkept struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

// Unread is a named list or a database that cannot be read again: its last good content stays in
// force.
type Unread struct {
	Field string    `json:"field"` // lists.NAME, geo.country or geo.asn
	From  string    `json:"from"`  // its file or URL
	Since time.Time `json:"since"` // the first look that failed after the last good one
	Error string    `json:"error"` // of the latest
}

// Reloaded is what a reload has done.
type Reloaded struct {
	Reloaded bool `json:"reloaded"` // true: else it is an error
	// What runs now and did not before, those of rules as rules.NAME.FIELD
	Changed  []events.Field `json:"changed"`
	Waiting  []config.Wait  `json:"waiting"`  // what the file says and is so only after a restart
	Warnings []string       `json:"warnings"` // what is possible but probably not meant
}

// FailedReload is a reload that has changed nothing.
type FailedReload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// PeerStatus is how another PoP is.
type PeerStatus struct {
	Name string `json:"name"`
	Up   bool   `json:"up"` // an edge of it has taken the latest message
}
