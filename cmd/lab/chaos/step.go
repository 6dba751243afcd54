package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/lab"
)

// action is what a step does to a stage.
type action func(ctx context.Context, s *stage) error

// deed is something that can be done at a time: how it is said, and how that is read into a step.
type deed struct {
	like *regexp.Regexp
	want string
	read func(s *Step, m []string) error
}

// deeds are all that there are, but for what is done to processes and to clocks.
var deeds = []deed{
	done(`(slow|hold|refuse|garble|drip|mend) (memcached/\d+|origin/0)(?: by `+span+`)?`, "slow memcached/0 by 200ms", func(s *Step, m []string) error {
		how := harm(m[1])
		by, err := time.ParseDuration(m[3])
		if (how == slow) != (err == nil) {
			return fmt.Errorf("want how slow it is, and of nothing else: %q", "slow memcached/0 by 200ms")
		}
		s.act = func(_ context.Context, st *stage) error { return st.wire(m[2], how, by) }
		return nil
	}),
	done(`fill (memcached/\d+) with `+number+` items`, "fill memcached/0 with 200,000 items", func(s *Step, m []string) error {
		var items int
		s.act = func(ctx context.Context, st *stage) error { return st.fill(ctx, m[1], items) }
		return whole(&items, m[2], 1, 10_000_000)
	}),
	done(`crowd (memcached/\d+) with `+number+` connections`, "crowd memcached/0 with 1,100 connections", func(s *Step, m []string) error {
		var connections int
		s.act = func(ctx context.Context, st *stage) error { return st.crowd(ctx, m[1], connections) }
		return whole(&connections, m[2], 1, 10_000)
	}),
	done(`disperse`, "disperse", func(s *Step, _ []string) error {
		s.act = func(_ context.Context, st *stage) error { st.disperse(); return nil }
		return nil
	}),
}

func done(like, want string, read func(*Step, []string) error) deed {
	return deed{regexp.MustCompile("^" + like + "$"), want, read}
}

// readStep reads what happens at a time.
func readStep(at, text string) (*Step, error) {
	s := &Step{Text: text}
	var err error
	if s.At, err = time.ParseDuration(at); err != nil {
		return nil, fmt.Errorf("%s is no time: want one such as 20s", at)
	}
	var known []string
	for _, d := range deeds {
		if m := d.like.FindStringSubmatch(text); m != nil {
			if err := d.read(s, m); err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			return s, nil
		}
		known = append(known, strconv.Quote(d.want))
	}
	f, err := lab.ParseFault(at + " " + text)
	if err != nil {
		return nil, fmt.Errorf("%w; or such as %s", err, strings.Join(known, ", "))
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

// fill writes as many items into a node as so many new sources would, each as large as that of a counter.
func (st *stage) fill(ctx context.Context, name string, items int) error {
	c, err := st.dial(ctx, name)
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

// crowd takes so many connections of a node, none of which says anything.
func (st *stage) crowd(ctx context.Context, name string, connections int) error {
	for range connections {
		c, err := st.dial(ctx, name)
		if err != nil {
			return err
		}
		st.mu.Lock()
		st.crowds = append(st.crowds, c)
		st.mu.Unlock()
	}
	return nil
}

// dial opens a connection to a node.
func (st *stage) dial(ctx context.Context, name string) (net.Conn, error) {
	for _, n := range st.site.NodeProcesses {
		if n.Name == name {
			return new(net.Dialer).DialContext(ctx, "tcp", n.Addr.String())
		}
	}
	return nil, errors.New("loadgen: chaos: there is no " + name)
}

// disperse gives back all connections that were taken.
func (st *stage) disperse() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range st.crowds {
		c.Close()
	}
	st.crowds = nil
}
