package tier

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/pop/marks"
	"sluice/pop/secret"
)

// secretStatus says under which secret an edge of a PoP counts, which edges count under another,
// and what to do then.
func secretStatus(name string, s *marks.Secrets) control.SecretStatus {
	status := control.SecretStatus{Digests: s.Digests, Apart: []control.ApartEdge{}, Held: s.Held}
	var strangers, rotating []marks.Edge
	for _, e := range s.Apart {
		status.Apart = append(status.Apart, control.ApartEdge{ID: fmt.Sprintf("%016x", e.ID),
			Name: e.Name, Address: e.Address, Digest: e.Digests[0], Rotating: e.Rotating})
		if e.Rotating {
			rotating = append(rotating, e)
		} else {
			strangers = append(strangers, e)
		}
	}
	noFile := secret.Of([]byte(name)).At(name).Digests()[0]
	here := secretName(s.Digests[0], noFile)
	switch {
	case s.Held:
		status.Warning = fmt.Sprintf("this edge (%s) has met no other of PoP %s with its secret, and others share one: %s: give it their pop.secret_file, and restart it",
			here, name, edgesApart(strangers, noFile))
	case len(strangers) > 0:
		status.Warning = fmt.Sprintf("edges of PoP %s have another secret than this one (%s) and count apart, so a source gets its limit on each side: %s: give all the same pop.secret_file, and restart those that had another",
			name, here, edgesApart(strangers, noFile))
	case len(rotating) > 0:
		status.Warning = fmt.Sprintf("edges of PoP %s count under another line of pop.secret_file than this one (%s), so a source gets its limit on each side, while operators' blocks and changes reach both: %s: finish the change of the secret on all edges",
			name, here, edgesApart(rotating, noFile))
	}
	return status
}

// secretName is how a secret is called that has a digest.
func secretName(digest, noFile string) string {
	if digest == noFile {
		return "without pop.secret_file"
	}
	return "digest " + digest
}

// mostNamed is how many edges a warning names.
const mostNamed = 8

// edgesApart names edges, by secret.
func edgesApart(edges []marks.Edge, noFile string) string {
	var b strings.Builder
	for i, e := range edges[:min(len(edges), mostNamed)] {
		switch {
		case i == 0 || e.Digests[0] != edges[i-1].Digests[0]:
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(secretName(e.Digests[0], noFile) + ": ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(e.Name)
		if e.Address != "" {
			b.WriteString(" at " + e.Address)
		}
	}
	if more := len(edges) - mostNamed; more > 0 {
		fmt.Fprintf(&b, ", and %d more", more)
	}
	return b.String()
}

// secretsAgain is how soon another warning may follow one: otherwise an attacker that writes marks
// could fill the log.
const secretsAgain = 10 * time.Second

// A secretWatcher keeps the last message about other secrets.
type secretWatcher struct {
	logged string
	at     time.Time
}

// look returns what has changed.
func (w *secretWatcher) look(warning string, now time.Time) (e events.Event, changed bool) {
	if warning == w.logged || now.Sub(w.at) < secretsAgain {
		return e, false
	}
	w.logged, w.at = warning, now
	if warning == "" {
		return events.Event{Kind: events.Tier,
			Text: "no other edge of the PoP counts under another secret any more"}, true
	}
	return events.Event{Kind: events.Tier, Level: slog.LevelWarn, Text: warning}, true
}
