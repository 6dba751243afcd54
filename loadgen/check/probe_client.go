package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// probeRate is how many requests a second a probe client makes, half of them on connections of their own.
const probeRate = 400

// A probeClient is a client like any other, who shows what others do to the server. It sends when a request is due, whether or
// not the one before was slow, and measures from then.
type probeClient struct {
	took   []time.Duration
	failed int
	why    string // of the first failure
}

// runProbe sends until ctx ends.
func runProbe(ctx context.Context, to netip.AddrPort) *probeClient {
	parts := [2]probeClient{}
	var both sync.WaitGroup
	for i := range parts {
		both.Go(func() {
			transport := &http.Transport{DisableKeepAlives: i == 1}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
			due := time.Now().Add(time.Duration(i) * time.Second / probeRate)
			for pause(ctx, time.Until(due)) == nil {
				if err := askOnce(client, to); err != nil {
					if parts[i].failed++; parts[i].why == "" {
						parts[i].why = err.Error()
					}
				} else {
					parts[i].took = append(parts[i].took, time.Since(due))
				}
				due = due.Add(2 * time.Second / probeRate)
			}
		})
	}
	both.Wait()
	all := &probeClient{took: append(parts[0].took, parts[1].took...), failed: parts[0].failed + parts[1].failed, why: parts[0].why + parts[1].why}
	slices.Sort(all.took)
	return all
}

func askOnce(client *http.Client, to netip.AddrPort) error {
	answer, err := client.Get("http://" + to.String() + "/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", answer.StatusCode)
	}
	return nil
}

// quantile is the time within which so large a share of the requests was answered.
func (r *probeClient) quantile(share float64) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	return r.took[min(int(share*float64(len(r.took))), len(r.took)-1)]
}
