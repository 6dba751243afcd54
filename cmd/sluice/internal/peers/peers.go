// Package peers carries blocks, and counts of sources near their limit, between PoPs that list each
// other (pop/across says which): a sender for each peer, and a listener.
//
// A message is a POST to /v1/blocks of an edge of the peer, plain HTTP/1.1, with its signature in
// the header Sluice-Signature. It is signed and not encrypted: an eavesdropper reads addresses, and
// can change nothing. If there are no blocks to send, an empty message goes every checkEvery: so a
// broken path, or a secret that does not fit, is noticed before it matters.
package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/pop/across"
)

const (
	path      = "/v1/blocks"
	signature = "Sluice-Signature"
	ticket    = "Sluice-Ticket"

	gather   = 100 * time.Millisecond // that blocks wait for others to go with them
	patience = 2 * time.Second        // for an edge's answer
	again    = time.Second            // after no edge of a peer has taken a message

	checkEvery = 15 * time.Second

	readersAtOnce = 8 // messages that are read at a time: MaxBytes each
)

// Peers is what one edge has to do with other PoPs.
type Peers struct {
	// AddPeerBlock puts a block of another PoP into force, which was sent at a time on the clock
	// there.
	AddPeerBlock func(from string, b across.Block, sent, now time.Time) across.Outcome
	// AddCount adds what another PoP has counted, likewise.
	AddCount func(from string, c across.Count, sent, now time.Time) across.Outcome
	// Vouch is called with each request that has a key, before its body is read.
	Vouch func(*http.Request)

	name     string
	keys     atomic.Pointer[[]across.Key]
	inbox    *across.Inbox
	list     []*peer
	happened *events.Log
	off      atomic.Bool
	readers  readers
}

// readers are the messages without a ticket that are being read, the oldest first. If there is one
// more than readersAtOnce, that one is closed: a peer of an older version sends a message at once,
// so it is a stranger's, who could keep the peers out otherwise.
type readers struct {
	mu   sync.Mutex
	list []*http.ResponseController
}

// read reads the body of a message.
func (rs *readers) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	own := http.NewResponseController(w)
	rs.mu.Lock()
	if len(rs.list) == readersAtOnce {
		_ = rs.list[0].SetReadDeadline(time.Unix(1, 0)) // else its time is up soon
		rs.list = slices.Delete(rs.list, 0, 1)
	}
	rs.list = append(rs.list, own)
	rs.mu.Unlock()
	defer func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if i := slices.Index(rs.list, own); i >= 0 {
			rs.list = slices.Delete(rs.list, i, i+1)
		}
	}()
	return readAll(w, r)
}

func readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, across.MaxBytes))
}

// peer is another PoP.
type peer struct {
	name     string
	edges    []string
	outbox   *across.Outbox
	sent     atomic.Uint64    // blocks that an edge of it has taken
	failed   atomic.Uint64    // attempts
	away     atomic.Bool      // no edge of it has taken the latest
	received [2]atomic.Uint64 // messages, under the first of the keys here and under others
	outcomes [across.Outcomes]atomic.Uint64

	countsSent, bytesSent atomic.Uint64
	countOutcomes         [across.NoRoom + 1]atomic.Uint64
}

// New makes them from a configuration that names some. There is at least one key.
func New(c *config.PoP, keys []across.Key, happened *events.Log) *Peers {
	p := &Peers{name: c.Name, happened: happened, Vouch: func(*http.Request) {}}
	p.keys.Store(&keys)
	var names []string
	for _, other := range c.Peers {
		names = append(names, other.Name)
		p.list = append(p.list, &peer{name: other.Name, edges: other.Edges,
			outbox: across.NewOutbox()})
	}
	p.inbox = across.NewInbox(c.Name, names)
	p.off.Store(c.PeersMode == "off")
	return p
}

// SetKeys changes the keys for messages from now on, and reports whether they are others than
// before.
func (p *Peers) SetKeys(keys []across.Key) bool {
	return !slices.Equal(*p.keys.Swap(&keys), keys)
}

// Turn switches all of it on or off, while it runs.
func (p *Peers) Turn(on bool) { p.off.Store(!on) }

// Up calls f with each peer, and whether an edge of it has accepted the latest message; with no
// peer while peers are off.
func (p *Peers) Up(f func(name string, up bool)) {
	for _, other := range p.list {
		if !p.off.Load() {
			f(other.name, !other.away.Load())
		}
	}
}

// Announce queues a block for all peers. It does not wait.
func (p *Peers) Announce(b across.Block) {
	for _, to := range p.list {
		to.outbox.Add(b)
	}
}

// AnnounceCount queues what is counted of a source for all peers. It does not wait.
func (p *Peers) AnnounceCount(c across.Count) {
	if p.off.Load() {
		return
	}
	for _, to := range p.list {
		to.outbox.AddCount(c)
	}
}

// Send sends blocks and counts until ctx is done. What waits then is lost.
func (p *Peers) Send(ctx context.Context) {
	client := &http.Client{
		Timeout: patience,
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: patience}).DialContext,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	defer client.CloseIdleConnections()
	var senders sync.WaitGroup
	defer senders.Wait()
	for _, to := range p.list {
		senders.Go(func() { p.send(ctx, client, to) })
	}
}

// send sends to one peer. Each edge begins at another edge of it, and stays with the one that
// answers.
func (p *Peers) send(ctx context.Context, client *http.Client, to *peer) {
	at := rand.IntN(len(to.edges))
	var by sender
	check := time.NewTimer(rand.N(checkEvery)) // edges that start together do not check together
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			check.Reset(checkEvery)
		case <-to.outbox.Wake:
			if !pause(ctx, gather) {
				return
			}
		}
		for more := true; more; {
			batch, counts := to.outbox.Take(time.Now()), to.outbox.TakeCounts(time.Now())
			more = len(batch) == across.MaxBlocks || len(counts) == across.MaxCounts
			for tries := 1; !p.off.Load(); tries++ {
				id, made := by.stamp(time.Now())
				err := p.post(ctx, client, to, to.edges[at], &across.Message{From: p.name,
					To: to.name, Edge: id, At: made, Blocks: batch, Counts: counts})
				if err == nil {
					to.sent.Add(uint64(len(batch)))
					to.countsSent.Add(uint64(len(counts)))
					if to.away.Swap(false) {
						p.happened.Add(events.Event{Time: time.Now(), Kind: events.Peer,
							Text: "PoP " + to.name +
								" receives blocks again", Old: "away", New: "told"})
					}
					break
				}
				if ctx.Err() != nil {
					return
				}
				to.failed.Add(1)
				at = (at + 1) % len(to.edges)
				batch, counts = across.InForce(batch, time.Now()), across.Current(counts,
					time.Now())
				if tries%len(to.edges) != 0 {
					continue
				}
				if !to.away.Swap(true) {
					p.happened.Add(events.Event{Time: time.Now(), Kind: events.Peer,
						Level: slog.LevelWarn, Old: "told", New: "away",
						Text: "no edge of PoP " + to.name +
							" accepts blocks: sources that are blocked here are not blocked there: " + err.Error()})
				}
				if len(batch)+len(counts) == 0 { // the next check notices when it is back
					break
				}
				if !pause(ctx, again) {
					return
				}
			}
		}
	}
}

// sender is the ID by which a peer distinguishes the senders of messages.
type sender struct {
	id   string
	last time.Time // when its latest message was made
}

// stamp is the sender and time of a message that is made at now. After a clock has stepped back
// that is another one: what came under the old name may be from a time that is yet to come.
func (s *sender) stamp(now time.Time) (id string, made time.Time) {
	now = now.Round(0)
	if s.id == "" || !now.After(s.last) {
		s.id = fmt.Sprintf("%016x", rand.Uint64())
	}
	s.last = now
	return s.id, now
}

// pause waits, and reports whether there is any use in going on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (p *Peers) post(ctx context.Context, client *http.Client, to *peer, edge string,
	m *across.Message) error {
	key := (*p.keys.Load())[0]
	body, mac := key.Seal(m)
	to.bytesSent.Add(uint64(len(body)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(signature, mac)
	req.Header.Set(ticket, key.Ticket(m.To, m.At))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		var reply struct{ Error struct{ Message string } }
		_ = json.Unmarshal(text, &reply) // else there is the status
		return fmt.Errorf("%s answers %s %s", edge, resp.Status, reply.Error.Message)
	}
	return nil
}

// Server is for the listener of peers. What is not signed costs a connection, the reading of a
// body, and two hashes for each key.
func (p *Peers) Server(log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, p.take)
	return &http.Server{Handler: mux, ReadHeaderTimeout: patience, ReadTimeout: 2 * patience,
		WriteTimeout: 2 * patience, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 4 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// take puts a message's blocks into force, adds its counts, and answers what became of the blocks.
func (p *Peers) take(w http.ResponseWriter, r *http.Request) {
	if p.off.Load() {
		answer(w, http.StatusForbidden, refusal("pop.peers_mode is off here"))
		return
	}
	read := p.readers.read
	if across.IsTicket(*p.keys.Load(), p.name, r.Header.Get(ticket), time.Now()) {
		p.Vouch(r)
		read = readAll
	}
	body, err := read(w, r)
	if err != nil {
		answer(w, http.StatusRequestEntityTooLarge,
			refusal(fmt.Sprintf("a message has at most %d bytes, and comes at once",
				across.MaxBytes)))
		return
	}
	now := time.Now()
	m, over, err := p.inbox.Take(*p.keys.Load(), body, r.Header.Get(signature), now)
	if err != nil {
		answer(w, http.StatusForbidden, refusal(err.Error()))
		return
	}
	reply := map[string]uint64{across.OverRate.String(): uint64(over.Blocks)}
	from := p.peer(m.From)
	from.received[min(m.Key, 1)].Add(1)
	from.outcomes[across.OverRate].Add(uint64(over.Blocks))
	from.countOutcomes[across.OverRate].Add(uint64(over.Counts))
	for _, c := range m.Counts {
		o := across.Unreadable
		if across.Travels(c.Source) {
			o = p.AddCount(m.From, c, m.At, now)
		}
		from.countOutcomes[o].Add(1)
	}
	for _, b := range m.Blocks {
		o := across.Unreadable
		if across.Travels(b.Source) {
			o = p.AddPeerBlock(m.From, b, m.At, now)
		}
		from.outcomes[o].Add(1)
		reply[o.String()]++
	}
	answer(w, http.StatusOK, reply)
}

// peer finds a peer that there is.
func (p *Peers) peer(name string) *peer {
	for _, other := range p.list {
		if other.name == name {
			return other
		}
	}
	return nil
}

func refusal(message string) any {
	return map[string]any{"error": map[string]string{"message": message}}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone: no one to send to
}
