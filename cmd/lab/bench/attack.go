package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/loadgen/origin"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// HTTP2Attacks measures what attacks on HTTP/2 cost a server and another client of it: each attack
// on each server before the same origin, a new process each time, round after round. The server has
// one processor to itself; attacker, client and origin share another.
type HTTP2Attacks struct {
	Sluice   string   // the edge's executable
	Before   string   // another one, which is attacked as the server "before"; "": none is
	Self     string   // the executable of which "origin" is a subcommand
	Servers  []string // names of AttackServers
	Attacks  []string // of AttackNames
	Rounds   int
	For      time.Duration // of an attack, and a third of it before that without one
	Idle     int           // connections whose memory is measured
	Patience time.Duration // how long the calm client waits for an answer
	Say      func(string)  // progress

	*bed
	h2Origin string // the address of an origin that speaks HTTP/2, too
}

// AttackServers are the servers that can be attacked.
var AttackServers = []string{"sluice", "nginx", "haproxy"}

// attackLimit is how many requests of a source each server admits in attackWindow.
const attackLimit, attackWindow = 100, 10 * time.Second

// AttackFigures is what one server showed under one attack: medians over the rounds.
type AttackFigures struct {
	Attack string  `json:"attack"`
	Server string  `json:"server"`
	Asked  float64 `json:"asked_per_second"` // units of the attack
	Sent   float64 `json:"sent_per_second"`
	Opened float64 `json:"connections"`
	Ended  float64 `json:"connections_ended_by_the_server"`
	// Seconds a second that the attack cost: those without it are taken off
	CPU     float64 `json:"cpu"`
	Memory  float64 `json:"memory"` // bytes at most, above what there were before it
	P99     float64 `json:"p99"`    // seconds, of the calm client beside it
	Calm    float64 `json:"p99_calm"`
	Ratio   float64 `json:"p99_by_calm"`
	Peak    float64 `json:"memory_peak"`            // bytes at most, in all
	Limit   float64 `json:"memory_limit,omitempty"` // of the edge; 0: none
	Failed  float64 `json:"failed"`                 // requests of the calm client
	Reached float64 `json:"reached_origin"`         // requests of the attacker
	// What the edge says, and no other server does.
	Charged float64        `json:"charged,omitempty"` // requests under the rule
	Blocked bool           `json:"blocked,omitempty"` // the source, or one of them
	Abuse   map[string]int `json:"abuse,omitempty"`   // connections that it ended, by the reason

	measured []AttackFigures
	why      string
}

// Run measures every attack on every server, then what connections that do nothing take of each.
func (h HTTP2Attacks) Run(ctx context.Context) (figures []AttackFigures,
	memory []ConnectionMemory, err error) {
	if err := h.prepare(ctx); err != nil {
		return nil, nil, err
	}
	defer h.stop()
	for _, a := range attacks() {
		if !slices.Contains(h.Attacks, a.name) {
			continue
		}
		rows := make([]AttackFigures, len(h.Servers))
		err := interleave(h.Rounds, len(h.Servers), func(round, i int) error {
			f, err := h.measure(ctx, h.Servers[i], a)
			if err != nil {
				return err
			}
			rows[i].measured = append(rows[i].measured, f)
			h.Say(fmt.Sprintf("round %d of %d: %s, %s: %.0f of %.0f a second, %.1f ms of processor time and %.1f MB more, p99 %.2f times that without it%s",
				round+1, h.Rounds, a.name, f.Server, f.Sent, f.Asked, f.CPU*1e3, f.Memory/1e6,
				f.Ratio, f.why))
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		for i := range rows {
			figures = append(figures, settleAttack(rows[i].measured))
		}
	}
	memory, err = h.memory(ctx)
	return figures, memory, err
}

// prepare starts what all have in common.
func (h *HTTP2Attacks) prepare(ctx context.Context) (err error) {
	if h.Before != "" {
		h.Servers = append([]string{"before"}, h.Servers...)
	}
	if h.bed, err = makeBed(ctx, "http2-attacks", h.Self); err != nil {
		return err
	}
	end, err := h.serveH2()
	if err != nil {
		h.stop()
		return err
	}
	h.stops = append(h.stops, end)
	return nil
}

// serveH2 is an origin that speaks HTTP/2 as well: it answers with a page, or with as many bytes as
// the path says.
func (h *HTTP2Attacks) serveH2() (end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("loadgen: http2-attacks: %w", err)
	}
	page := make([]byte, 1000)
	s := &http.Server{Protocols: new(http.Protocols), MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size := len(page)
			if digits, asks := strings.CutPrefix(r.URL.Path, origin.BytesPath); asks {
				size, _ = strconv.Atoi(digits)
			}
			for w.Header().Set("Content-Length", strconv.Itoa(size)); size > 0; size -= len(page) {
				if _, err := w.Write(page[:min(size, len(page))]); err != nil {
					return
				}
			}
		})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	h.h2Origin = ln.Addr().String()
	go func() { _ = s.Serve(ln) }()
	return func() { _ = s.Close() }, nil
}

// start starts a server for an attack, which is ready when it answers.
func (h *HTTP2Attacks) start(ctx context.Context, name string, a attack) (*attackedServer, error) {
	free, err := process.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	s := &attackedServer{at: free[0], admin: free[1]}
	if s.proc, err = h.server(name, s.at, s.admin, a); err != nil {
		return nil, err
	}
	if s.stop, err = launchAlone(ctx, s.proc, s.at.String()); err != nil {
		return nil, err
	}
	return s, nil
}

// An attackedServer is one that runs.
type attackedServer struct {
	proc      *process.Process
	at, admin netip.AddrPort
	stop      func()
}

// measure attacks one server once.
func (h *HTTP2Attacks) measure(ctx context.Context, name string,
	a attack) (f AttackFigures, err error) {
	s, err := h.start(ctx, name, a)
	if err != nil {
		return f, err
	}
	defer s.stop()
	calm := newCalmClient(s.at, h.Patience)
	if a.limit > 0 { // whether others can connect is what it is about
		calm.fresh = newH2Client(h.Patience, true)
	}
	defer calm.client.CloseIdleConnections()
	calm.ask(ctx, h.For/10) // which warms everything up
	r := &attackRun{attack: a, to: s.at}
	var without, with calmFigures
	costs, err := s.costs(func() { without = calm.ask(ctx, h.For/3) })
	if err != nil {
		return f, err
	}
	before, err := h.seen(ctx, name, s)
	if err != nil {
		return f, err
	}
	peak := watchMemory(s.proc.PID())
	cost, err := s.costs(func() {
		done := make(chan struct{})
		go func() { defer close(done); r.run(ctx, h.For) }()
		with = calm.ask(ctx, h.For)
		<-done
	})
	memory, most := peak()
	if err := errors.Join(err, ctx.Err(), s.proc.Crashed()); err != nil {
		return f, fmt.Errorf("loadgen: http2-attacks: %s, %s: %w: %s", name, a.name, err,
			s.proc.Output())
	}
	if without.Asked == without.Failed || r.opened.Load() == 0 {
		return f,
			fmt.Errorf("loadgen: http2-attacks: %s, %s: of %d requests without an attack %d failed, %s; and who attacks could connect %d times (%v): %s",
				name, a.name, without.Asked, without.Failed, without.commonest(), r.opened.Load(),
				r.failed.Load(), s.proc.Output())
	}
	after, err := h.seen(ctx, name, s)
	if err != nil {
		return f, err
	}
	f = AttackFigures{Attack: a.name, Server: name, Asked: float64(a.rate),
		Sent: float64(r.sent.Load()) / h.For.Seconds(), Opened: float64(r.opened.Load()),
		Ended: float64(r.ended.Load()), CPU: cost - costs, Memory: memory, P99: with.P99.Seconds(),
		Calm: without.P99.Seconds(),
		Peak: most, Limit: float64(a.limit), Failed: float64(with.Failed),
		Reached: float64(after.reached - before.reached),
		Charged: after.charged - before.charged, Blocked: after.blocked}
	if with.P99 == 0 { // nothing was answered in time
		f.P99 = calm.client.Timeout.Seconds()
	}
	f.Ratio = f.P99 / f.Calm
	if a.each > 0 {
		f.Asked = min(f.Asked, float64(a.each*a.conns)/h.For.Seconds())
	}
	if with.Failed > 0 {
		f.why = fmt.Sprintf("; %d failed, %s", with.Failed, with.commonest())
	}
	for kind, n := range after.abuse {
		if n -= before.abuse[kind]; n > 0 {
			if f.Abuse == nil {
				f.Abuse = make(map[string]int)
			}
			f.Abuse[kind] = int(n)
		}
	}
	return f, nil
}

// costs is how many seconds of processor time a server takes a second, meanwhile.
func (s *attackedServer) costs(while func()) (float64, error) {
	begin := time.Now()
	before, err := spent(s.proc)
	while()
	after, wrong := spent(s.proc)
	return (after[0] - before[0]).Seconds() / time.Since(begin).Seconds(), errors.Join(err, wrong)
}

// watchMemory watches how much memory a process has, until it is asked by how much it grew at most,
// and how much it had, in bytes.
func watchMemory(pid int) (peak func() (grew, most float64)) {
	before := process.Memory(pid)
	ctx, stop := context.WithCancel(context.Background())
	most := make(chan int64)
	go func() {
		top := before
		for process.Pause(ctx, 5*time.Millisecond) == nil {
			top = max(top, process.Memory(pid))
		}
		most <- top
	}()
	return func() (float64, float64) {
		stop()
		top := <-most
		return float64(top - before), float64(top)
	}
}

// seen is what origin and edge know of the attacker.
type seen struct {
	reached int
	charged float64
	blocked bool
	abuse   map[string]float64
}

func (h *HTTP2Attacks) seen(ctx context.Context, name string,
	s *attackedServer) (o seen, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var stats origin.Stats
	if err := scrape.Get(ctx, client, h.originAt, origin.StatsPath,
		scrape.JSON(&stats)); err != nil {
		return o, err
	}
	for source, n := range stats.BySource {
		if source != calmSource.String() {
			o.reached += n
		}
	}
	if name != "sluice" && name != "before" {
		return o, nil
	}
	m, err := scrape.MetricsOf(ctx, client, s.admin)
	if err != nil {
		return o, err
	}
	o.charged, o.abuse = m.Sum("sluice_requests_total", "rule",
		"sources"), m.By("sluice_http2_abuse_total", "kind")
	var list []struct{} // how many there are is enough
	err = scrape.Get(ctx, client, s.admin, "/v1/mitigations", scrape.JSON(&list))
	o.blocked = len(list) > 0
	return o, err
}
