package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metrics is what Prometheus would be told, as text.
type metrics []byte

// each calls f with the labels and the value of every sample of a name.
func (m metrics) each(name string, f func(labels, value string)) {
	for line := range strings.Lines(string(m)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if i := strings.LastIndexByte(rest, ' '); i >= 0 {
			f(rest[:i], rest[i+1:])
		}
	}
}

// sum adds the samples of a name that have all of these labels, written name="value".
func (m metrics) sum(name string, labels ...string) (total float64) {
	m.each(name, func(has, value string) {
		for _, l := range labels {
			if !strings.Contains(has, l) {
				return
			}
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			total += v
		}
	})
	return total
}

// label is the value of a label of a name's only sample.
func (m metrics) label(name, label string) (value string) {
	m.each(name, func(has, _ string) {
		if _, rest, ok := strings.Cut(has, label+`="`); ok {
			value, _, _ = strings.Cut(rest, `"`)
		}
	})
	return value
}

// inDays is how long a certificate is still valid, as a word and a number.
func inDays(n int) string {
	switch n {
	case 0:
		return "less than a day"
	case 1:
		return "1 day"
	}
	return fmt.Sprintf("%d days", n)
}

// listeners are those that show certificates.
func (m metrics) listeners() (all []string) {
	m.each("sluice_certificate_expiry_timestamp_seconds", func(has, _ string) {
		_, name, _ := strings.Cut(has, `listener="`)
		if name, _, _ = strings.Cut(name, `"`); !slices.Contains(all, name) {
			all = append(all, name)
		}
	})
	slices.Sort(all)
	return all
}

// certificates says of a listener's which have expired or soon will, or else how long the first is
// still valid; and whether files were wrong.
func (m metrics) certificates(listener string, now time.Time) (lines []string) {
	const shown = 5
	type expiry struct {
		file string
		at   time.Time
	}
	var all []expiry
	label := fmt.Sprintf("listener=%q", listener)
	m.each("sluice_certificate_expiry_timestamp_seconds", func(has, value string) {
		at, err := strconv.ParseFloat(value, 64)
		if err != nil || !strings.Contains(has, label) {
			return
		}
		_, file, _ := strings.Cut(has, `name="`)
		file, _, _ = strings.Cut(file, `"`)
		all = append(all, expiry{file, time.Unix(int64(at), 0)})
	})
	slices.SortStableFunc(all, func(a, b expiry) int { return a.at.Compare(b.at) })
	for i, e := range all {
		soon := e.at.Before(now.Add(certificateSoon))
		if i > 0 && !soon {
			break
		}
		if i == shown {
			lines = append(lines, listener+": and more; sluice check FILE tells of each")
			break
		}
		lines = append(lines, listener+": "+strings.TrimSpace(e.file+" "+certificate(e.at, now)))
	}
	if failures := m.sum("sluice_certificate_read_failures_total", label); failures > 0 &&
		len(lines) > 0 {
		lines[0] += fmt.Sprintf("; %s looks at the listener's files since the start found them wrong or away", Number(uint64(failures)))
	}
	return lines
}

// certificateSoon is how long before its end a certificate is told of as one that expires soon, as
// sluice check does.
const certificateSoon = 14 * 24 * time.Hour

// certificate says how long one is still valid.
func certificate(until, now time.Time) string {
	days := int(until.Sub(now).Hours() / 24)
	switch {
	case !until.After(now):
		return "EXPIRED on " + Clock(until)
	case until.Before(now.Add(certificateSoon)):
		return fmt.Sprintf("EXPIRES SOON, in %s, on %s", inDays(days), Clock(until))
	}
	return fmt.Sprintf("valid until %s, %d days", Clock(until), days)
}
