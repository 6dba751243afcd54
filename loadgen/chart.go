package loadgen

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// shade is a colour by what it stands for. The page's style sheet says what it is, so that a plot is light or dark as the page
// is.
type shade uint8

const (
	inkShade shade = iota + 1
	faintShade
	oursShade
	theirsShade
	alarmShade
)

// RGBA is an almost black of which svg makes what it stands for.
func (s shade) RGBA() (r, g, b, a uint32) {
	return uint32(s) * 0x101, uint32(s) * 0x101, uint32(s) * 0x101, 0xffff
}

// String is the name of the style sheet's variable.
func (s shade) String() string {
	return [...]string{"", "--ink", "--faint", "--ours", "--theirs", "--alarm"}[s]
}

// chart is a plot in the page's style, and what its lines are.
type chart struct {
	*plot.Plot
	Keys []chartKey
}

type chartKey struct {
	Name  string
	Shade shade
}

var svgHead = regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*" (viewBox="[^"]*")[^>]*>`)

var fontFamily = regexp.MustCompile(`font-family:[^;"]*;?(font-(variant|weight|style):[^;"]*;?)*`)

// newChart is an empty plot.
func newChart(x, y string) *chart {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Color, a.Tick.Label.Color = inkShade, inkShade, inkShade, inkShade
		a.LineStyle.Width, a.Tick.LineStyle.Width = vg.Points(0.6), vg.Points(0.6)
		a.Padding = vg.Points(2)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = faintShade, vg.Points(0.5)
	p.Add(grid)
	return &chart{Plot: p}
}

// line adds a line, in steps or straight.
func (c *chart) line(name string, of shade, steps bool, points plotter.XYs) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = of, vg.Points(1.1)
	if steps {
		l.StepStyle = plotter.PostStep
	}
	c.Add(l)
	c.Keys = append(c.Keys, chartKey{name, of})
	return nil
}

// dashed adds a mark from one point to another.
func (c *chart) dashed(from, to plotter.XY) error {
	l, err := plotter.NewLine(plotter.XYs{from, to})
	if err != nil {
		return err
	}
	l.Color, l.Width, l.Dashes = alarmShade, vg.Points(0.8), []vg.Length{vg.Points(4), vg.Points(3)}
	c.Add(l)
	return nil
}

// svg draws the chart so that it can stand in a page.
func (c *chart) svg() (template.HTML, error) {
	canvas := vgsvg.New(vg.Points(520), vg.Points(230))
	c.Draw(draw.Crop(draw.New(canvas), 0, vg.Points(-14), 0, vg.Points(-4))) // room for half a label
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("loadgen: draw a plot: %w", err)
	}
	s := svgHead.ReplaceAllString(b.String(), `<svg role="img" $1>`)
	s = fontFamily.ReplaceAllString(s, "")
	for of := inkShade; of <= alarmShade; of++ {
		s = strings.ReplaceAll(s, fmt.Sprintf("#%02x%02x%02x", uint8(of), uint8(of), uint8(of)), "var("+of.String()+")")
	}
	return template.HTML(s), nil // all text in it was escaped when it was drawn
}
