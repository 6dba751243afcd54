package page

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Shade is a colour by what it stands for. The page's style sheet says what it is, so that a plot is light or dark as the page
// is.
type Shade uint8

const (
	Ink Shade = iota + 1
	Faint
	Ours
	Theirs
	Alarm
)

// RGBA is an almost black of which svg makes what it stands for.
func (s Shade) RGBA() (r, g, b, a uint32) {
	return uint32(s) * 0x101, uint32(s) * 0x101, uint32(s) * 0x101, 0xffff
}

// String is the name of the style sheet's variable.
func (s Shade) String() string {
	return [...]string{"", "--ink", "--faint", "--ours", "--theirs", "--alarm"}[s]
}

// Chart is a plot in the page's style, and what its lines are.
type Chart struct {
	*plot.Plot
	Keys []Key
}

// Key says which of the lines of a chart is which.
type Key struct {
	Name  string
	Shade Shade
}

var svgHead = regexp.MustCompile(`(?s)^.*?<svg width="[^"]*" height="[^"]*" (viewBox="[^"]*")[^>]*>`)

var fontFamily = regexp.MustCompile(`font-family:[^;"]*;?(font-(variant|weight|style):[^;"]*;?)*`)

// NewChart is an empty plot.
func NewChart(x, y string) *Chart {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Color, a.Tick.Label.Color = Ink, Ink, Ink, Ink
		a.LineStyle.Width, a.Tick.LineStyle.Width = vg.Points(0.6), vg.Points(0.6)
		a.Padding, a.Tick.Marker = vg.Points(2), ticks{}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = Faint, vg.Points(0.5)
	p.Add(grid)
	return &Chart{Plot: p}
}

// ticks is about five ticks at round numbers, each with its number.
type ticks struct{}

func (ticks) Ticks(low, high float64) (out []plot.Tick) {
	if !(high > low) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
	for _, times := range []float64{1, 2, 5, 10} {
		if times*step*6 > high-low {
			step *= times
			break
		}
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9); i++ {
		out = append(out, plot.Tick{Value: i * step, Label: Significant(i * step)})
	}
	return out
}

// Line adds a line, in steps or straight.
func (c *Chart) Line(name string, of Shade, steps bool, points plotter.XYs) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = of, vg.Points(1.1)
	if steps {
		l.StepStyle = plotter.PostStep
	}
	c.Add(l)
	c.Keys = append(c.Keys, Key{name, of})
	return nil
}

// Mark adds a mark from one point to another.
func (c *Chart) Mark(from, to plotter.XY) error {
	l, err := plotter.NewLine(plotter.XYs{from, to})
	if err != nil {
		return err
	}
	l.Color, l.Width, l.Dashes = Alarm, vg.Points(0.8), []vg.Length{vg.Points(4), vg.Points(3)}
	c.Add(l)
	return nil
}

// SVG draws the chart so that it can stand in a page.
func (c *Chart) SVG() (template.HTML, error) {
	canvas := vgsvg.New(vg.Points(400), vg.Points(200))                      // letters are readable on a phone, where that is its width
	c.Draw(draw.Crop(draw.New(canvas), 0, vg.Points(-14), 0, vg.Points(-4))) // room for half a label
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("loadgen: draw a plot: %w", err)
	}
	s := svgHead.ReplaceAllString(b.String(), `<svg role="img" $1>`)
	s = fontFamily.ReplaceAllString(s, "")
	for of := Ink; of <= Alarm; of++ {
		s = strings.ReplaceAll(s, fmt.Sprintf("#%02x%02x%02x", uint8(of), uint8(of), uint8(of)), "var("+of.String()+")")
	}
	return template.HTML(s), nil // all text in it was escaped when it was drawn
}
