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

	"sluice/edge/modules/geo/geotest"
)

// The page says in one line how it is, whether nobody is blocked or many are; with -screenshots ten times as many are.
func TestDashboardSays(t *testing.T) {
	t.Parallel()
	geo := t.TempDir()
	geotest.Countries(t, geo+"/country.mmdb", map[string]string{"10.1.0.0/20": "DE"})
	geotest.Systems(t, geo+"/asn.mmdb", map[string]uint32{"10.1.0.0/20": 64500})
	p := start(t, origin(t), "--config", write(t, fmt.Sprintf("source: {trust: [127.0.0.0/8]}\ngeo: {country: %[1]s/country.mmdb, asn: %[1]s/asn.mmdb}\n"+
		"rules: [{name: all, limit: 1, window: 1m, mitigation_timeout: 1h}, {name: trial, limit: 1, mode: shadow}]\n", geo)))
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
		if blocked == 10 {
			b.until(row("blocked", "10.1.0.7", "DE, AS 64500"))
		}
		b.shoot(fmt.Sprintf("blocked-%d", blocked))
	}
	p.stop(os.Interrupt)
	b.until(`/^The edge does not answer: what is below is old\./.test(document.querySelector("#says").textContent)`)
	b.shoot("away")
}

// shoot writes what the page looks like into the folder SLUICE_SHOTS, with -screenshots alone.
func (b *tab) shoot(name string) {
	dir := os.Getenv("SLUICE_SHOTS")
	if !*screenshots || dir == "" {
		return
	}
	b.until(`points.length > 3`)
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.fatal("a picture", err)
	}
	if _, err := png.Decode(bytes.NewReader(shot)); err != nil {
		b.t.Error(err)
	}
	must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644))
}
