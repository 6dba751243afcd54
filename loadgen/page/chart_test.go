package page

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	f := func(a Axis, want string) {
		t.Helper()
		var labels []string
		for _, tick := range a.ticks() {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("%v to %v: %s, want %s", a.Min, a.Max, got, want)
		}
	}
	f(Axis{Min: 0, Max: 60}, "0 20 40 60")
	f(Axis{Min: 0, Max: 25}, "0 5 10 15 20 25")
	f(Axis{Min: -93, Max: 100}, "-50 0 50 100")
	f(Axis{Min: 0, Max: 1093}, "0 200 400 600 800 1,000")
	f(Axis{Min: 0, Max: 0.1}, "0 0.02 0.04 0.06 0.08 0.1")
	f(Axis{Min: 3, Max: 3}, "3 3.2 3.4 3.6 3.8 4")
	f(Axis{Min: 0.0005, Max: 130, Log: true}, "0.001 0.01 0.1 1 10 100")
	f(Axis{Min: 5, Max: 5, Log: true}, "10")
	f(Axis{Min: 2, Max: 8, Ticks: []Tick{{1, "one"}, {2, "two"}, {4, ""}, {8, "eight"}, {9, "nine"}}}, "two  eight")
	f(NewChart("", "").X, "2 4 6 8 10")
}

var (
	path   = regexp.MustCompile(`<path d="([^"]*)" style="fill:none;stroke:var\((--[a-z]+)\)`)
	number = regexp.MustCompile(`-?[0-9.]+`)
)

// A chart is well-formed, draws all that it has within its bounds, and has colours of the page alone.
func TestSVG(t *testing.T) {
	c := NewChart("x & y, <s>", "hits")
	c.Line("steps", Ours, true, []XY{{0, 0}, {5, 10}, {10, 10}})
	c.Line("straight", Theirs, false, []XY{{0, 10}, {10, 0}})
	c.Mark(XY{5, 0}, XY{5, 10})
	svg := string(c.SVG())
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{">x &amp; y, &lt;s&gt;</text>", ">hits</text>", ">10</text>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	drawn := map[string]string{}
	for _, m := range path.FindAllStringSubmatch(svg, -1) {
		drawn[m[2]] = m[1]
	}
	// The y axis has labels of two digits, so the plot begins at 36; it ends at 384, and goes from 6 down to 168.
	for of, want := range map[Shade]string{
		Ours:   "M36.0,168.0H210.0V6.0H384.0V6.0",
		Theirs: "M36.0,6.0L384.0,168.0",
		Alarm:  "M210.0,168.0L210.0,6.0",
		Faint:  "M36.0,6.0H384.0", // the grid's last
	} {
		if got := drawn[of.String()]; got != want {
			t.Errorf("%v is drawn as %s, want %s", of, got, want)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("coordinates that are no numbers:\n%s", svg)
	}
}

// What lies between powers of ten stands between their ticks in proportion to its logarithm; a chart without lines, or with one
// point, has its axes.
func TestAxes(t *testing.T) {
	c := NewChart("", "")
	c.Line("", Ours, false, []XY{{1, 0.01}, {10, 1}, {100, 100}})
	c.X.Log, c.Y.Log = true, true
	if svg := string(c.SVG()); !strings.Contains(svg, "L216.0,87.0L384.0,6.0") { // labels of up to four
		t.Errorf("not in proportion:\n%s", svg)
	}
	one := NewChart("", "")
	one.Line("", Ours, true, []XY{{3, 3}})
	for _, c := range []*Chart{NewChart("", ""), one} {
		svg := string(c.SVG())
		if !strings.Contains(svg, "</text>") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("no axes:\n%s", svg)
		}
		for _, m := range path.FindAllStringSubmatch(svg, -1) {
			for _, n := range number.FindAllString(m[1], -1) {
				if v, err := strconv.ParseFloat(n, 64); err != nil || v < -4 || v > chartWidth {
					t.Errorf("%s is out of bounds: %v", m[1], err)
				}
			}
		}
	}
}
