package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge/control"
)

// ErrNotReady says that an edge answers, but should get no requests.
var ErrNotReady = errors.New("the edge is not ready")

// poll is how often WaitReady asks.
const poll = 50 * time.Millisecond

// WaitReady returns as soon as the edge is ready, or with what is wrong when it still is not after
// that time.
func (c *Client) WaitReady(most time.Duration) error {
	end := time.NewTimer(most)
	defer end.Stop()
	again := time.NewTicker(poll)
	defer again.Stop()
	for {
		why, err := c.ready()
		if err == nil && why == "" {
			return nil
		}
		select {
		case <-end.C:
			if err == nil {
				err = fmt.Errorf("%w after %v: %s", ErrNotReady, most, why)
			}
			return err
		case <-again.C:
		}
	}
}

// ready asks whether the edge is ready; if not, why tells.
func (c *Client) ready() (why string, err error) {
	status, kind, text, err := c.send(http.MethodGet, "/readyz", nil)
	if err != nil {
		return "", err
	}
	why = Printable(strings.TrimSpace(string(text)))
	switch {
	case status == http.StatusOK && (why == "ready" || strings.HasPrefix(string(text), "ready\n")):
		return "", nil
	case status == http.StatusServiceUnavailable && strings.HasPrefix(kind, "text/plain"):
		return why, nil
	}
	return "",
		fmt.Errorf("what answers at %s is not the operators' listener of an edge (%d to GET /readyz): name that with --admin ADDR", c.Address, status)
}

// Status prints how an edge and its PoP are. An edge that is not ready is ErrNotReady, once all is
// printed.
func (c *Client) Status() error {
	why, err := c.ready()
	if err != nil {
		return err
	}
	word := "ready"
	if why != "" {
		word = why
	}
	answers := map[string]json.RawMessage{}
	answers["/readyz"], _ = json.Marshal(word)
	// The routes that there are; of GET /v1/pop and GET /v1/nodes an edge may have one.
	for _, path := range []string{"/v1/rules", "/v1/pop", "/v1/nodes", "/v1/status"} {
		answer, err := c.ask(http.MethodGet, path, nil)
		if err != nil && !errors.Is(err, errAbsent) {
			return err
		}
		if err == nil {
			answers[path] = answer
		}
	}
	if c.JSON {
		text, err := json.MarshalIndent(answers, "", "  ")
		if err == nil {
			err = c.raw(text)
		}
		if err != nil {
			return err
		}
	} else if err := c.statusText(word, answers); err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("%w: %s", ErrNotReady, why)
	}
	return nil
}

// etcdLine says how the etcd is over which edges of several PoPs have the same rules.
func etcdLine(s *control.EtcdStatus) string {
	text := "up"
	if !s.Up {
		text = fmt.Sprintf("away since %s, rules stay as they are and cannot be changed: %s",
			Clock(s.Since), s.Error)
	}
	pops, others := make(map[string]bool), 0
	for _, e := range s.Edges { // this one first
		pops[e.PoP] = true
		if e.ConfigHash != s.Edges[0].ConfigHash {
			others++
		}
	}
	if s.Up {
		text += ", " + Counted(len(s.Edges), "edge") + " of " + Counted(len(pops), "PoP")
	}
	if s.Up && others > 0 {
		text += fmt.Sprintf(", %d of them with other rules than this one", others)
	}
	for _, rule := range slices.Sorted(maps.Keys(s.Wrong)) {
		text += fmt.Sprintf("; what it has of rule %s cannot be read", rule)
	}
	return text
}

// configLines say what of the configuration is not in force.
func configLines(s *control.State, line func(name, format string, args ...any)) {
	if s.Failed != nil {
		line("config", "the reload at %s failed, what was in force before still is: %s",
			Clock(s.Failed.At), s.Failed.Error)
	}
	if s.Waiting > 0 {
		line("config",
			"settings of the file that wait for a restart: %d (sluice config shows them)",
			s.Waiting)
	}
	if s.SecretFile != "" {
		line("secret", "%s", s.SecretFile)
	}
	for _, u := range s.Unkept {
		line("disk", "%s cannot be written, and a restart would lose what is new in it: %s", u.File,
			u.Error)
	}
	for _, u := range s.Unread {
		what := u.Field
		if !strings.Contains(u.Error, u.From) {
			what += ", " + u.From + ","
		}
		line("unread", "%s cannot be read since %s, and its last good content stays in force: %s",
			what, Clock(u.Since), u.Error)
	}
	if l := s.AccessLog; l != nil {
		line("disk", "the access log %s cannot be written: %s; %d of its lines are lost", l.File,
			l.Error, l.Lost)
	}
}

// popLines say what this edge lacks of the others.
func popLines(s *control.State, line func(name, format string, args ...any)) {
	if s.Alone != "" {
		line("pop", "this edge counts alone: %s", s.Alone)
	}
	if s.LearningUntil != nil {
		asks := "it asks the tier at a source's first request"
		if s.Alone != "" {
			asks = "nobody can be asked now"
		}
		line("pop", "until %s this edge may not know of every block from before it started: %s",
			Clock(*s.LearningUntil), asks)
	}
	var away []string
	for _, peer := range s.Peers {
		if !peer.Up {
			away = append(away, peer.Name)
		}
	}
	switch {
	case len(away) > 0:
		line("peers", "%d of %d away, which take no blocks from here: %s", len(away), len(s.Peers),
			strings.Join(away, ", "))
	case len(s.Peers) > 0:
		line("peers", "%d, all up", len(s.Peers))
	}
}

func (c *Client) statusText(word string, answers map[string]json.RawMessage) error {
	var p control.PoPStatus
	var rules []rule
	var s control.State
	for _, of := range []struct {
		path string
		into any
	}{{"/v1/pop", &p}, {"/v1/nodes", &p.Nodes}, {"/v1/rules", &rules}, {"/v1/status", &s}} {
		answer := answers[of.path]
		if answer == nil || of.path == "/v1/nodes" && p.Nodes != nil {
			continue
		}
		if err := c.decode(answer, of.into); err != nil {
			return err
		}
	}
	status, _, text, err := c.send(http.MethodGet, "/metrics", nil)
	if err != nil {
		return err
	}
	m := metrics(text)

	var out bytes.Buffer
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-9s %s\n", name, Printable(fmt.Sprintf(format, args...)))
	}
	line("edge", "%s, %s", c.Address, word)
	if s.Drained != nil {
		line("service", "%s: it serves whoever comes, and sluice undrain ends it",
			drainedLine(s.Drained))
	}
	if s.Maintenance != nil {
		line("closed", "%s", c.MaintenanceLine(s.Maintenance))
	}
	for i := range s.Everybody {
		line("challenge", "%s", Everybody(&s.Everybody[i]))
	}
	if v := m.label("sluice_build_info", "version"); v != "" {
		line("version", "%s", v)
	}
	if start := m.sum("process_start_time_seconds"); start > 0 {
		line("up", "%s", Span(c.Now.Sub(time.Unix(int64(start), 0))))
	}
	m.each("sluice_connections", func(_, open string) {
		accepted := m.sum("sluice_connections_accepted_total")
		line("clients", "%s connections open, %s accepted since the start", open,
			Number(uint64(accepted)))
	})
	if len(s.Listeners) > 1 {
		line("listen", "%s", listenersLine(s.Listeners))
	}
	for _, listener := range m.listeners() {
		for _, text := range m.certificates(listener, c.Now) {
			line("cert", "%s", text)
		}
	}
	for _, one := range s.Certificates {
		if why := one.Waiting(); why != "" {
			line("acme", "%s", why)
		}
	}
	line("rules", "%s", ruleModes(rules))
	configLines(&s, line)
	if status != http.StatusOK {
		line("requests", "%s does not tell: %d to GET /metrics", c.Address, status)
	} else {
		shed := ""
		if n := uint64(m.sum("sluice_shed_total")); n > 0 {
			shed = Number(n) + " shed to spare an origin, "
		}
		by := ""
		if n := uint64(m.sum("sluice_http2_requests_total")); n > 0 {
			by = " (" + Number(n) + " by HTTP/2)"
		}
		line("requests", "%s received%s, %s refused by a limit, %s%s to origins",
			Number(uint64(m.sum("sluice_received_total"))), by,
			Number(uint64(m.sum("sluice_answers_total", `from="limit"`))), shed,
			Number(uint64(m.sum("sluice_origin_requests_total"))))
		line("blocked", "%s now", Number(uint64(m.sum("sluice_mitigations_active"))))
	}
	if s.Wall != nil {
		line("wall", "%s", wallLine(s.Wall))
	}
	if len(p.Nodes) == 0 {
		line("pop", "none: this edge counts alone")
	} else if len(p.Edges) > 0 {
		line("pop", "%s, %s", p.Name, Counted(len(p.Edges), "edge"))
		popLines(&s, line)
	}
	if p.Secret != nil && len(p.Secret.Digests) > 0 {
		line("secret", "%s", secretLine(p.Secret.Digests, p.Secret.Warning))
	}
	if p.Etcd != nil {
		line("etcd", "%s", etcdLine(p.Etcd))
	}
	if _, err := c.Out.Write(out.Bytes()); err != nil {
		return err
	}
	edges := Table{Columns: []Column{{"EDGE", Cut}, {"ADDRESS", Cut}, {"VERSION", Cut},
		{"GENERATION", Right}, {"CONFIG", Right}, {"SINCE", Whole}, {"REFUSED", Right}}}
	for _, e := range p.Edges {
		refused := ""
		if e.Refused > 0 {
			refused = strconv.Itoa(e.Refused)
		}
		edges.Add(cmp.Or(e.Name, e.ID), e.Address, e.Version, strconv.FormatUint(e.Generation, 10),
			strconv.FormatUint(e.ConfigHash, 10), Clock(e.Since), refused)
	}
	nodes := Table{Columns: []Column{{"NODE", Cut}, {"STATE", Whole}}}
	for _, n := range p.Nodes {
		state := "down"
		if n.Up {
			state = "up"
		}
		if n.Joining {
			state += ", joining"
		}
		if n.Leaving {
			state += ", leaving"
		}
		nodes.Add(n.Address, state)
	}
	for _, t := range []Table{edges, nodes} {
		if len(t.rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(c.Out); err != nil {
			return err
		}
		if err := t.Write(c.Out); err != nil {
			return err
		}
	}
	return nil
}

// wallLine says whether the kernel refuses sources that are blocked and go on connecting.
func wallLine(w *control.Wall) string {
	if !w.Up {
		return fmt.Sprintf("away since %s, the edge closes connections of blocked sources itself: %s", Clock(w.Since), cmp.Or(w.Error, "not asked yet"))
	}
	return fmt.Sprintf("up, the kernel refuses %s, of at most %d, and has refused %s",
		Counted(w.Entries, "source"), w.Room, Counted(int(w.Refused), "connection"))
}

// secretLine says under which secret an edge counts, and what is wrong with that.
func secretLine(digests []string, warning string) string {
	text := "digest " + digests[0]
	if len(digests) > 1 {
		text += ", in place of " + strings.Join(digests[1:], ", ")
	}
	if warning != "" {
		text += "; " + warning
	}
	return text
}

// ruleModes says how many rules there are of each mode.
func ruleModes(rules []rule) string {
	var modes []string
	count := map[string]int{}
	for _, r := range rules {
		if count[r.Mode]++; count[r.Mode] == 1 {
			modes = append(modes, r.Mode)
		}
	}
	for i, mode := range modes {
		modes[i] = fmt.Sprintf("%d %s", count[mode], mode)
	}
	if len(modes) == 0 {
		return "none: nobody is limited"
	}
	return strings.Join(modes, ", ")
}

// plain is a number or a text of JSON without its quotes.
func plain(v json.RawMessage) string { return strings.Trim(string(v), `"`) }

// listenersLine says where clients connect.
func listenersLine(all []control.Listener) string {
	var parts []string
	for _, l := range all {
		text := l.Address
		if l.Field == "listen_tls" {
			text += " (TLS)"
		}
		if l.Redirect > 0 {
			text += fmt.Sprintf(" (to https, port %d)", l.Redirect)
		}
		parts = append(parts, text+" "+Number(l.Accepted))
	}
	return strings.Join(parts, ", ") + " connections accepted since the start"
}

// MaintenanceLine is maintenance that is on.
func (c *Client) MaintenanceLine(m *control.MaintenanceStatus) string {
	line := "maintenance is on until " + Clock(m.Until) + " (" + Span(m.Until.Sub(c.Now)) +
		"): every request gets 503"
	if m.Open() {
		line = "maintenance is on until sluice maintenance off, at most until " + Clock(m.Until) +
			": every request gets 503"
	}
	var spared []string
	for _, p := range m.Allow {
		spared = append(spared, p.String())
	}
	if len(spared) > 0 {
		line += ", but those of " + strings.Join(spared, ", ")
	}
	if m.Message != "" {
		line += fmt.Sprintf(", with %q", m.Message)
	}
	return line
}
