package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/anycast"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
)

// action is what a step does to a stage.
type action func(ctx context.Context, s *stage) error

var (
	wired    = regexp.MustCompile(`^(slow|hold|refuse|garble|drip|cut|swell|switch|mend) (memcached/\d+|origin/0)(?: by ` + span + `)?$`)
	reloaded = regexp.MustCompile(`^reload every edge ` + number + ` times$`)
	filled   = regexp.MustCompile(`^fill (memcached/\d+) with ` + number + ` items$`)
	crowded  = regexp.MustCompile(`^crowd (memcached/\d+) with ` + number + ` connections$`)
	guested  = regexp.MustCompile(`^send ` + number + ` (half uploads|heads of 64 KB|forged sources|forged PROXY headers|mapped addresses|new sources|upgrades) to (edge/\d+)$`)
	moved    = regexp.MustCompile(`^move (\S+) to point (\d+)$`)
)

// readStep reads what happens at a time.
func readStep(at, text string) (*Step, error) {
	s := &Step{Text: text}
	if d, err := time.ParseDuration(at); err != nil {
		return nil, fmt.Errorf("%s is no time: want one such as 20s", at)
	} else {
		s.At = d
	}
	if m := wired.FindStringSubmatch(text); m != nil {
		how := harm(m[1])
		by, err := time.ParseDuration(m[3])
		if (how == slow) != (err == nil) {
			return nil, fmt.Errorf("%q: want how slow it is, and of nothing else: %q", text, "slow memcached/0 by 200ms")
		}
		s.act = func(ctx context.Context, st *stage) error { return st.wire(m[2], how, by) }
		return s, nil
	}
	if m := reloaded.FindStringSubmatch(text); m != nil {
		var times int
		if err := whole(&times, m[1], 1, 10_000); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		s.act = func(ctx context.Context, st *stage) error { return st.reload(ctx, times) }
		return s, nil
	}
	if m := filled.FindStringSubmatch(text); m != nil {
		var items int
		if err := whole(&items, m[2], 1, 10_000_000); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		s.act = func(ctx context.Context, st *stage) error { return st.fill(ctx, m[1], items) }
		return s, nil
	}
	if m := crowded.FindStringSubmatch(text); m != nil {
		var connections int
		if err := whole(&connections, m[2], 1, 10_000); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		s.act = func(ctx context.Context, st *stage) error { return st.crowd(ctx, m[1], connections) }
		return s, nil
	}
	if text == "disperse" {
		s.act = func(_ context.Context, st *stage) error { st.disperse(); return nil }
		return s, nil
	}
	if m := guested.FindStringSubmatch(text); m != nil {
		var times int
		if err := whole(&times, m[1], 1, 1_000_000); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		s.act = func(ctx context.Context, st *stage) error { return st.guest(ctx, m[2], m[3], times) }
		return s, nil
	}
	if m := moved.FindStringSubmatch(text); m != nil {
		prefix, err := netip.ParsePrefix(m[1])
		if err != nil {
			return nil, fmt.Errorf("%q: %s is no prefix: want one such as 198.18.0.0/24", text, m[1])
		}
		pop, _ := strconv.Atoi(m[2])
		s.Route = &anycast.Route{At: s.At, Prefix: prefix, PoP: pop}
		return s, nil
	}
	f, err := lab.ParseFault(at + " " + text)
	if err != nil {
		return nil, fmt.Errorf("%w; or slow, hold, refuse, garble, drip, cut, swell, switch or mend memcached/N or origin/0; or %q, %q, %q, %q, %q, %q", err,
			"reload every edge 50 times", "fill memcached/0 with 200,000 items", "move 198.18.0.0/24 to point 1", "send 50 half uploads to edge/0",
			"crowd memcached/0 with 1,100 connections", "disperse")
	}
	s.Fault = &f
	return s, nil
}

// wire harms the wire to a node or to the origin, or puts it right again.
func (st *stage) wire(name string, how harm, by time.Duration) error {
	w := st.wires[name]
	if w == nil {
		return fmt.Errorf("loadgen: chaos: there is no wire to %s", name)
	}
	return w.harm(how, by)
}

// reloadPause is how long after one reload the next begins, on all edges at once: ten a second.
const reloadPause = 100 * time.Millisecond

// reload has every edge read its configuration anew, ten times a second.
func (st *stage) reload(ctx context.Context, times int) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for range times {
		for _, e := range st.site.EdgeProcesses {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.Admin.String()+"/v1/reload", nil)
			if err != nil {
				return err
			}
			answer, err := client.Do(request)
			if err != nil {
				return err
			}
			answer.Body.Close()
			if answer.StatusCode/100 != 2 {
				return fmt.Errorf("loadgen: chaos: %s reloads: %s", e.Name, answer.Status)
			}
		}
		if err := process.Pause(ctx, reloadPause); err != nil {
			return err
		}
	}
	return nil
}

// fill writes as many items into a node as so many new sources would, each as large as that of a counter.
func (st *stage) fill(ctx context.Context, name string, items int) error {
	for _, n := range st.site.NodeProcesses {
		if n.Name != name {
			continue
		}
		c, err := dial(ctx, n.Addr)
		if err != nil {
			return err
		}
		defer c.Close()
		var b strings.Builder
		for i := range items {
			fmt.Fprintf(&b, "set sluice-chaos-flood-%012d 0 0 20 noreply\r\n%020d\r\n", i, i)
			if b.Len() > 1<<16 || i == items-1 {
				if _, err := c.Write([]byte(b.String())); err != nil {
					return fmt.Errorf("loadgen: chaos: fill %s: %w", name, err)
				}
				b.Reset()
			}
		}
		return nil
	}
	return errors.New("loadgen: chaos: there is no " + name)
}
