package control

import "time"

// State is what operators should know of an edge beside what it counts: what is not as it should be.
type State struct {
	Ready string `json:"ready"` // "ready", or why it should get no requests
	// Alone is why the edge counts alone; "": it counts with its PoP.
	Alone string `json:"alone,omitempty"`
	// LearningUntil is until when the edge may not know of everybody whom others of the PoP blocked before it started: of whom it does not know, it asks
	// the tier at the first request. None: it knows of all.
	LearningUntil *time.Time `json:"learning_until,omitempty"`
	// Failed is the latest reload, if it failed: what was in force before it still is.
	Failed  *FailedReload `json:"failed_reload,omitempty"`
	Waiting int           `json:"waiting"` // settings of the file that wait for a restart
	Peers   []PeerStatus  `json:"peers"`   // other PoPs that tell this one whom they block, and are told
	Unkept  []Unkept      `json:"unkept,omitempty"`
	// AccessLog is that of which the latest lines could not be written. None: they were, or there is no log.
	AccessLog *LostLines `json:"access_log,omitempty"`
	// Wall is how the kernel refuses sources that are blocked and go on connecting. None: it is not to.
	Wall *Wall `json:"wall,omitempty"`
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

// LostLines is an access log that cannot be written.
type LostLines struct {
	File  string `json:"file"`
	Error string `json:"error"`
	Lost  uint64 `json:"lost"` // lines, since the edge has started
}

// Unkept is a file of state_dir that cannot be written: what it should hold would be lost by a restart.
type Unkept struct {
	File  string `json:"file"`
	Error string `json:"error"`
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
