package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/edge/bearer"
	"sluice/edge/changes"
	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/limiter"
	"sluice/edge/metric"
	"sluice/edge/operator"
	"sluice/edge/proxy"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/upstream"
	"sluice/edge/view"
)

// Modules are the features that an edge has beside the life of a request. The edge knows none of
// them: each plugs in at named points (Points). Where several plug in at one point, they are asked
// in the order of this list.
type Modules []Module

// A Module is one feature. Fields that are nil are of what it does not do.
type Module struct {
	Name   string        // that of its section in configuration files, or of its folder
	Config config.Module // what it adds to configuration files; its name is Name
	// Prepare makes the module's points for a configuration that is to come into force. Nothing
	// may change by it: after an error, this module's or another's, all stays as it was.
	Prepare func(*Setup) (Points, error)
	// Try returns what would keep Start from working under a configuration. It changes nothing.
	Try func(*config.Config) error
	// Notes say what a configuration comes to that is only checked, after Prepare.
	Notes func() []string
	// Start opens what must be open before the first request, under the first configuration that
	// Prepare was called for.
	Start func() error
	// Certify makes what gets certificates by itself, before the first client; nil: c wants none.
	// proofs are where the edge can prove that a host is its own, and to is for what becomes of it.
	Certify func(c *config.Config, proofs Ports, to *events.Log) (Issuer, error)
	// Run is what the module does beside requests, until ctx is done. Modules are run in their
	// order. Each is stopped, and has ended, before the one in front of it is.
	Run func(ctx context.Context)
	// Serve makes what answers at the listener of Config.Service. It is called if there is one,
	// after Prepare.
	Serve func(Calls) Service
	// Reload reads files of the module's again that may have changed. A reload calls it, at most
	// once at a time and until ctx is done, before c comes into force; nil: c is wrong. It may take
	// its time, and what it returns is called when c is in force, or cannot be.
	Reload func(ctx context.Context, c *config.Config) (done func())
	// Rules returns where changes of rules are kept under a configuration, in place of the PoP's list
	// and of one of this edge alone; nil: it keeps none. It is asked once, at the start.
	Rules   func(*config.Config) *rulelist.Place
	Collect func(metric.Sink)    // its metrics
	State   func(*control.State) // adds what operators should know of it
	// Kernel returns how the kernel refuses a prefix; nil: it does not.
	Kernel func(netip.Prefix) *control.Kernel
	// Answer adds to what this edge shows what it says to a question that is asked of each edge of
	// the PoP. It reports false if the question is not the module's.
	Answer func(to *view.Part, question string, now time.Time) bool
	// Changes is of what operators change of something of the module's; nil: there is none.
	Changes *Changes
	Routes  []route.Route // what it adds to the operators' API
	// Commands are what it adds to those of sluice. Flags keep what they were set to: a command runs
	// once.
	Commands []operator.Command
}

// Changes is of what operators change that is no rule's: of Kind the module's name. It is kept and
// travels to all edges as what they change of rules does; a route makes it by route.API.Order.
type Changes struct {
	// Apply puts in force here what stands of some changes, by name and the newest first, and
	// returns those that cannot be. It is called when there are others, when one of them ends, and
	// after each reload.
	Apply func(list []changes.Change, now time.Time, log *slog.Logger) []changes.Refused
	// Text is of the event that another edge has made one.
	Text func(*changes.Change) string
}

// Ports are those of the edge's listeners for clients.
type Ports struct {
	Host      string // "": at every address
	HTTP, TLS int    // 0: none
}

// An Issuer has certificates that were got by itself, for listeners of TLS that name no files of
// their own. It is safe for concurrent use.
type Issuer interface {
	// Certificate is for a client; nil: none is. It goes before those of files.
	Certificate(*tls.ClientHelloInfo) *tls.Certificate
	// First is for a client that none is for, where there are no files.
	First() *tls.Certificate
}

// Calls are how programs may call a module.
type Calls struct {
	TLS   *tls.Config   // nil: without
	Token *bearer.Token // that they must send
	Log   *slog.Logger
}

// A Service answers programs. It is safe for concurrent use.
type Service interface {
	// Serve accepts connections until Drain. It blocks, and closes its listener.
	Serve(net.Listener) error
	// Drain stops accepting, has programs connect elsewhere, and returns when every call in flight
	// is answered, or ctx is done: what is open then is cut.
	Drain(ctx context.Context)
}

// A Setup is what modules make their points of.
type Setup struct {
	Config  *config.Config // the one that is to come into force
	Edge    *Server        // not to be asked before it serves
	Name    string         // what operators call this edge
	Limiter *limiter.Limiter
	Secret  key.Secret // the PoP's
	Events  *events.Log
	Warn    func(message string, args ...any)
	Made    *rules.Set // those of Config, from InForce on; nil: not yet
	// Rules and Origins are those in force: at the first Prepare there are none yet.
	Rules   func() *rules.Set
	Origins func() *upstream.Origins
}

// Points are what a module does under one configuration. They hang on its snapshot: requests that
// began under the configuration before go on with that one's.
type Points struct {
	Gates []Gate
	// Facts are those of Module.Config that the configuration wants, now with Find.
	Facts []*key.Fact
	// Actions are what those of Module.Config do with a request that a rule refuses: each answers
	// it by Begin and Add. It reports false if it has not, and the rule's refusal is right. Limits,
	// Retry-After and Cache-Control are added. What an operator has blocked, and what cannot be
	// counted, is always refused.
	Actions map[rules.Action]func(*Exchange, *rules.Rule) bool
	// Hello is called with each ClientHello, and returns what requests of the connection have in
	// Request.Hello; nil: nothing.
	Hello func(*tls.ClientHelloInfo) any
	// Bodies replace the body of an answer of the edge's own by Add and Replace; retry is what its
	// Retry-After says, if there is one. The first that reports true has done so. A rule's own body
	// is not replaced, nor an action's of a module.
	Bodies []func(x *Exchange, retry []byte) bool
	// Answers are called before an answer of the edge's own goes out.
	Answers   []func(*Exchange)
	Observers []Observer
	// Trials are rules that are tried beside those in force: each counts as a shadow, by counters of
	// its own, and only Decided sees what it says (rules.Decision.Trials). Tally is of one alone.
	Trials []rules.Trial
	// Closed is called with the source of each connection that is closed because it is blocked.
	Closed func(netip.Prefix)
	// InForce is called as the configuration comes into force, before the first request under it;
	// nil: the module need not know.
	InForce func()
}

// A Gate is asked about each request before rules are. It may answer in their place.
type Gate struct {
	Phase Phase
	// Waits reports whether Answer may have to wait, without waiting. A connection of HTTP/2 goes
	// on with other requests meanwhile. nil: it never waits.
	Waits func(*Exchange) bool
	// Answer reports whether it has answered the request.
	Answer func(*Exchange) bool
}

// An Observer is told of each request. What is nil it does not want to know.
type Observer struct {
	// Watch is called when the client is known, and returns who is told of this request; nil:
	// nobody is.
	Watch func(*Exchange) Watcher
	// Decided is called once rules have decided about a request, or about what a program or another
	// proxy asks. It appends who is to be told which status the origin answers a request with.
	Decided func(d *rules.Decision, now time.Time, to []Told) []Told
	// Answered is called when the answer is made, and before it is sent.
	Answered func(*Exchange, *Outcome)
}

// Told is told the status of an origin's answer. Nothing is told where the edge itself answers.
type Told interface{ Answered(status int) }

// A Watcher is told of one request's attempts at origins, and of its end.
type Watcher interface {
	proxy.Watcher
	// Ended is called when the answer has gone, or could not be sent: failed.
	Ended(o *Outcome, failed bool)
}

// A Phase is when a gate is asked: those of one phase after those of all phases before. The edge
// itself refuses who is denied after Proof, and lets pass who is allowed after all gates.
type Phase uint8

const (
	Proof       Phase = iota // what must be answered whoever asks
	Redirect                 // what belongs elsewhere
	Maintenance              // what is closed
	Own                      // what is asked of the module itself
)

// Config is what the modules add to configuration files.
func (all Modules) Config() (list []config.Module) {
	for _, m := range all {
		m.Config.Name = m.Name
		list = append(list, m.Config)
	}
	return list
}

// Routes are what the modules add to the operators' API.
func (s *Server) Routes() (list []route.Route) {
	for _, m := range s.use {
		list = append(list, m.Routes...)
	}
	return list
}

// Commands are what the modules add to those of sluice.
func (all Modules) Commands() (list []operator.Command) {
	for _, m := range all {
		list = append(list, m.Commands...)
	}
	return list
}

// run starts what modules do beside requests. The function that it returns stops it.
func (all Modules) run(ctx context.Context) (stop func()) {
	var stops []func()
	for _, m := range all {
		if m.Run == nil {
			continue
		}
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.Run(own)
		}()
		stops = append(stops, func() {
			cancel()
			<-ended
		})
	}
	return func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
}

// prepare makes the points of all modules.
func (s *Server) prepare(c *config.Config, to *snapshot) (*Setup, error) {
	setup := &Setup{Config: c, Edge: s, Name: s.name, Limiter: &s.limiter, Secret: s.secret,
		Events: s.events, Warn: s.warn,
		Rules: func() *rules.Set { return s.snap.Load().rules }, Origins: s.Upstreams}
	var gates []Gate
	for _, m := range s.use {
		if m.Prepare == nil {
			continue
		}
		p, err := m.Prepare(setup)
		if err != nil && !strings.HasPrefix(err.Error(), m.Name+".") &&
			!strings.HasPrefix(err.Error(), m.Name+":") { // it names no setting
			err = fmt.Errorf("%s: %w", m.Name, err)
		}
		if err != nil {
			return nil, err
		}
		gates = append(gates, p.Gates...)
		to.facts = append(to.facts, p.Facts...)
		for name, answer := range p.Actions {
			if to.actions == nil {
				to.actions = make(map[rules.Action]func(*Exchange, *rules.Rule) bool)
			}
			to.actions[name] = answer
		}
		if p.Hello != nil {
			to.hellos = append(to.hellos, p.Hello)
		}
		to.bodies = append(to.bodies, p.Bodies...)
		to.answers = append(to.answers, p.Answers...)
		for _, o := range p.Observers {
			if o.Watch != nil {
				to.watches = append(to.watches, o.Watch)
			}
			if o.Decided != nil {
				to.decided = append(to.decided, o.Decided)
			}
			if o.Answered != nil {
				to.answered = append(to.answered, o.Answered)
			}
		}
		to.trials = append(to.trials, p.Trials...)
		if p.Closed != nil {
			to.closed = append(to.closed, p.Closed)
		}
		if p.InForce != nil {
			to.inForce = append(to.inForce, p.InForce)
		}
	}
	slices.SortStableFunc(gates, func(a, b Gate) int { return cmp.Compare(a.Phase, b.Phase) })
	for _, g := range gates {
		if g.Waits != nil {
			to.mayWait = append(to.mayWait, g.Waits)
		}
		if g.Phase == Proof {
			to.proofs = append(to.proofs, g.Answer)
		} else {
			to.gates = append(to.gates, g.Answer)
		}
	}
	return setup, nil
}

// Start has the modules open what must be open before the first request, in order.
func (all Modules) Start() error {
	for _, m := range all {
		if m.Start != nil {
			if err := m.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Certify makes what gets certificates by itself: that of the first module that does; nil: none.
func (all Modules) Certify(c *config.Config, proofs Ports, to *events.Log) (Issuer, error) {
	for _, m := range all {
		if m.Certify == nil {
			continue
		}
		if issuer, err := m.Certify(c, proofs, to); issuer != nil || err != nil {
			return issuer, err
		}
	}
	return nil, nil
}

// Serve makes what answers at the listener of a module.
func (all Modules) Serve(name string, c Calls) Service {
	i := slices.IndexFunc(all, func(m Module) bool { return m.Name == name })
	return all[i].Serve(c)
}

// Try returns what would keep modules from starting under a configuration. It changes nothing.
func (all Modules) Try(c *config.Config) (wrong []error) {
	for _, m := range all {
		if m.Try != nil {
			if err := m.Try(c); err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	return wrong
}

// Notes say what a configuration comes to, after edge.New.
func (all Modules) Notes() (notes []string) {
	for _, m := range all {
		if m.Notes != nil {
			notes = append(notes, m.Notes()...)
		}
	}
	return notes
}

// Rules is where a module keeps changes of rules, the first that does; nil: none does.
func (all Modules) Rules(c *config.Config) *rulelist.Place {
	for _, m := range all {
		if m.Rules == nil {
			continue
		}
		if at := m.Rules(c); at != nil {
			return at
		}
	}
	return nil
}

// Reload has modules read their files again.
func (all Modules) Reload(ctx context.Context, c *config.Config) (done func()) {
	var dones []func()
	for _, m := range all {
		if m.Reload != nil {
			dones = append(dones, m.Reload(ctx, c))
		}
	}
	return func() {
		for _, done := range dones {
			done()
		}
	}
}

// Change has the modules put in force what operators have changed of theirs, of all that they have
// changed, and returns what of it cannot be.
func (all Modules) Change(list []changes.Change, now time.Time,
	log *slog.Logger) (refused []changes.Refused) {
	own := make(map[string][]changes.Change)
	for _, c := range list {
		if c.Kind != "" && all.changes(c.Kind) == nil {
			refused = append(refused, changes.Refused{Change: c, Err: c.Unknown()})
		}
		own[c.Kind] = append(own[c.Kind], c)
	}
	for _, m := range all {
		if m.Changes != nil {
			refused = append(refused, m.Changes.Apply(own[m.Name], now, log)...)
		}
	}
	return refused
}

// ChangeText is of the event that another edge has made a change that a module has put in force.
func (all Modules) ChangeText(c *changes.Change) string { return all.changes(c.Kind).Text(c) }

// changes is of the module of a name; nil: there is none.
func (all Modules) changes(name string) *Changes {
	for _, m := range all {
		if m.Name == name {
			return m.Changes
		}
	}
	return nil
}

// State adds what operators should know of modules.
func (all Modules) State(to *control.State) {
	for _, m := range all {
		if m.State != nil {
			m.State(to)
		}
	}
}

// inKernel returns how the kernel refuses a prefix; nil: it does not.
func (all Modules) inKernel(p netip.Prefix) *control.Kernel {
	for _, m := range all {
		if m.Kernel == nil {
			continue
		}
		if is := m.Kernel(p); is != nil {
			return is
		}
	}
	return nil
}

// hello finds out what modules want of a ClientHello; nil: nothing.
func (s *Server) hello() func(*tls.ClientHelloInfo) []any {
	hellos := s.snap.Load().hellos
	if len(hellos) == 0 {
		return nil
	}
	return func(hello *tls.ClientHelloInfo) (all []any) {
		for _, find := range hellos {
			if one := find(hello); one != nil {
				all = append(all, one)
			}
		}
		return all
	}
}

// answeredAt reports whether one of some gates has answered the request.
func (x *Exchange) answeredAt(gates []func(*Exchange) bool) bool {
	for _, answer := range gates {
		if answer(x) {
			return true
		}
	}
	return false
}

// gatesWait reports whether a gate may have to wait.
func (x *Exchange) gatesWait() bool {
	for _, waits := range x.snap.mayWait {
		if waits(x) {
			return true
		}
	}
	return false
}
