package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is something that goes wrong during a lab's replay, or is put right again.
type Fault struct {
	At     time.Duration // run time
	Action Action
	Kind   string // "edge", "memcached", "twemproxy", "origin", "wall"
	Index  int    // among those of the kind, over all PoPs

	By time.Duration // of StepClock
}

// Action is what a fault does to a process.
type Action string

// The actions. Stop and cont stand for a process that hangs; restart starts one anew that was
// killed, or kills it first.
const (
	Kill    Action = "kill"    // SIGKILL
	Term    Action = "term"    // SIGTERM: it may finish what is under way
	Stop    Action = "stop"    // SIGSTOP
	Cont    Action = "cont"    // SIGCONT
	Restart Action = "restart" // with the same address

	// Its wall clock, and no other's; the steps add up until it is restarted
	StepClock Action = "step-clock"
)

// Other is the kind of a fault that is done to no process of the lab: Lab.Other does it, Action
// says what it is, and Index which of those that somebody else keeps.
const Other = "other"

var faultTarget = regexp.MustCompile(`^(edge|memcached|twemproxy|origin|wall)/(0|[1-9][0-9]{0,3})$`)

// ParseFault reads a fault such as "20s kill memcached/0": when, what, which.
func ParseFault(s string) (Fault, error) {
	fail := func(format string, args ...any) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: %s", s, fmt.Sprintf(format, args...))
	}
	words := strings.Fields(s)
	switch steps := len(words) > 1 && words[1] == string(StepClock); {
	case steps && len(words) != 4:
		return fail(`want how far the clock steps behind its edge, as in "20s step-clock edge/1 -5s"`)
	case !steps && len(words) != 3:
		return fail(`want a time, an action and a target, as in "20s kill memcached/0"`)
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 {
		return fail("%s is no time after the start: want one such as 20s", words[0])
	}
	action := Action(words[1])
	if actions := []Action{Kill, Term, Stop, Cont, Restart, StepClock}; !slices.Contains(actions,
		action) {
		return fail("no action %s: want kill, term, stop, cont, restart or step-clock", words[1])
	}
	m := faultTarget.FindStringSubmatch(words[2])
	if m == nil {
		return fail("no target %s: want edge/N, memcached/N, twemproxy/N, origin/0 or wall/0",
			words[2])
	}
	index, _ := strconv.Atoi(m[2]) // at most four digits
	f := Fault{At: at, Action: action, Kind: m[1], Index: index}
	if action == StepClock {
		if f.Kind != "edge" {
			return fail("only an edge's clock matters, and is stepped: want edge/N instead of %s",
				words[2])
		}
		if f.By, err = time.ParseDuration(words[3]); err != nil || f.By == 0 {
			return fail("%s is no step of a clock: want one such as -5s", words[3])
		}
	}
	return f, nil
}

// Target is the name of the process: edge/1.
func (f Fault) Target() string { return fmt.Sprintf("%s/%d", f.Kind, f.Index) }

func (f Fault) String() string {
	s := fmt.Sprintf("%v %s", f.At, f.Action)
	if f.Kind != Other {
		s += " " + f.Target()
	}
	if f.Action == StepClock {
		s += fmt.Sprint(" ", f.By)
	}
	return s
}
