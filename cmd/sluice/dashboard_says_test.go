//go:build system

package main

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// The page says in one line how it is, whether nobody is blocked or many are; -screenshots writes what it looks like into the folder of
// SLUICE_SHOTS, with ten times as many.
func TestDashboardSays(t *testing.T) {
	t.Parallel()
	p := start(t, origin(t), "--config", write(t, "source: {trust: [127.0.0.0/8]}\nrules: [{name: all, limit: 1, window: 1m, mitigation_timeout: 1h}, {name: trial, limit: 1, mode: shadow}]\n"))
	b := browse(t)
	b.open("http://" + p.back + "/")
	many := 1000
	if *screenshots {
		many = 10_000
	}
	sent := 0
	for _, blocked := range []int{0, 10, many} {
		var sending sync.WaitGroup
		for w := range 4 {
			sending.Go(func() {
				for n := sent + w; n < blocked; n += 4 {
					for range 2 {
						ask("GET", "http://"+p.front+"/", fmt.Sprintf("10.1.%d.%d", n/256, n%256))
					}
				}
			})
		}
		sending.Wait()
		sent = blocked
		want := `/^Quiet: nobody is blocked, nothing is refused\./`
		if blocked > 0 {
			want = fmt.Sprintf(`/^%s sources are blocked under rule all/`, map[int]string{10: "10", 1000: "1,000", 10_000: "10,000"}[blocked])
		}
		b.until(want + `.test(document.querySelector("#says").textContent) && document.querySelector("#state").textContent === "live"`)
		if dir := os.Getenv("SLUICE_SHOTS"); *screenshots && dir != "" {
			b.until(`points.length > 3`)
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				b.fatal("a picture", err)
			}
			if _, err := png.Decode(bytes.NewReader(shot)); err != nil {
				t.Error(err)
			}
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("blocked-%d.png", blocked)), shot, 0o644))
		}
	}
	p.stop(os.Interrupt)
	b.until(`/^The edge does not answer: what is below is old\./.test(document.querySelector("#says").textContent)`)
}
