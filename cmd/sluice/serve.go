package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/cmd/sluice/internal/upgrade"
	"sluice/edge/admin"
	"sluice/edge/beat"
	"sluice/edge/config"
	"sluice/edge/events"
)

// serve runs an edge until it is stopped. Everything that can fail because of bad input comes
// before anything is started; what is started is stopped in the opposite order:
//
//	start: tier, admin, edge            (the edge last: nobody is served by half of it)
//	stop:  edge and services that programs call drained, tier's last report, admin   (it answers /readyz and /metrics to the end)
func serve(c *config.Config, f *flags, stderr io.Writer) error {
	direct := newLog(stderr, f.logLevel, f.logFormat)
	lines := newLogWriter(stderr, func(lost uint64) {
		direct.Warn("lines of this log were lost: it is read too slowly", "lost", lost)
	})
	defer lines.close()
	log := newLog(lines, f.logLevel, f.logFormat)
	defer takeLibraryLog(log)()
	background, end := context.WithCancel(context.Background())
	defer end()
	d := &daemon{background: background, end: end, config: c, flags: f, log: log,
		happened: newEvents(log), replace: make(chan os.Signal, 1)}
	signal.Ignore(syscall.SIGPIPE) // the reader of the logs may go; that is no reason to end
	// A signal that comes before there is a handler must not end the process.
	early := make(chan os.Signal, 1)
	signal.Notify(early, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(early)
	signal.Notify(d.replace, syscall.SIGUSR2)
	defer signal.Stop(d.replace)
	defer d.close()
	for _, part := range []func() error{d.readSecrets, d.fit, d.joinTier, d.makeEdge,
		d.loadCertificates, d.openListeners, d.certify, d.makeReloader, d.takeOver,
		d.makeMetrics} {
		if err := part(); err != nil {
			return err
		}
	}
	d.serveOperators()
	return d.run()
}

// run starts what was made, waits until the process is to end, and stops it.
func (d *daemon) run() error {
	stop, unhook := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer unhook()
	background := d.background
	d.failed = make(chan error, 2+len(d.services)+d.at.sockets()) // one for each listener
	reported := make(chan error, 1)
	go func() { reported <- d.shared.Sync(background) }()
	d.others.Go(func() { beat.Every(background, time.Second, d.server.Sweep) })
	d.others.Go(func() { d.server.Watch(background) })
	d.others.Go(func() { d.viewing.Run(background) })
	if d.keeper != nil {
		d.others.Go(func() { d.keeper.Run(background) })
	}
	for _, run := range d.beside {
		d.others.Go(func() { run(background) })
	}
	d.others.Go(func() { d.reload.watch(background) })
	d.others.Go(func() { d.reload.follow(background) })
	for _, f := range d.reload.files {
		d.others.Go(func() { beat.Every(background, refreshEvery, f.look) })
	}
	listening, calls := d.accept()
	if d.older != nil {
		go d.older.Serve(d.server) // ends with the older process, and so does this:
		go d.older.TakeLast(d.shared.Table, d.server, d.log)
	}
	d.logStarted()

	next := d.handover()
	defer next.Close()
	err := wait(stop, d.failed, d.replace, next)
	context.AfterFunc(stop, unhook) // a second signal ends the process at once
	end := &upgrade.Shutdown{Events: d.happened, Server: d.server, Operators: d.operators,
		Back: d.at.back, Notice: d.flags.notice, Grace: d.flags.grace, Log: d.log, Calls: calls}
	listening.Close() // a peer sends to another edge, or to the process that takes over
	if next.Done() {
		end.HandOver(next, stop)
	} else {
		end.Stop(err == nil)
	}
	d.edges.Wait()
	d.end()
	if unsent := <-reported; unsent != nil {
		d.log.Error("the tier lacks what this edge has counted last", "error", unsent)
		if err == nil && !next.Done() { // with a process that replaces it, the edge goes on
			err = errLogged
		}
	}
	last, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if d.operators.Shutdown(last) != nil {
		d.operators.Close()
	}
	d.others.Wait()
	d.log.Info("stopped")
	return err
}

// accept begins to serve: operators first, requests after them. It returns what listens to peers,
// and how the services that programs call are drained.
func (d *daemon) accept() (listening *http.Server, calls func(context.Context)) {
	on := func(by *sync.WaitGroup, what string, serve func(net.Listener) error, at net.Listener) {
		by.Go(func() {
			if err := serve(at); err != nil && !errors.Is(err, http.ErrServerClosed) &&
				!errors.Is(err, net.ErrClosed) {
				d.failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	on(&d.others, "admin listener", d.operators.Serve, d.at.back)
	listening = new(http.Server)
	if d.across != nil {
		listening = d.across.Server(d.log)
		fromPeers := &admin.Connections{Most: spareDescriptors / 4}
		fromPeers.Guard(listening)
		d.across.Vouch = fromPeers.Vouch
		on(&d.edges, "peers listener", listening.Serve, d.at.peers)
	}
	for _, e := range d.at.front {
		for _, ln := range e.sockets {
			on(&d.edges, "listener "+e.Address,
				func(ln net.Listener) error { return d.server.ServeEntry(ln, e.Entry, nil) }, ln)
		}
	}
	for i, e := range d.at.secure {
		shows := d.certificates[ownCertificates(d.config.ListenTLS[i])]
		for _, ln := range e.sockets {
			on(&d.edges, "TLS listener "+e.Address,
				func(ln net.Listener) error { return d.server.ServeEntry(ln, e.Entry, shows) }, ln)
		}
	}
	for _, s := range d.services {
		on(&d.edges, s.Name, s.answers.Serve, s.at)
	}
	return listening, func(ctx context.Context) {
		var all sync.WaitGroup
		for _, s := range d.services {
			all.Go(func() { s.answers.Drain(ctx) })
		}
		all.Wait()
	}
}

// logStarted logs that the process serves.
func (d *daemon) logStarted() {
	c := d.config
	if d.wanted > c.Limits.Connections {
		d.log.Warn("this process may open fewer files than limits.connections needs: raise ulimit -n",
			"connections", c.Limits.Connections, "wanted", d.wanted)
	}
	upgrade.Notify(fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()))
	d.happened.Add(events.Event{Time: time.Now(), Kind: events.Process, Text: "started",
		New: version()})
	said := []any{"version", version(), "pid", os.Getpid(), "listen",
		strings.Join(addresses(d.at.front), " "), "listen_tls", strings.Join(addresses(d.at.secure),
			" "), "admin", d.at.back.Addr().String(),
		"rules", len(c.Rules), "pop", c.PoP.Name, "memcached", len(c.PoP.Memcached)}
	for _, s := range d.services {
		said = append(said, s.Name, s.at.Addr().String())
	}
	d.log.Info("serving", said...)
	for _, w := range originsHere(c) {
		d.log.Warn(w)
	}
}

// errLogged stands for an error that is in the log.
var errLogged = errors.New("see the log")

// wait returns when the process must end: by a signal, or because something failed, which is the
// error, or a new process has taken over (SIGUSR2).
func wait(stop context.Context, failed <-chan error, usr2 <-chan os.Signal,
	next *upgrade.Handover) error {
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

// findOrigins looks every origin up, and tries to reach it. A name that does not resolve is a
// mistake; a server that does not answer may come later.
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
					address = net.JoinHostPort(u.Hostname(), schemePorts[u.Scheme])
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
