package check

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
)

// maxGrowth is how much larger an edge's memory may be while it passes bodies on.
const maxGrowth = 10 << 20

// A BodyOrigin is an origin that answers a request with random bytes, and knows the digests of both bodies. The request's path
// says how: /SEED/BYTES/fixed or /SEED/BYTES/chunked.
type BodyOrigin struct {
	Addr   netip.AddrPort
	server *http.Server

	mu    sync.Mutex
	heard map[string]string // the digest of a request's body, by its path
}

// StartBodyOrigin serves on a free port of 127.0.0.1 until Stop.
func StartBodyOrigin() (*BodyOrigin, error) {
	o := &BodyOrigin{heard: make(map[string]string)}
	var err error
	o.server, o.Addr, err = Serve(o.answer)
	return o, err
}

// Stop ends the origin.
func (o *BodyOrigin) Stop() { o.server.Close() }

func (o *BodyOrigin) answer(w http.ResponseWriter, r *http.Request) {
	digest := sha256.New()
	if _, err := io.Copy(digest, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	o.mu.Lock()
	o.heard[r.URL.Path] = fmt.Sprintf("%x", digest.Sum(nil))
	o.mu.Unlock()
	part := strings.Split(r.URL.Path, "/")
	if len(part) != 4 {
		return
	}
	seed, _ := strconv.ParseUint(part[1], 10, 64)
	size, _ := strconv.ParseInt(part[2], 10, 64)
	if part[3] == "fixed" {
		w.Header().Set("Content-Length", part[2])
	} else {
		w.(http.Flusher).Flush() // chunked, even where it is short
	}
	io.Copy(w, randomBytes(^seed, size))
}

// randomBytes are the bytes of a body, the same for a seed each time.
func randomBytes(seed uint64, size int64) io.Reader {
	key := [32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32), byte(seed >> 40), byte(seed >> 48), byte(seed >> 56)}
	return io.LimitReader(rand.NewChaCha8(key), size)
}

func digestOf(r io.Reader) string {
	digest := sha256.New()
	io.Copy(digest, r)
	return fmt.Sprintf("%x", digest.Sum(nil))
}

// Bodies checks that bodies of requests and of answers arrive byte for byte, each as a fixed length and chunked, from nothing
// up to the largest size, four at a time, and that the edge does not hold them in memory. The site must stand before o.
func Bodies(ctx context.Context, s *lab.Site, o *BodyOrigin, exchanges int, largest int64, seed uint64) (*Result, error) {
	c := &Result{Name: "bodies", Kept: true}
	edge := s.EdgeProcesses[0]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(seed, 0))
	size := func(i int) int64 {
		switch i {
		case 0:
			return 0
		case 1:
			return largest
		}
		return int64(math.Exp(random.Float64()*math.Log(float64(largest)))) - 1 // as many small as large ones
	}
	type exchange struct {
		up, down       int64
		upChunk, downC bool
	}
	todo := make([]exchange, 0, exchanges)
	for i := range exchanges {
		todo = append(todo, exchange{size(i / 4), size((exchanges - 1 - i) / 4), i&1 == 0, i&2 == 0})
	}
	if err := o.exchange(ctx, client, edge.Addr, 1<<40, 1000, 1000, false, false); err != nil {
		return nil, fmt.Errorf("loadgen: check bodies: %w", err)
	}

	before := process.Memory(edge.PID())
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	peak := make(chan int64, 1)
	go func() { peak <- PeakMemory(watching, edge.PID()) }()
	start := time.Now()
	s.Log("%d requests with bodies of up to %d bytes, and such answers", exchanges, largest)
	var all sync.WaitGroup
	var mu sync.Mutex
	wrong, moved, next := 0, int64(0), 0
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(todo) {
					return
				}
				e := todo[i]
				err := o.exchange(ctx, client, edge.Addr, seed<<32+uint64(i), e.up, e.down, e.upChunk, e.downC)
				mu.Lock()
				moved += e.up + e.down
				if err != nil {
					wrong++
					c.See("BROKEN: %d bytes up (chunked %t), %d down (chunked %t): %v", e.up, e.upChunk, e.down, e.downC, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	cancel()
	grown := <-peak - before
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.See("%d requests with a body and answers with one, of 0 to %d bytes, %d MB in all in %.1f s: %d with a wrong digest, or none", exchanges,
		largest, moved>>20, took.Seconds(), wrong)
	c.See("edge's memory: %.1f MB before, at most %.1f MB more during it; want less than %d", float64(before)/(1<<20), float64(grown)/(1<<20), maxGrowth>>20)
	c.Kept = wrong == 0 && grown < maxGrowth
	return c, s.Crashed()
}

// exchange makes a request and compares the digests of both bodies.
func (o *BodyOrigin) exchange(ctx context.Context, client *http.Client, edge netip.AddrPort, seed uint64, up, down int64, upChunked, downChunked bool) error {
	framing := "fixed"
	if downChunked {
		framing = "chunked"
	}
	path := fmt.Sprintf("/%d/%d/%s", seed, down, framing)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge.String()+path, randomBytes(seed, up))
	if err != nil {
		return err
	}
	if request.ContentLength = up; upChunked {
		request.ContentLength = -1
	} else if up == 0 {
		request.Body = http.NoBody
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	digest := sha256.New()
	n, err := io.Copy(digest, answer.Body)
	switch {
	case err != nil:
		return fmt.Errorf("the answer broke off after %d bytes: %w", n, err)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("answered %d", answer.StatusCode)
	case (answer.ContentLength < 0) != downChunked:
		return fmt.Errorf("the answer's length is %d", answer.ContentLength)
	case fmt.Sprintf("%x", digest.Sum(nil)) != digestOf(randomBytes(^seed, down)):
		return errors.New("the answer is not what the origin sent")
	}
	o.mu.Lock()
	heard := o.heard[path]
	delete(o.heard, path)
	o.mu.Unlock()
	if heard != digestOf(randomBytes(seed, up)) {
		return errors.New("what the origin got is not what was sent")
	}
	return nil
}
