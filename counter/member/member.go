// Package member describes what a PoP consists of, for operators: the memcached nodes of its tier,
// and its edges. Edge and PoP know both alike, and the API shows them as they are here.
package member

import "time"

// Node is a memcached node of the tier, as an edge sees it.
type Node struct {
	Address string `json:"address"` // as it was configured
	Up      bool   `json:"up"`
	// While a change of the list of nodes is under way: it is in the new list only, or in the old
	// one only.
	Joining bool `json:"joining,omitempty"`
	Leaving bool `json:"leaving,omitempty"`
}

// About is what an edge publishes about itself to operators and the other edges.
type About struct {
	// Where it listens; other edges know the first 64 bytes
	Address string    `json:"address"`
	Version string    `json:"version"` // which it runs; likewise
	Started time.Time `json:"started"` // the process
	// The latest change of a rule that it knows of; 0: none
	Generation uint64 `json:"generation"`
	// Of its rules: the same on edges with the same, as is its metric sluice_config_hash
	ConfigHash uint64    `json:"config_hash"`
	Since      time.Time `json:"since"` // its rules are these
}
