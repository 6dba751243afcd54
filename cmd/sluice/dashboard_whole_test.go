//go:build system

package main

import (
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// An operator sees one edge, or all: by a switch, that the address remembers. An edge that is killed is missing, plainly, and the others are shown.
func TestDashboardOfPoP(t *testing.T) {
	t.Parallel()
	files, node, site := writePoP(t, 2), startMemcached(t), origin(t)
	var edges []*process
	for _, file := range files {
		edges = append(edges, start(t, site, "--config", file, "--memcached", node))
	}
	meet(edges...)
	for i, p := range edges {
		for range 3 * (i + 1) {
			p.get()
		}
	}
	edges[1].say("PUT", "*/192.0.2.9", `{"for":"10m","reason":"scraper"}`)
	b := browse(t)
	// A page of a PoP shows all of it, unless its address says otherwise.
	b.open("http://" + edges[0].back + "/")
	b.until(`document.querySelector("#scope [value=pop]").checked && !document.querySelector("#scope").hidden && ` + row("whole", "edge1", "shown"))
	b.open("http://" + edges[0].back + "/#edge")

	// This edge alone: its own counts.
	b.until(row("requests", "127.0.0.1", "3") + ` && ` + row("edges", "edge1"))
	if !eval[bool](b, `document.querySelector("#whole-section").hidden && !document.querySelector("#scope").hidden`) {
		t.Error("this edge's view tells of edges, or has no switch")
	}

	// All edges: which they are, sums, lists that are merged.
	b.focus("#scope [value=edge]")
	b.keys(kb.ArrowRight)
	b.until(`location.hash === "#pop" && document.querySelector("#scope [value=pop]").checked`)
	b.until(row("whole", "edge0 (this one)", "shown", "0.0 s") + ` && ` + row("whole", "edge1", "shown"))
	b.until(`document.querySelector("#whole-count").textContent === "2 of 2"`)
	b.until(row("requests", "127.0.0.1", "edge1 6, edge0 3") + `?.cells[2].textContent === "9"`)
	b.until(row("blocked", "192.0.2.9", "all rules", "scraper"))
	b.until(row("events", "192.0.2.9", "blocked for", "on edge"))
	b.until(`now.received === 9 && document.querySelector("#plot-of").textContent === "All edges together"`)
	b.until(`points.length > 0 && document.querySelector("#state").textContent === "live"`)

	// A warning that several edges give is shown once.
	if got := eval[[]string](b, `warningsOf([{text: "a", edges: ["edge1"]}, {text: "b", edges: ["edge0"]}, {text: "a", edges: ["edge0", "edge1"]}])`); !slices.Equal(got,
		[]string{"2 edges (edge0, edge1): a", "edge0: b"}) {
		t.Errorf("warnings: %q", got)
	}
	if got := eval[[]string](b, `warningsOf([{text: "a"}, {text: "a"}])`); !slices.Equal(got, []string{"a"}) {
		t.Errorf("warnings of this edge: %q", got)
	}

	// The address remembers it. An edge that is killed goes out of the sums, and is named.
	must(t, chromedp.Do(b.ctx, chromedp.Reload()))
	b.until(row("whole", "edge1", "shown"))
	must(t, edges[1].cmd.Process.Kill())
	b.until(row("whole", "edge1", "missing", "it ") + `?.className === "bad"`)
	b.until(`/^Edge edge1 has been silent/.test(document.querySelector("#says").textContent) && document.querySelector("#says").classList.contains("bad")`)
	b.until(`document.querySelector("#whole-count").textContent === "1 of 2" && document.querySelector("#warning").textContent.includes("the numbers below are without edge1")`)
	b.until(`now.received === 3 && ` + row("requests", "127.0.0.1", "edge0 3"))
	b.shoot("edge-lost")

	// Back to this edge.
	b.focus("#scope [value=pop]")
	b.keys(kb.ArrowLeft)
	b.until(`location.hash === "#edge" && document.querySelector("#whole-section").hidden && !document.querySelector("#warning").textContent.includes("the numbers below are without")`)
	b.until(row("requests", "127.0.0.1", "3") + `?.cells.length === 2`)

	// An edge that counts alone has no switch.
	b.open("http://" + start(t, site).back + "/")
	b.until(`document.querySelector("#state").textContent === "live" && document.querySelector("#scope").hidden`)
	if wrong := b.errors(); len(wrong) > 0 {
		t.Errorf("the browser says: %q", wrong)
	}
}
