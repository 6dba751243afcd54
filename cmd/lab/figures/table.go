package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A table is made of what a run printed: of the rows of its own tables (Lines), of one record after
// the other (Each), or as it is (Block).
type table struct {
	Run string

	// Lines is what the head of a table looks like. Its rows are the lines below of as many cells,
	// which two spaces part. Under is an expression with groups, of lines between: what they find
	// is the column "under" of the rows that follow. Where has expressions for columns: only rows
	// of which the whole cell is like that are taken.
	Lines, Under string
	Where        map[string]string

	Each  string // what a record begins with
	Block string // from the line that is like this to the next empty one

	// Columns are "name", "name = column", or of records "name = /expression with a group/". One
	// that stored runs may lack ends in "?".
	Columns []string
	Figures []fact // in place of all that: values of several runs, a row each
	// So many columns say what a row is about, at least one; rows of which all these are the same
	// are one, from the least to the most
	Keys   int
	Digits int // that count, of figures that nobody measured twice; 0: all
}

// A value is what an expression finds in what a run printed: from the least to the most, or, as Take
// says, the median or the most.
type value struct {
	Run, Find string
	Take      string
	Digits    int
}

// A fact is a row: what it is about, what Sluice does and what others do, under which conditions,
// and which page has more. {NAME} in it is a value. The first of them says which run made the row.
type fact struct {
	What, Ours, Others, When, More string
}

var valueIn = regexp.MustCompile(`\{([\w-]+)\}`)

// A row has what is in a column, if there is something.
type row func(column string) (cell string, ok bool)

// markdown is the table, with a line on what it is from.
func (b *book) markdown(name string) (string, error) {
	t := b.Tables[name]
	if t != nil && len(t.Figures) > 0 {
		return b.facts(t)
	}
	if t == nil || b.Runs[t.Run] == nil || b.Runs[t.Run].text == "" {
		return "",
			fmt.Errorf("table %s: figures.yaml has none of that name, or nothing is stored of its run: make figures FLAGS=\"--only RUN\"", name)
	}
	r := b.Runs[t.Run]
	if t.Block != "" {
		block := regexp.MustCompile(`(?m)` + t.Block + `(?s:.*?)(?:\n\s*\n|\z)`).FindString(r.text)
		if block == "" {
			return "", fmt.Errorf("table %s: %s printed no line like %s", name, t.Run, t.Block)
		}
		return "```\n" + regexp.MustCompile(`(?m) +$`).ReplaceAllString(strings.TrimRight(block,
			"\n "), "") + "\n```\n" + r.note() + "\n", nil
	}
	rows := t.records(r.text)
	if t.Lines != "" {
		rows = t.rows(r.text)
	}
	var heads []string
	cells := make([][]string, len(rows))
	for _, column := range t.Columns {
		column, optional := strings.CutSuffix(column, "?")
		head, from, named := strings.Cut(column, " = ")
		if !named {
			from = head
		}
		var found []string
		for _, row := range rows {
			if cell, ok := row(from); ok {
				found = append(found, cell)
			} else if optional {
				found = append(found, "–")
			}
		}
		if optional && strings.Trim(strings.Join(found, ""), "–") == "" {
			continue
		}
		if len(found) < len(rows) || len(rows) == 0 {
			return "", fmt.Errorf("table %s: of %d rows %s printed %d in the column %q", name,
				len(rows), t.Run, len(found), column)
		}
		heads = append(heads, head)
		for i := range cells {
			cells[i] = append(cells[i], found[i])
		}
	}
	s := "| " + strings.Join(heads, " | ") + " |\n|" + strings.Repeat("---|", len(heads)) + "\n"
	for _, row := range merge(cells, max(t.Keys, 1), t.Digits) {
		s += "| " + strings.Join(row, " | ") + " |\n"
	}
	return s + "\n" + r.note() + "\n", nil
}

// facts is a table of values. Each row has the command that makes it, and when that was run last.
func (b *book) facts(t *table) (string, error) {
	s := "| what | Sluice | others | conditions | made by |\n|---|---|---|---|---|\n"
	for _, f := range t.Figures {
		var wrong error
		filled := func(text string) string {
			return valueIn.ReplaceAllStringFunc(text, func(name string) string {
				figure, err := b.inline(strings.Trim(name, "{}"))
				wrong = errors.Join(wrong, err)
				return figure
			})
		}
		ours, others := filled(f.Ours), filled(f.Others)
		first := valueIn.FindStringSubmatch(f.Ours)
		if wrong != nil || first == nil {
			return "", errors.Join(wrong, fmt.Errorf("%s: its figure is %q", f.What, f.Ours))
		}
		r := b.Runs[b.Values[first[1]].Run]
		s += "| " + strings.Join([]string{f.What, ours, others, f.When + " (" + f.More + ")",
			"`" + r.name + "`: " + r.commit + ", " + r.date}, " | ") + " |\n"
	}
	return s, nil
}

// rows are those of the command's own tables.
func (t *table) rows(text string) (rows []row) {
	head, under, gap := regexp.MustCompile(t.Lines), regexp.MustCompile(t.Under),
		regexp.MustCompile(`\s{2,}`)
	title, names := "", []string(nil)
	for line := range strings.Lines(text) {
		cells := append([]string{title}, gap.Split(strings.TrimSpace(line), -1)...)
		if m := under.FindStringSubmatch(line); len(m) > 1 {
			title = strings.Join(m[1:], "")
		} else if head.MatchString(line) {
			names = append([]string{"under"}, cells[1:]...)
		} else if len(cells) == len(names) {
			of := names
			r := func(name string) (string, bool) {
				i := slices.Index(of, name)
				return cells[max(i, 0)], i >= 0
			}
			keep := true
			for name, like := range t.Where {
				cell, _ := r(name)
				keep = keep && regexp.MustCompile("^(?:"+like+")$").MatchString(cell)
			}
			if keep {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// records are what stands from each beginning to the next.
func (t *table) records(text string) (rows []row) {
	begins := append(regexp.MustCompile("(?m)"+t.Each).FindAllStringIndex(text, -1),
		[]int{len(text)})
	for i, at := range begins[:len(begins)-1] {
		record := text[at[0]:begins[i+1][0]]
		rows = append(rows, func(expression string) (string, bool) {
			m := regexp.MustCompile("(?m)" + strings.Trim(expression, "/")).
				FindStringSubmatch(record)
			return strings.TrimSpace(strings.Join(m[min(1, len(m)):], " ")), m != nil
		})
	}
	return rows
}

// merge makes one row of those that are about the same.
func merge(rows [][]string, keys, digits int) (merged [][]string) {
	same := make(map[string][][]string)
	for _, row := range rows {
		key := strings.Join(row[:keys], "|")
		if same[key] == nil {
			merged = append(merged, slices.Clone(row))
		}
		same[key] = append(same[key], row)
	}
	for _, row := range merged {
		for i := keys; i < len(row); i++ {
			var of []string
			for _, r := range same[strings.Join(row[:keys], "|")] {
				of = append(of, r[i])
			}
			row[i] = span(of, digits)
		}
	}
	return merged
}

var figure = regexp.MustCompile(`^(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?:-(\d[\d,]*(?:\.\d+)?))?( .*|[a-zµ%]*)$`)

// span writes figures as one, or from the least to the most, with the digits that the difference
// allows. What is no figure stands as it is.
func span(of []string, digits int) string {
	least, most, unit, decimals := math.Inf(1), math.Inf(-1), "", 0
	for i, s := range of {
		m := figure.FindStringSubmatch(s)
		if m == nil || i > 0 && m[3] != unit {
			return strings.Join(slices.Compact(of), " / ")
		}
		unit = m[3]
		for _, n := range m[1:3] {
			if v, err := strconv.ParseFloat(strings.ReplaceAll(n, ",", ""), 64); err == nil {
				_, fraction, _ := strings.Cut(n, ".")
				least, most, decimals = min(least, v), max(most, v), max(decimals, len(fraction))
			}
		}
	}
	if len(of) == 1 && digits == 0 {
		return of[0]
	}
	if most > least {
		decimals = min(decimals, 1-int(math.Floor(math.Log10(most-least))))
	}
	if digits > 0 && most > 0 {
		decimals = min(decimals, digits-1-int(math.Floor(math.Log10(most))))
	}
	a, z := write(least, decimals), write(most, decimals)
	if a != z {
		a += "–" + z
	}
	return a + unit
}

// write is a figure with so many decimals, negative for tens and hundreds, and commas between
// thousands.
func write(v float64, decimals int) string {
	if decimals < 0 {
		tens := math.Pow10(-decimals)
		v, decimals = math.Round(v/tens)*tens, 0
	}
	whole, fraction, point := strings.Cut(strconv.FormatFloat(v, 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	return whole
}

// inline is a value in a sentence or a cell.
func (b *book) inline(name string) (string, error) {
	v := b.Values[name]
	if v == nil || b.Runs[v.Run] == nil {
		return "", fmt.Errorf("figures.yaml has no value %q of a run", name)
	}
	var of []string
	for _, m := range regexp.MustCompile("(?m)"+v.Find).FindAllStringSubmatch(b.Runs[v.Run].text,
		-1) {
		of = append(of, m[1])
	}
	if len(of) == 0 {
		return "", fmt.Errorf("value %s: %s printed nothing like %s", name, v.Run, v.Find)
	}
	if v.Take != "" {
		var numbers []float64
		for _, cell := range of {
			n, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
			if err != nil {
				return "", fmt.Errorf("value %s: %w", name, err)
			}
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		n := numbers[len(numbers)-1]
		switch v.Take {
		case "median":
			n = (numbers[(len(numbers)-1)/2] + numbers[len(numbers)/2]) / 2
		case "most":
		default:
			return "", fmt.Errorf("value %s: take %q: want median or most", name, v.Take)
		}
		of = []string{strconv.FormatFloat(n, 'f', -1, 64)}
	}
	return span(of, v.Digits), nil
}

// unused names what no document has a place for, and runs of which nothing is made.
func (b *book) unused() (err error) {
	of := ""
	for name, t := range b.Tables {
		of += " " + t.Run + " "
		if !b.used[name] {
			err = errors.Join(err, fmt.Errorf("figures.yaml: no document has a place for %s", name))
		}
	}
	for _, v := range b.Values {
		of += " " + v.Run + " "
	}
	for _, r := range b.Runs {
		of += r.Command
	}
	for _, name := range sorted(b.Runs) {
		if !strings.Contains(of, " "+name+" ") && !strings.Contains(of, "/runs/"+name+".txt") {
			err = errors.Join(err, fmt.Errorf("figures.yaml: nothing is made of the run %s", name))
		}
	}
	return err
}
