package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice/cmd/sluice/internal/auditor"
	"sluice/cmd/sluice/internal/clients"
	"sluice/cmd/sluice/internal/every"
	"sluice/cmd/sluice/internal/peers"
	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/cmd/sluice/internal/upgrade"
	"sluice/edge"
	"sluice/edge/admin"
	"sluice/edge/audit"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/listen"
	"sluice/edge/ratelimit"
	"sluice/edge/rules"
	"sluice/pop/presence"
)

// eventsKept is how many of the latest events an edge remembers.
const eventsKept = 2000

// serve runs an edge until it is told to stop. Everything that can fail because of bad input comes before anything is
// started; what is started is stopped in the opposite order:
//
//	start: tier, admin, edge            (the edge last: nobody is served by half of it)
//	stop:  edge and rate limit service drained, tier's last report, admin   (it answers /readyz and /metrics to the end)
func serve(c *config.Config, f *flags, stderr io.Writer) error {
	direct := newLog(stderr, f.logLevel, f.logFormat)
	lines := newLogWriter(stderr, func(lost uint64) { direct.Warn("lines of this log were lost: it is read too slowly", "lost", lost) })
	defer lines.close()
	log := newLog(lines, f.logLevel, f.logFormat)
	happened := newEvents(log)
	signal.Ignore(syscall.SIGPIPE) // whoever reads the logs may go; that is no reason to end
	// A signal that comes before somebody listens for it must not end the process.
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(early)
	usr2 := make(chan os.Signal, 1)
	signal.Notify(usr2, syscall.SIGUSR2)
	defer signal.Stop(usr2)
	key, err := settings.ReadSecret(c)
	if err != nil {
		return err
	}
	if w := settings.GuessableSecret(c); w != "" {
		log.Warn(w, "pop", c.PoP.Name)
	}
	token, err := settings.ReadToken("admin_token_file", c.AdminTokenFile)
	if err != nil {
		return err
	}
	if err := findOrigins(c, log); err != nil {
		return err
	}
	wanted := fitDescriptors(c)
	if c.Limits.Memory > 0 {
		debug.SetMemoryLimit(int64(c.Limits.Memory))
	}
	var across *peers.Peers
	if len(c.PoP.Peers) > 0 {
		keys, err := settings.ReadPeersKeys(c.PoP.PeersSecretFile)
		if err != nil {
			return err
		}
		across = peers.New(&c.PoP, keys, happened)
	}
	shared, err := tier.Share(c, key, log, happened, across)
	if err != nil {
		return err
	}
	access, err := openAccessLog(c.AccessLog)
	if err != nil {
		return err
	}
	keeper, err := clients.Keep(c, key.Bytes(), log.Warn)
	if err != nil {
		return err
	}
	if keeper != nil {
		defer keeper.Store.Close()
	}
	notes := audit.New(c.AuditOneIn, nil, time.Now())
	if !shared.Alone() {
		notes = audit.New(c.AuditOneIn, key.Watch, time.Now())
	}
	server, err := edge.New(edge.Options{
		Access: access, Events: happened, Name: tier.EdgeName(c), Audit: notes,
		Config: c, Table: shared.Table, Bits: shared.Bits, Tier: shared.Tier, Secret: key.Bytes(), Warn: log.Warn, InFlight: shared.InFlight, Exact: shared.Exact,
	})
	if err != nil {
		return err
	}
	if keeper != nil {
		keeper.Edge, keeper.Publish = tier.EdgeName(c), server.SetPlans
		if err := keeper.Load(context.Background()); err != nil {
			return err
		}
	}
	auditing := &auditor.Auditor{Notes: notes, Rules: func() (names []string) {
		for _, r := range server.Config().Rules {
			if r.Mode != rules.Off {
				names = append(names, r.Name)
			}
		}
		return names
	}}
	if m := shared.Machine; m != nil {
		auditing.ID = m.Operators.Edges()[0].ID
		auditing.Tier = &auditor.Tier{Secret: key, Do: shared.Do, Nodes: m.Nodes.Names, Up: m.Nodes.Health, Edges: m.Operators.Edges}
	}
	warnings(c, log)
	var certificates *listen.Certificates
	if c.ListenTLS != "" {
		if certificates, err = listen.LoadCertificates(c.TLS); err != nil {
			return err
		}
	}
	callsTLS, callsCertificates, err := rateLimitTLS(c.RateLimitService)
	if err != nil {
		return err
	}
	for name, c := range map[string]*listen.Certificates{"tls": certificates, "rate_limit_service": callsCertificates} {
		for _, w := range expired(name, c, time.Now()) {
			log.Warn(w)
		}
	}
	program, err := os.Executable() // now: later its place may have been taken by a new one
	if err != nil {
		return err
	}
	ours, err := upgrade.GivenSockets()
	if err != nil {
		return err
	}
	defer ours.Close(true)
	var at listeners
	if err := at.open(ours, c); err != nil {
		return err
	}
	reload := &reloader{flags: f, server: server, machine: shared.Machine, log: log, events: happened, store: shared.Rules, name: tier.EdgeName(c), base: c, peers: shared.TurnPeers,
		about: presence.About{Address: reachable(at.front.Addr()), Version: version(), Started: time.Now()}}
	for _, certificates := range []*listen.Certificates{certificates, callsCertificates} {
		if certificates != nil {
			reload.files = append(reload.files, &files{happened: happened, kind: events.Certificate, refresh: certificates.Refresh,
				again: "certificates read again", wrong: "the certificates are wrong: the old ones stay in use"})
		}
	}
	if across != nil {
		reload.files = append(reload.files, &files{happened: happened, kind: events.Peer, refresh: func() (bool, error) {
			keys, err := settings.ReadPeersKeys(c.PoP.PeersSecretFile)
			return err == nil && across.SetKeys(keys), err
		}, again: "pop.peers_secret_file read again: its first line signs, and each line is believed", wrong: "the secret of peers is wrong: the old one stays in use"})
	}
	if shared.Machine != nil && c.PoP.SecretFile != "" {
		reload.files = append(reload.files, secretFile(c, key, happened))
	}
	reload.last = reload.content()
	if err := reload.catchUp(); err != nil {
		return err
	}
	older := upgrade.NewParent()
	if older != nil {
		auditing.Inherits(time.Now().Add(f.grace))
		take := func(into tier.Kept) func([]byte) error {
			return func(list []byte) error { // its mitigations are under rules as operators have changed them
				return cmp.Or(into.Restore(list, time.Now()), reload.catchUp())
			}
		}
		if shared.Machine != nil {
			older.Words = take(shared.Machine.Operators)
		}
		if shared.Local != nil {
			older.Rules = take(shared.Local)
		}
		if err := older.Take(server); err != nil {
			return fmt.Errorf("the older process did not tell its mitigations: %w", err)
		}
		if shared.Alone() {
			older.TakeCounters("counters", shared.Table, server, log)
		} else {
			older.NoCounters()
		}
		shared.Taught()
		shared.TurnPeers(c) // what other PoPs had blocked is among what the older process told
	}

	metrics := prometheus.NewRegistry()
	metrics.MustRegister(server.Collector(), auditing, certificateMetrics{"listen_tls": certificates, "rate_limit_service": callsCertificates}, buildInfo(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if shared.Metrics != nil {
		metrics.MustRegister(shared.Metrics)
	}
	if keeper != nil {
		metrics.MustRegister(clients.Metrics(keeper))
	}
	if across != nil {
		metrics.MustRegister(across)
	}
	var etcdStatus func() control.EtcdStatus
	if shared.Etcd != nil {
		metrics.MustRegister(tier.EtcdMetrics(shared.Etcd))
		etcdStatus = shared.Etcd.Status
	}
	connections := &admin.Connections{Most: spareDescriptors / 2}
	operators := &http.Server{
		Handler: admin.New(admin.Options{Edge: server, Metrics: metrics, State: func() control.State { return state(server, shared, reload, across, keeper, access) }, Waiting: reload.Waiting, Reload: reload.now, Overlay: reload.overlay.Load, Edit: reload.edit, Self: reload.self, Etcd: etcdStatus, Hosts: c.AdminHosts,
			Address: at.back.Addr().String(), Token: token, MetricsToken: c.MetricsToken, Plans: keeper, Vouch: connections.Vouch}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // a million mitigations are a long answer
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	connections.Guard(operators)

	if wanted > c.Limits.Connections {
		log.Warn("this process may open fewer files than limits.connections needs: raise ulimit -n",
			"connections", c.Limits.Connections, "wanted", wanted)
	}
	stop, unhook := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer unhook()
	background, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 5)
	var edges, others sync.WaitGroup
	reported := make(chan error, 1)
	go func() { reported <- shared.Sync(background) }()
	others.Go(func() { every.Period(background, time.Second, server.Sweep) })
	others.Go(func() { server.Watch(background) })
	others.Go(func() { auditing.Run(background) })
	if keeper != nil {
		others.Go(func() { keeper.Run(background) })
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		writeAccessLog(background, access, log)
	}()
	others.Go(func() { reload.watch(background) })
	accept := func(by *sync.WaitGroup, what string, serve func(net.Listener) error, at net.Listener) {
		by.Go(func() {
			if err := serve(at); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	accept(&others, "admin listener", operators.Serve, at.back)
	listening := new(http.Server) // for peers
	if across != nil {
		listening = across.Server(log)
		fromPeers := &admin.Connections{Most: spareDescriptors / 4}
		fromPeers.Guard(listening)
		across.Vouch = fromPeers.Vouch
		accept(&edges, "peers listener", listening.Serve, at.peers)
	}
	accept(&edges, "listener", server.Serve, at.front)
	if at.secure != nil {
		accept(&edges, "TLS listener", func(ln net.Listener) error { return server.ServeTLS(ln, certificates) }, at.secure)
	}
	var calls func(context.Context)
	if at.calls != nil {
		s := ratelimit.New(server, callsTLS)
		calls = s.Drain
		accept(&edges, "rate limit service", s.Serve, at.calls)
	}
	for _, f := range reload.files {
		others.Go(func() { every.Period(background, refreshEvery, f.look) })
	}
	if older != nil {
		go older.Serve(server) // ends with the older process, and so does this:
		go older.TakeLast(shared.Table, server, log)
	}
	upgrade.Notify(fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()))
	happened.Add(events.Event{Time: time.Now(), Kind: events.Process, Text: "started", New: version()})
	log.Info("serving", "version", version(), "pid", os.Getpid(), "listen", at.front.Addr().String(), "admin", at.back.Addr().String(),
		"rules", len(c.Rules), "pop", c.PoP.Name, "memcached", len(c.PoP.Memcached))

	next := &upgrade.Handover{Program: program, Args: os.Args[1:], Sockets: ours, Server: server, Log: log}
	if shared.Alone() {
		next.Table = shared.Table
	} else {
		next.Words = func() []byte {
			list, _ := shared.Machine.Operators.Words(time.Now())
			return list
		}
	}
	if shared.Local != nil {
		next.Rules = func() []byte {
			list, _ := shared.Local.Words(time.Now())
			return list
		}
	}
	defer next.Close()
	err = wait(stop, failed, usr2, next)
	context.AfterFunc(stop, unhook) // a second signal ends the process at once
	end := &upgrade.Shutdown{Events: happened, Server: server, Operators: operators, Back: at.back, Notice: f.notice, Grace: f.grace, Log: log, Calls: calls}
	listening.Close() // a peer tells another edge, or the process that takes over
	if next.Done() {
		end.HandOver(next, stop)
	} else {
		end.Stop(err == nil)
	}
	edges.Wait()
	auditing.Leave(background)
	cancel()
	if unsent := <-reported; unsent != nil {
		log.Error("the tier lacks what this edge has counted last", "error", unsent)
		if err == nil && !next.Done() { // with a process in its place, the edge goes on
			err = errLogged
		}
	}
	last, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if operators.Shutdown(last) != nil {
		operators.Close()
	}
	others.Wait()
	select {
	case <-written:
	case <-last.Done(): // whoever reads the log has stopped reading
		log.Warn("the access log could not be written to its end")
	}
	log.Info("stopped")
	return err
}

// errLogged is an error of which the log tells.
var errLogged = errors.New("the log tells")

// wait returns when the process is to end: it was told to, or something failed, which is the error, or a new process has
// taken over (SIGUSR2).
func wait(stop context.Context, failed <-chan error, usr2 <-chan os.Signal, next *upgrade.Handover) error {
	for {
		select {
		case <-stop.Done():
			return nil
		case err := <-failed:
			return err
		case <-usr2:
			err := next.Start(stop)
			if err == nil {
				return nil
			}
			next.Log.Error("no new process has taken over: this one goes on", "error", err)
		}
	}
}

// findOrigins looks every origin up, and tries to reach it. A name that does not resolve is a mistake; a server that does
// not answer may come later.
func findOrigins(c *config.Config, log *slog.Logger) error {
	for _, o := range c.Origins {
		for _, u := range o.Servers {
			network, address := "tcp", u.Host
			if u.Scheme == "unix" {
				network, address = "unix", u.Path
			} else {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
				cancel()
				if err != nil {
					return fmt.Errorf("origin %s: the name %s cannot be found: check its spelling or the name server", u, u.Hostname())
				}
				if u.Port() == "" {
					address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
				}
			}
			nc, err := net.DialTimeout(network, address, time.Second)
			if err != nil {
				log.Warn("origin "+u.String()+" cannot be reached: requests get 502 until it is there", "error", err)
				continue
			}
			nc.Close()
		}
	}
	return nil
}
