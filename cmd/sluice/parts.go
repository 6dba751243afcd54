package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice/cmd/sluice/internal/peers"
	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/cmd/sluice/internal/upgrade"
	"sluice/cmd/sluice/internal/viewer"
	"sluice/counter/member"
	"sluice/edge"
	"sluice/edge/admin"
	"sluice/edge/bearer"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/listen"
	"sluice/edge/metric"
	"sluice/edge/plans"
	"sluice/edge/view"
	"sluice/pop/secret"
)

// eventsKept is how many of the latest events an edge remembers.
const eventsKept = 2000

// A daemon is an edge with all that belongs to it. serve makes its parts one after the other, each
// by the named method. Whatever can fail because of bad input fails there, and nothing runs yet.
type daemon struct {
	background context.Context // of what runs beside requests
	end        context.CancelFunc

	config   *config.Config
	flags    *flags
	log      *slog.Logger
	happened *events.Log
	replace  chan os.Signal // a new process is to take over
	closers  []func()

	key      secret.Secret // readSecrets
	token    *bearer.Token
	services []*called    // that listen somewhere
	tokens   []*files     // of all that want one
	wanted   int          // fit: connections
	across   *peers.Peers // joinTier; nil: blocks go to no other PoP
	modules  edge.Modules
	shared   *tier.Shared

	keeper  *plans.Loader // makeEdge; nil: no client is on a plan
	server  *edge.Server
	viewing *viewer.Viewer
	numbers *prometheus.Registry

	certificates map[string]*listen.Certificates // loadCertificates; see clientCertificates

	program string // openListeners
	ours    *upgrade.Sockets
	at      listeners

	reload    *reloader       // makeReloader
	secret    *secretFile     // nil: there is none, or no tier
	older     *upgrade.Parent // takeOver; nil: there was no older process
	operators *http.Server    // serveOperators

	failed        chan error              // run
	edges, others sync.WaitGroup          // what serves requests and peers, and what does not
	beside        []func(context.Context) // further ones of others, made with their parts
}

// close lets go of what has been opened, the last first.
func (d *daemon) close() {
	for i := len(d.closers) - 1; i >= 0; i-- {
		d.closers[i]()
	}
}

// readSecrets reads the secrets, and tries the origins.
func (d *daemon) readSecrets() (err error) {
	c := d.config
	if d.key, err = settings.ReadSecret(c); err != nil {
		return err
	}
	if w := settings.GuessableSecret(c); w != "" {
		d.log.Warn(w, "pop", c.PoP.Name)
	}
	const setting = "admin_token_file"
	text, err := settings.ReadToken(setting, c.AdminTokenFile)
	if err != nil {
		return err
	}
	if d.token = bearer.New(text); c.AdminTokenFile != "" {
		d.tokens = append(d.tokens, tokenFile(setting, c.AdminTokenFile, d.token, d.happened))
	}
	d.services = calledOf(c)
	for _, s := range d.services {
		setting, file, err := s.readToken()
		if err != nil {
			return err
		}
		if file != "" {
			d.tokens = append(d.tokens, tokenFile(setting, file, s.token, d.happened))
		}
	}
	return findOrigins(c, d.log)
}

// fit keeps the process within what the system gives it.
func (d *daemon) fit() error {
	d.wanted = fitDescriptors(d.config)
	if d.config.Limits.Memory > 0 {
		debug.SetMemoryLimit(int64(d.config.Limits.Memory))
	}
	return nil
}

// joinTier makes the edge one of a PoP, and the PoP one of several.
func (d *daemon) joinTier() (err error) {
	c := d.config
	if len(c.PoP.Peers) > 0 {
		keys, err := settings.ReadPeersKeys(c.PoP.PeersSecretFile)
		if err != nil {
			return err
		}
		d.across = peers.New(&c.PoP, keys, d.happened)
	}
	d.modules = modules(false, d.passes())
	d.shared, err = tier.Join(c, d.key, d.log, d.happened, d.modules.Rules(c), d.across)
	return err
}

// makeEdge makes the edge itself, with its modules and the plans of its clients.
func (d *daemon) makeEdge() (err error) {
	c, shared := d.config, d.shared
	if d.keeper, err = keepPlans(c, d.key.Bytes(), d.log.Warn); err != nil {
		return err
	}
	if d.keeper != nil {
		d.closers = append(d.closers, func() { d.keeper.Store.Close() })
	}
	d.server, err = edge.New(edge.Options{Events: d.happened, Name: tier.EdgeName(c), Via: viaName(c, d.key),
		Config: c, Use: d.modules, Table: shared.Table, Blocks: shared.Blocks, Tier: shared.Tier,
		Secret: d.key.Bytes(), Warn: d.log.Warn, InFlight: shared.InFlight, Exact: shared.Exact})
	if err != nil {
		return err
	}
	if err = d.modules.Start(); err != nil {
		return err
	}
	if d.keeper != nil {
		d.keeper.Edge, d.keeper.Publish = tier.EdgeName(c), d.server.SetPlans
		if err := d.keeper.Load(context.Background()); err != nil {
			return err
		}
	}
	d.makeViewer()
	warnings(c, d.log)
	return nil
}

// passes are the keys of passes that clients are given, nil where nobody shares them: a secret that
// follows from the PoP's name can be guessed.
func (d *daemon) passes() [][16]byte {
	if d.config.PoP.SecretFile == "" {
		return nil
	}
	return d.key.Passes()
}

// viaName is what Via calls this edge. Edges of a PoP that has a secret have one name: two of them
// in a row would count each request twice, so that is a loop as well. Without a secret an edge has
// a name of its own, because PoPs of other people may have the same name, default say, and be
// behind this one rightly.
func viaName(c *config.Config, key secret.Secret) string {
	name := rand.Uint64()
	if c.PoP.SecretFile != "" {
		name = key.Via()
	}
	return fmt.Sprintf("sluice-%016x", name)
}

// makeViewer makes what shows this edge to the others of its PoP, and them here.
func (d *daemon) makeViewer() {
	v := viewer.New()
	v.Name = tier.EdgeName(d.config)
	v.Own = func(asked []string, now time.Time) *view.Part {
		families, _ := d.numbers.Gather() // an error leaves out what is wrong
		p := d.server.Part(view.NewLoad(families), now)
		for _, q := range asked {
			d.server.Answer(p, q, now)
		}
		return p
	}
	if m := d.shared.Machine; m != nil {
		v.ID = m.Operators.Edges()[0].ID
		v.Tier = &viewer.Tier{Secret: d.key, Do: d.shared.Do, Edges: m.Operators.Edges,
			Silent: m.Operators.Silent}
		d.shared.Viewed = v.Notice
	}
	d.viewing = v
}

// loadCertificates reads the certificates for clients and for programs.
func (d *daemon) loadCertificates() (err error) {
	if d.certificates, err = clientCertificates(d.config); err != nil {
		return err
	}
	for _, s := range d.services {
		if err = s.readCertificates(); err != nil {
			return err
		}
		if s.certificates != nil {
			d.certificates[s.Name] = s.certificates
		}
	}
	for name, c := range d.certificates {
		for _, w := range expired(name, c, time.Now()) {
			d.log.Warn(w)
		}
	}
	return nil
}

// openListeners listens, or takes the sockets of the process before this one. No request is served
// yet.
func (d *daemon) openListeners() (err error) {
	if d.program, err = os.Executable(); err != nil { // now: later a new one may have replaced it
		return err
	}
	if d.ours, err = upgrade.GivenSockets(serviceNames(d.config)); err != nil {
		return err
	}
	d.closers = append(d.closers, func() { d.ours.Close(true) })
	if err = d.at.open(d.ours, d.config, d.services); err != nil {
		return err
	}
	d.makeServices()
	return nil
}

// certify gets certificates by itself, where that is wanted, for listeners that name no files.
func (d *daemon) certify() error {
	issuer, err := d.modules.Certify(d.config, d.at.ports(), d.happened)
	if issuer != nil {
		shown := d.certificates["listen_tls"]
		shown.Issued, shown.First = issuer.Certificate, issuer.First
	}
	return err
}

// makeReloader makes what reads files again, and lays what operators have changed over the
// configuration.
func (d *daemon) makeReloader() error {
	c, happened := d.config, d.happened
	d.reload = &reloader{flags: d.flags, server: d.server, machine: d.shared.Machine, log: d.log,
		events: happened, store: d.shared.Rules, name: tier.EdgeName(c), base: c,
		peers: d.shared.TurnPeers, modules: d.modules,
		about: member.About{Address: reachable(d.at.front[0].addr()), Version: version(),
			Started: time.Now()}}
	d.reload.files = append(d.reload.files, d.tokens...)
	for _, certificates := range d.certificates {
		d.reload.files = append(d.reload.files, &files{happened: happened,
			kind: events.Certificate, refresh: certificates.Refresh,
			again: "certificates read again",
			wrong: "the certificates are wrong: the old ones stay in use"})
	}
	if d.across != nil {
		d.reload.files = append(d.reload.files, &files{happened: happened, kind: events.Peer,
			refresh: func() (bool, error) {
				keys, err := settings.ReadPeersKeys(c.PoP.PeersSecretFile)
				return err == nil && d.across.SetKeys(keys), err
			}, again: "pop.peers_secret_file read again: its first line signs, and each line is believed", wrong: "the secret of peers is wrong: the old one stays in use"})
	}
	if d.shared.Machine != nil && c.PoP.SecretFile != "" {
		d.secret = newSecretFile(c, d.key, happened)
		d.reload.files = append(d.reload.files, &d.secret.files)
	}
	if files := d.flags.files.Load(); files != nil {
		d.reload.last = files.Text() + d.reload.beside()
	}
	return d.reload.catchUp()
}

// takeOver takes the state of the process before this one, if there is one: that goes on until this
// one serves.
func (d *daemon) takeOver() error {
	if d.older = upgrade.NewParent(); d.older == nil {
		return nil
	}
	d.older.Events = d.happened
	take := func(into tier.Kept) func([]byte) error {
		// Its mitigations are under rules as operators have changed them
		return func(list []byte) error {
			return cmp.Or(into.Restore(list, time.Now()), d.reload.catchUp())
		}
	}
	if d.shared.Machine != nil {
		d.older.OperatorLog = take(d.shared.Machine.Operators)
		d.older.Membership = d.shared.Machine.Succeed
	}
	if d.shared.Local != nil {
		d.older.Rules = take(d.shared.Local)
	}
	if err := d.older.Take(d.server); err != nil {
		return fmt.Errorf("the older process did not send its mitigations: %w", err)
	}
	if d.shared.Alone() {
		d.older.TakeCounters("counters", d.shared.Table, d.server, d.log)
	} else {
		d.older.NoCounters()
	}
	d.shared.Taught()
	// The tier may have these blocks under the older secret alone
	if _, rotates := d.key.Older(); rotates && !d.shared.Alone() {
		d.shared.Blocks.Resend(time.Now())
	}
	d.shared.TurnPeers(d.config) // what other PoPs had blocked is among what the older process sent
	return nil
}

// handover is how the process after this one takes this one's state.
func (d *daemon) handover() *upgrade.Handover {
	next := &upgrade.Handover{Program: d.program, Args: os.Args[1:], Sockets: d.ours,
		Server: d.server, Events: d.happened, Log: d.log}
	if d.shared.Alone() {
		next.Table = d.shared.Table
	} else {
		next.OperatorLog = func() []byte {
			list, _ := d.shared.Machine.Operators.Encoded(time.Now())
			return list
		}
		next.Membership = d.shared.Machine.Membership
	}
	if d.shared.Local != nil {
		next.Rules = func() []byte {
			list, _ := d.shared.Local.Encoded(time.Now())
			return list
		}
	}
	return next
}

// makeMetrics makes those of all parts.
func (d *daemon) makeMetrics() error {
	all := prometheus.NewRegistry()
	all.MustRegister(d.server.Collector(), certificateMetrics(d.certificates), metric.Collector(thisBuild().Collect),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range d.shared.Metrics {
		all.MustRegister(c)
	}
	if d.keeper != nil {
		all.MustRegister(plansMetrics(d.keeper))
	}
	if d.secret != nil {
		all.MustRegister(metric.Collector(d.secret.collect))
	}
	if d.across != nil {
		all.MustRegister(metric.Collector(d.across.Collect))
	}
	d.numbers = all
	return nil
}

// serveOperators makes what answers operators.
func (d *daemon) serveOperators() {
	c, reload := d.config, d.reload
	connections := &admin.Connections{Most: spareDescriptors / 2}
	d.operators = &http.Server{
		Handler: admin.New(admin.Options{Edge: d.server, Metrics: d.numbers, View: d.viewing.Look,
			State: d.state, Waiting: reload.Waiting, Overlay: reload.overlay.Load,
			Reload: func() (control.Reloaded, error) { return reload.now(d.background) },
			Edit:   reload.edit, Order: reload.order, Self: reload.self,
			Etcd: d.shared.PlaceStatus, Hosts: c.AdminHosts,
			Address: d.at.back.Addr().String(), Token: d.token, MetricsToken: c.MetricsToken,
			Plans: d.keeper, Vouch: connections.Vouch}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // a million mitigations are a long answer
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	connections.Guard(d.operators)
}
