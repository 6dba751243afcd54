package trace

import (
	"bytes"
	"encoding/csv"
	"strings"
)

// csvParser reads rows of comma-separated values, the columns named in the first one: t, source,
// host, method, path, status, role, reset, in any order and among others. Only t and source must be
// there. A value does not span lines.
type csvParser struct {
	column [csvColumns]int // index of the field, -1: not there
	named  bool
}

const (
	csvT = iota
	csvSource
	csvHost
	csvMethod
	csvPath
	csvStatus
	csvRole
	csvReset
	csvColumns
)

var csvNames = [csvColumns]string{"t", "source", "host", "method", "path", "status", "role",
	"reset"}

func (p *csvParser) parse(line []byte, r *record) string {
	var fields []string
	if bytes.IndexByte(line, '"') < 0 {
		fields = strings.Split(string(line), ",")
	} else {
		c := csv.NewReader(bytes.NewReader(line))
		c.FieldsPerRecord = -1
		var err error
		if fields, err = c.Read(); err != nil {
			return SkippedSyntax
		}
	}
	if !p.named {
		p.named = true
		if p.header(fields) {
			return SkippedComment
		}
	}
	get := func(column int) []byte {
		if i := p.column[column]; i >= 0 && i < len(fields) {
			return []byte(strings.TrimSpace(fields[i]))
		}
		return nil
	}
	r.client = get(csvSource)
	if !seconds(get(csvT), r) {
		return SkippedTime
	}
	r.host, r.method, r.path = get(csvHost), get(csvMethod), get(csvPath)
	if n, ok := decimal(get(csvStatus)); ok && n <= 999 {
		r.status = int16(n)
	}
	r.role, r.reset = parseRole(get(csvRole)), string(get(csvReset)) == "true"
	return ""
}

// header takes the columns' names. A first row without the names t and source is no header: then
// the columns are in the order of csvNames.
func (p *csvParser) header(fields []string) bool {
	for i := range p.column {
		p.column[i] = -1
	}
	for i, f := range fields {
		for c, name := range csvNames {
			if strings.EqualFold(strings.TrimSpace(f), name) && p.column[c] < 0 {
				p.column[c] = i
			}
		}
	}
	if p.column[csvT] >= 0 && p.column[csvSource] >= 0 {
		return true
	}
	for c := range p.column {
		p.column[c] = c
	}
	return false
}
