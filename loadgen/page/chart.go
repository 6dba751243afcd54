package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"
)

// Shade is a colour by what it stands for. The page's style sheet says what it is, so that a plot
// is light or dark as the page is.
type Shade uint8

const (
	Ink Shade = iota + 1
	Faint
	Ours
	Theirs
	Alarm
)

// String is the name of the style sheet's variable.
func (s Shade) String() string {
	return [...]string{"", "--ink", "--faint", "--ours", "--theirs", "--alarm"}[s]
}

// Chart is a plot in the page's style, and what its lines are. NewChart makes one.
type Chart struct {
	X, Y Axis
	Keys []Key

	lines []line
}

// Key says which of the lines of a chart is which.
type Key struct {
	Name  string
	Shade Shade
}

// Axis is one of the two of a chart.
type Axis struct {
	Label    string
	Min, Max float64 // what it shows: what lines and marks reach, unless it is set after them
	Log      bool    // logarithmic, for values above 0
	// Nil: about five at round numbers, or where it is logarithmic at powers of ten
	Ticks []Tick
}

// Tick is a mark on an axis, and what it says.
type Tick struct {
	Value float64
	Label string
}

// XY is a point, in the units of the axes.
type XY struct{ X, Y float64 }

// line is how a line is drawn, and where: as a path of SVG says, with the coordinates of points.
type line struct {
	points []XY
	steps  bool // level until the next point
	style  string
}

// NewChart is a chart without lines.
func NewChart(x, y string) *Chart {
	axis := func(label string) Axis {
		return Axis{Label: label, Min: math.Inf(1), Max: math.Inf(-1)}
	}
	return &Chart{X: axis(x), Y: axis(y)}
}

// Line adds a line, in steps or straight.
func (c *Chart) Line(name string, of Shade, steps bool, points []XY) {
	c.add(line{points, steps, fmt.Sprintf("stroke:var(%v);stroke-width:1.1", of)})
	c.Keys = append(c.Keys, Key{name, of})
}

// Mark adds a dashed mark from one point to another.
func (c *Chart) Mark(from, to XY) {
	c.add(line{[]XY{from, to}, false,
		fmt.Sprintf("stroke:var(%v);stroke-width:0.8;stroke-dasharray:4,3", Alarm)})
}

func (c *Chart) add(l line) {
	for _, p := range l.points {
		c.X.Min, c.X.Max = min(c.X.Min, p.X), max(c.X.Max, p.X)
		c.Y.Min, c.Y.Max = min(c.Y.Min, p.Y), max(c.Y.Max, p.Y)
	}
	c.lines = append(c.lines, l)
}

// ends are what the axis shows, which is never nothing.
func (a *Axis) ends() (low, high float64) {
	switch {
	case a.Min < a.Max:
		return a.Min, a.Max
	case a.Min == a.Max && a.Log:
		return a.Min, 10 * a.Min
	case a.Min == a.Max:
		return a.Min, a.Min + 1
	}
	return 1, 10 // there is no line
}

// at is where a value stands from one end of the axis to the other, 0 to 1.
func (a *Axis) at(v float64) float64 {
	low, high := a.ends()
	if a.Log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return (v - low) / (high - low)
}

// ticks are those that the axis shows.
func (a *Axis) ticks() (out []Tick) {
	low, high := a.ends()
	switch {
	case a.Ticks != nil:
		for _, t := range a.Ticks {
			if low <= t.Value && t.Value <= high {
				out = append(out, t)
			}
		}
	case a.Log:
		for e := math.Ceil(math.Log10(low)); math.Pow(10, e) <= high; e++ {
			out = append(out, Tick{math.Pow(10, e), Significant(math.Pow(10, e))})
		}
	default:
		step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
		for _, times := range []float64{1, 2, 5, 10} {
			if times*step*6 > high-low {
				step *= times
				break
			}
		}
		for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9); i++ {
			out = append(out, Tick{i * step, Significant(i * step)})
		}
	}
	return out
}

// What an SVG measures in its own units, of which a page shows more or fewer on a line. Letters are
// readable on a phone, where that is its width.
const (
	chartWidth, chartHeight = 400, 200
	digit                   = 6 // the width of one, at most
)

// SVG draws the chart so that it can stand in a page. All text in it is escaped.
func (c *Chart) SVG() template.HTML {
	across, up := c.X.ticks(), c.Y.ticks()
	widest := 0
	for _, t := range up {
		widest = max(widest, utf8.RuneCountInString(t.Label))
	}
	// Of the plot; half a label stands beyond its right end
	left, right, top, bottom := float64(24+digit*widest), chartWidth-16., 6., chartHeight-32.
	x := func(v float64) float64 { return left + (right-left)*c.X.at(v) }
	y := func(v float64) float64 { return bottom - (bottom-top)*c.Y.at(v) }

	var b strings.Builder
	text := func(x, y, size float64, anchor, more, text string) {
		if text != "" {
			fmt.Fprintf(&b,
				`<text x="%.1f" y="%.1f" style="font-size:%gpx;text-anchor:%s"%s>%s</text>`+"\n", x,
				y, size, anchor, more, html.EscapeString(text))
		}
	}
	path := func(style, format string, args ...any) {
		fmt.Fprintf(&b, `<path d="`+format+`" style="fill:none;`+style+`"/>`+"\n", args...)
	}
	fmt.Fprintf(&b, `<svg role="img" viewBox="0 0 %d %d">`+"\n", chartWidth, chartHeight)
	const axis, grid = "stroke:var(--ink);stroke-width:0.6", "stroke:var(--faint);stroke-width:0.5"
	for _, t := range up {
		path(grid, "M%.1f,%.1fH%.1f", left, y(t.Value), right)
		path(axis, "M%.1f,%.1fh-4", left-2, y(t.Value))
		text(left-8, y(t.Value)+3.5, 10, "end", "", t.Label)
	}
	for _, t := range across {
		path(axis, "M%.1f,%.1fv4", x(t.Value), bottom+2)
		text(x(t.Value), bottom+16, 10, "middle", "", t.Label)
	}
	path(axis, "M%.1f,%.1fV%.1f", left-2, top, bottom)
	path(axis, "M%.1f,%.1fH%.1f", left, bottom+2, right)
	text((left+right)/2, chartHeight-4, 12, "middle", "", c.X.Label)
	text(11, (top+bottom)/2, 12, "middle", fmt.Sprintf(` transform="rotate(-90 11 %.1f)"`,
		(top+bottom)/2), c.Y.Label)
	for _, l := range c.lines {
		var d strings.Builder
		for i, p := range l.points {
			switch {
			case i == 0:
				fmt.Fprintf(&d, "M%.1f,%.1f", x(p.X), y(p.Y))
			case l.steps:
				fmt.Fprintf(&d, "H%.1fV%.1f", x(p.X), y(p.Y))
			default:
				fmt.Fprintf(&d, "L%.1f,%.1f", x(p.X), y(p.Y))
			}
		}
		path(l.style, "%s", d.String())
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
