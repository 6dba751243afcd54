// Package report is what a run found, beside what it was given, as text, JSON and HTML: the figures
// of its judge in columns with those of the floor, of two plain counters and of what was published,
// other designs on the same stream, and plots.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sluice/loadgen/design"
	"sluice/loadgen/judge"
	"sluice/loadgen/page"
	"sluice/loadgen/trace"
)

// Report is what a run found, beside what it was given. Text, JSON and HTML are written from it.
type Report struct {
	Run     Run           `json:"run"`
	Figures judge.Figures `json:"figures"`
	// Two plain counters, one edge, not rounded, the same stream
	Baseline *judge.Figures `json:"baseline,omitempty"`
	// Floor is what an exact log would have done that learns of other edges' requests one round
	// trip late (design.Floor): what edges can know that keep no request waiting. Deployed runs
	// over more than one edge have it.
	Floor   *judge.Figures  `json:"floor,omitempty"`
	Designs []design.Result `json:"designs"`
	// Real limiters beside each other; Figures are those of the first
	Rivals []Rival   `json:"rivals,omitempty"`
	Broken []Promise `json:"broken,omitempty"` // promises of the documents
	// Where wrong decisions come from, if runs were made to find out
	Split *judge.Split `json:"split,omitempty"`

	Names []string `json:"-"` // of the trace's sources, for the plots of some of them; see SetNames
}

// Run is what a run was given. Fields that did not matter to it are left out.
type Run struct {
	Command  string `json:"command"` // replay, lab, simulate, compare
	Mode     string `json:"mode"`
	Trace    string `json:"trace,omitempty"`
	Workload string `json:"workload,omitempty"` // instead of a trace
	Seed     uint64 `json:"seed"`
	Spread   string `json:"spread,omitempty"` // how times finer than the log's were made

	// SHA-256 of the log, uncompressed, where it was taken
	Digest  string         `json:"digest,omitempty"`
	Lines   int            `json:"lines,omitempty"`
	Skipped map[string]int `json:"skipped,omitempty"`
	// Requests of clients that the log knows by a host name
	HostNames int `json:"host_names,omitempty"`
	// Requests whose client is one of a list of addresses
	Listed int `json:"listed,omitempty"`
	// What each file was read as that is no plain access log
	ReadAs []string `json:"read_as,omitempty"`
	// Of each file the first line that is no request, and why
	Unread []string   `json:"unread,omitempty"`
	Start  *time.Time `json:"start,omitempty"`

	Limit             uint32  `json:"limit"`
	Window            Seconds `json:"window"`
	SubWindows        int     `json:"sub_windows"`
	Estimate          string  `json:"estimate"`
	Algorithm         string  `json:"algorithm,omitempty"` // "": sliding
	MitigationTimeout Seconds `json:"mitigation_timeout"`

	PoPs          int     `json:"pops,omitempty"`
	Edges         int     `json:"edges"`
	Nodes         int     `json:"nodes"`
	RoundTrip     Seconds `json:"round_trip"`
	PerConnection int     `json:"per_connection,omitempty"`
	// Of a connection at once; 0: it was not HTTP/2
	Streams  int      `json:"streams,omitempty"`
	Skew     Seconds  `json:"skew,omitempty"`
	Speed    float64  `json:"speed,omitempty"`
	Carrier  string   `json:"source,omitempty"`
	Duration Seconds  `json:"duration"` // of the trace
	Took     Seconds  `json:"took"`     // of the run
	Faults   []string `json:"faults,omitempty"`
	Notes    []string `json:"notes,omitempty"` // what readers of the figures must know

	// Disturbed says that a live run is no measurement: the load generator itself sent one request
	// in a hundred later than a fiftieth of the window.
	Disturbed bool `json:"disturbed,omitempty"`

	// What the parts of a live run counted, and whether it adds up
	Details *page.Details `json:"details,omitempty"`
}

// SetNames enters the names of the trace's sources.
func (r *Report) SetNames(t *trace.Trace) {
	r.Names = make([]string, len(t.Sources))
	for i := range t.Sources {
		r.Names[i] = t.Sources[i].Name
	}
}

// Seconds is a duration that JSON shows as a number of seconds.
type Seconds time.Duration

func (s Seconds) String() string { return time.Duration(s).String() }

// MarshalJSON writes seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON reads them.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*s = Seconds(f * float64(time.Second))
	return nil
}

// ReadLines say how the trace's files were read, where that is not plain to see.
func (r *Run) ReadLines() (lines []string) {
	for _, as := range r.ReadAs {
		lines = append(lines, "read as: "+as)
	}
	for _, line := range r.Unread {
		lines = append(lines, "first line that is no request: "+line)
	}
	if r.Listed > 0 {
		lines = append(lines, fmt.Sprintf("%d requests name a list of addresses: "+
			"the client is the last that is no proxy of --trust, or the first where --trust names none", r.Listed))
	}
	return lines
}

// Describe enters what a trace says of itself.
func (r *Run) Describe(t *trace.Trace) {
	r.Trace, r.Seed, r.Lines, r.Skipped, r.HostNames = t.Name, t.Seed, t.Lines, t.Skipped,
		t.HostNames
	r.Listed, r.ReadAs, r.Unread = t.Listed, t.ReadAs, t.Unread
	if t.Lines == 0 {
		r.Trace, r.Workload = "", t.Name
	}
	r.Duration = Seconds(t.Duration())
	if !t.Start.IsZero() {
		start := t.Start
		r.Start = &start
	}
	if t.Coarse {
		r.Spread = "stamps of whole seconds spread evenly over their second, by the seed"
	}
}

// WriteJSON writes one report as an object, and several as {"runs": […]}.
func WriteJSON(w io.Writer, reports ...*Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	for _, r := range reports {
		if r.Designs == nil {
			r.Designs = []design.Result{} // "designs" is always a list
		}
	}
	if len(reports) == 1 {
		return e.Encode(reports[0])
	}
	return e.Encode(map[string][]*Report{"runs": reports})
}

// published is what Cloudflare published in 2017 of its own limiter, by the names of the table's
// rows. What it did not say is not there.
func published() map[string]string {
	return map[string]string{
		rowRequests: "400,000,000", rowSources: "270,000", rowWrong: "0.003 %", rowGap: "6 %",
		rowFalseNegatives: "3, up to 15 % over", rowFalsePositives: "0",
	}
}
