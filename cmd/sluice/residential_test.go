//go:build system

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"sluice/edge/modules/challenge"
	"sluice/loadgen/workload"
)

// A crowd is who is at a site at once: visitors, and a scraper from many homes.
type crowd struct {
	t      *testing.T
	w      *workload.Residential
	edges  []*process
	people []person

	mu      sync.Mutex
	every   chan struct{} // closed when every edge has challenged
	crossed int64         // when a request was over the limit first, by its edge's clock; 0: none was
	first   map[int]int64 // likewise by edge, of those that have challenged
	all     time.Time     // when each had, by this process's clock; zero: not each has
	late    int           // requests without a pass that were let in although they began after that
}

// person is a client as far as it has come. Its requests may overlap.
type person struct {
	mu                       sync.Mutex
	pass                     string
	asked, served, solved    int
	challenged, overPass     bool
	letInBefore, letInWithin int // without a pass, before the limit was crossed, and after
}

var (
	questionOf = regexp.MustCompile(`data-question="([^"]+)" data-bits=(\d+) `)
	verdictAt  = regexp.MustCompile(`;at=(\d+);`)
)

// send makes one request of a client's from its own address, and says what was answered.
func (c *crowd) send(client int32, edge int, method, path string, header ...string) (*http.Response, string, error) {
	// 10.b.c.d of the workload is 127.b+64.c.d here: what is below is this machine's own
	from := c.w.Clients[client].Addr.As4()
	from[0], from[1] = 127, from[1]+64
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from[:]}, Timeout: patience}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", addr)
	}}
	req, err := http.NewRequest(method, "http://"+c.edges[edge].front+path, nil)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Accept", "text/html")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// visit is a request for the heavy page, and what follows from a challenge: who runs the script of
// the page asks once more, with a pass.
func (c *crowd) visit(client int32, edge int) error {
	p := &c.people[client]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	for again := range 2 {
		began, with := time.Now(), p.pass
		var header []string
		if with != "" {
			header = []string{"Cookie", with}
		}
		resp, text, err := c.send(client, edge, "GET", "/search?q=weir", header...)
		if err != nil {
			return err
		}
		question := questionOf.FindStringSubmatch(text)
		switch {
		case resp.StatusCode == http.StatusOK:
			p.served++
			if with == "" {
				c.letIn(p, began)
			}
			return nil
		case resp.StatusCode != http.StatusTooManyRequests || with == "" && question == nil:
			return fmt.Errorf("%s without a challenge: %.200s", resp.Status, text)
		case with != "": // over its own limit
			p.overPass = true
			return nil
		}
		p.challenged = true
		c.challengedBy(edge, resp.Header.Get("Sluice-Verdict"))
		if !c.w.Clients[client].Script || again > 0 {
			return nil
		}
		bits, _ := strconv.Atoi(question[2])
		answer := question[1] + "." + string(challenge.Solve([]byte(question[1]), bits))
		resp, text, err = c.send(client, edge, "POST", challenge.Path, challenge.AnswerHeader, answer)
		if err != nil || resp.StatusCode != http.StatusNoContent {
			return fmt.Errorf("an answer: %v, %.200s, %w", resp, text, err)
		}
		p.pass, _, _ = strings.Cut(resp.Header.Get("Set-Cookie"), ";")
		p.solved++
	}
	return nil
}

// letIn notes who was let in without a pass.
func (c *crowd) letIn(p *person, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crossed == 0 {
		p.letInBefore++
	} else {
		p.letInWithin++
	}
	if !c.all.IsZero() && began.After(c.all) {
		c.late++
	}
}

// challengedBy notes which edges have challenged, and since when.
func (c *crowd) challengedBy(edge int, verdict string) {
	at, _ := strconv.ParseInt(verdictAt.FindStringSubmatch(verdict + ";at=0;")[1], 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crossed == 0 || at < c.crossed {
		c.crossed = at
	}
	if of, is := c.first[edge]; !is || at < of {
		c.first[edge] = at
	}
	if len(c.first) == len(c.edges) && c.all.IsZero() {
		c.all = time.Now()
		close(c.every)
	}
}

// run has everybody come when it is due, or later where the machine has no time.
func (c *crowd) run() {
	start, rng := time.Now(), rand.New(rand.NewPCG(1, 1))
	var coming sync.WaitGroup
	room := make(chan struct{}, 64)
	var failed atomic.Int64
	for _, v := range c.w.Requests {
		if !v.Heavy {
			continue
		}
		edge := rng.IntN(len(c.edges))
		due := time.NewTimer(time.Until(start.Add(v.At)))
		<-due.C
		room <- struct{}{}
		coming.Go(func() {
			defer func() { <-room }()
			if err := c.visit(v.Client, edge); err != nil && failed.Add(1) <= 3 {
				c.t.Errorf("client %d: %v", v.Client, err)
			}
		})
	}
	coming.Wait()
}

// What happens to a scraper from many homes, and to visitors beside it, over real edges, with real
// memcached and browsers. Every visitor who runs the script of a challenge gets what he came for;
// once every edge challenges, nobody without a pass is let in. The figures are printed (-v).
func TestScraperFromManyHomes(t *testing.T) {
	t.Parallel()
	origin, _ := products(t)
	o := workload.DefaultResidential()
	// Ten times as fast as the workload, and its limit's window as well; the scraper five times
	o.Duration, o.ScraperFrom, o.ScraperRate, o.Solvers = 30*time.Second, 6*time.Second, 100, 0.2
	o.Visitors, o.Gap = 10*o.Visitors, o.Gap/10
	w, err := workload.NewResidential(o)
	must(t, err)
	config := write(t, fmt.Sprintf(`
pop: {name: fra1, memcached: [%q], secret_file: %s}
origins: [{servers: [%q]}]
verdict_header: true
rules:
  - {name: each, match: {path: /search}, limit: 40}
  - name: page
    match: {path: /search}
    key: path
    limit: 120
    window: 6s
    mitigation_timeout: 1h
    action: challenge
    challenge: {pass_limit: 30}
`, startMemcached(t), write(t, strings.Repeat("secret of the pop ", 3)), origin))
	c := &crowd{t: t, w: w, people: make([]person, len(w.Clients)), first: make(map[int]int64),
		every: make(chan struct{})}
	for range 3 {
		c.edges = append(c.edges, start(t, "", "--config", config))
	}
	meet(c.edges...)

	tabs := []*tab{browse(t), browse(t), browse(t)} // each with cookies of its own
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.run()
	}()
	select {
	case <-c.every:
		for i, b := range tabs {
			b.open("http://" + c.edges[i].front + "/search?q=weir")
			c.edges[i].until("letting the browser in", b.seesProducts)
		}
	case <-over: // judge says what is wrong
	}
	<-over
	c.judge()
}

// judge says what became of everybody, and what must not have.
func (c *crowd) judge() {
	t := c.t
	var scraped, letIn, unsolved, heavy, refused, visitors, challenged, lockedOut, withScript int
	var before, within int
	for i := range c.people {
		p, is := &c.people[i], &c.w.Clients[i]
		before, within = before+p.letInBefore, within+p.letInWithin
		switch {
		case p.asked == 0:
		case is.Scraper:
			scraped, letIn = scraped+p.asked, letIn+p.served
			unsolved += p.letInBefore + p.letInWithin
		default:
			visitors++
			heavy, refused = heavy+p.asked, refused+p.asked-p.served
			if p.challenged {
				challenged++
			}
			if p.served == 0 {
				lockedOut++
			}
			if is.Script && p.served < p.asked && !p.overPass {
				withScript++
			}
		}
	}
	percent := func(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }
	t.Logf("scraper: %d requests of as many homes as it has; let in %s, without a pass %s", scraped,
		percent(letIn, scraped), percent(unsolved, scraped))
	t.Logf("visitors: %d heavy requests, refused %s, none of who runs scripts but %d; of %d visitors challenged %s, locked out %s",
		heavy, percent(refused, heavy), withScript, visitors, percent(challenged, visitors), percent(lockedOut, visitors))
	t.Logf("without a pass: let in %d until somebody was challenged, %d until every edge challenged, %d later",
		before, within-c.late, c.late)
	for i, p := range c.edges {
		t.Logf("edge %d: challenged first %v after the crossing; it learned of the block in %s s (%s times)", i,
			time.Duration(c.first[i]-c.crossed).Round(time.Millisecond),
			cmp.Or(p.metric("sluice_propagation_seconds_sum"), "0"),
			cmp.Or(p.metric("sluice_propagation_seconds_count"), "0"))
	}
	if c.all.IsZero() {
		t.Fatalf("challenged: edges %v of %d", c.first, len(c.edges))
	}
	if c.late > 0 {
		t.Errorf("%d requests without a pass were let in once every edge challenged", c.late)
	}
	if withScript > 0 {
		t.Errorf("%d visitors who run the script, and were within the limit of their pass, were refused", withScript)
	}
	if challenged == 0 || letIn == unsolved {
		t.Errorf("%d visitors were challenged, %d of the scraper's requests had a pass", challenged, letIn-unsolved)
	}
}

// How long a visitor of a real browser is on the way, from the challenge's arrival until the page
// that was wanted is there, at some difficulties. The figures are printed (-v): nothing is held,
// because they are of this machine.
func TestWayOfAVisitor(t *testing.T) {
	t.Parallel()
	runs := 2
	if testing.Verbose() {
		runs = 21
	}
	b := browse(t)
	_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		sessionStorage.began ||= performance.timeOrigin + performance.getEntriesByType("navigation")[0].responseStart
		addEventListener("DOMContentLoaded", () => sessionStorage.ended = performance.timeOrigin + performance.now())`})
	must(t, err)
	difficulties := []int{12, 13, 16}
	var at []*process
	for _, bits := range difficulties {
		edges, _ := startBusy(t, fmt.Sprintf("difficulty: %d", bits))
		busy(edges, "/search/a")
		at = append(at, edges[0])
	}
	ways := make([][]float64, len(at))
	for range runs { // in turn, so that what else the machine does is beside all of them
		for i, p := range at {
			b.open("http://" + p.front + "/")
			eval[bool](b, `(sessionStorage.clear(), true)`)
			_, err := chromedp.Call(b.ctx, network.ClearBrowserCookies, cdp.Empty{})
			must(t, err)
			b.open("http://" + p.front + "/search/a?q=1")
			p.until("letting the browser in", b.seesProducts)
			b.until(`sessionStorage.ended`)
			ways[i] = append(ways[i], eval[float64](b, `sessionStorage.ended - sessionStorage.began`))
		}
	}
	for i, list := range ways {
		slices.Sort(list)
		t.Logf("%d bits: half of %d visitors see the page within %.0f ms, nine in ten within %.0f ms",
			difficulties[i], runs, list[runs/2], list[runs*9/10])
	}
}
