package slowclients

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/loadgen/process"
)

// probeRate is how many requests a second a probe client makes of each server, half of them on connections of their own.
const probeRate = 400

// A probeClient is a client like any other, who shows what others do to the server. It sends when a request is due, whether or
// not the one before was slow, and measures from then.
type probeClient struct {
	answers []probed
	failed  int
	why     string // of the first failure
}

// probed is an answered request: when it was due, since the first was, and how long the answer took from then.
type probed struct{ due, took time.Duration }

// runProbes sends to each of some servers, by turns, until ctx ends: whatever holds up the machine holds up the requests to all of them.
func runProbes(ctx context.Context, to ...netip.AddrPort) []*probeClient {
	parts := make([]probeClient, 2*len(to)) // the first half of them keeps its connections
	period := 2 * time.Second / probeRate
	begin := time.Now()
	var every sync.WaitGroup
	for i := range parts {
		every.Go(func() {
			transport := &http.Transport{DisableKeepAlives: i >= len(to)}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
			due := begin.Add(period * time.Duration(i) / time.Duration(len(parts)))
			for process.Pause(ctx, time.Until(due)) == nil {
				if err := askOnce(client, to[i%len(to)]); err != nil {
					if parts[i].failed++; parts[i].why == "" {
						parts[i].why = err.Error()
					}
				} else {
					parts[i].answers = append(parts[i].answers, probed{due.Sub(begin), time.Since(due)})
				}
				due = due.Add(period)
			}
		})
	}
	every.Wait()
	all := make([]*probeClient, len(to))
	for i := range to {
		kept, fresh := &parts[i], &parts[len(to)+i]
		all[i] = &probeClient{answers: append(kept.answers, fresh.answers...), failed: kept.failed + fresh.failed, why: kept.why + fresh.why}
	}
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
func quantile(share float64, answers []probed) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(answers), func(a, b probed) int { return cmp.Compare(a.took, b.took) })
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)].took
}
