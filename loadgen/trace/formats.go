package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// format is a way to read lines.
type format struct {
	name  string // of ReadOptions.Format
	title string // in reports; "": what every reader of the report expects
	make  func(o *ReadOptions) parser
}

// known are the formats in the order in which they are tried: the first that reads most of a file's
// first lines is that of the file.
var known = []format{
	{"sluice", "", func(*ReadOptions) parser { return parseJSON }},
	{"log", "", func(o *ReadOptions) parser {
		return (&logParser{clfParser{trust: o.Trust}}).parse
	}},
	{"caddy", "Caddy JSON", ofFields(&caddyFields)},
	{"traefik", "Traefik JSON", ofFields(&traefikFields)},
	{"logpush", "Cloudflare Logpush", ofFields(&logpushFields)},
	{"gcp", "Google Cloud JSON", ofFields(&gcpFields)},
	{"nginx", "nginx JSON", ofFields(&nginxFields)},
	{"alb", "AWS load balancer", func(*ReadOptions) parser { return parseALB }},
	{"npm", "Nginx Proxy Manager", func(*ReadOptions) parser { return new(npmParser).parse }},
	{"w3c", "W3C", func(*ReadOptions) parser { return new(w3cParser).parse }},
	{"csv", "", func(*ReadOptions) parser { return new(csvParser).parse }},
}

// headLines is how many of a file's first lines tell its format.
const headLines = 64

// formatOf is the format of a file by its name, its first bytes and what the options say. wrapped
// says that each line is JSON around one of the format, as docker's json-file driver and journald
// write it.
func formatOf(o *ReadOptions, extension string, head []byte) (f format, wrapped bool, err error) {
	var tried []format
	switch {
	case len(o.Fields) > 0:
		fields, err := customFields(o.Fields)
		if err != nil {
			return f, false, err
		}
		tried = []format{{"fields", "JSON by --fields", ofFields(fields)}}
	case o.Format != "":
		i := slices.IndexFunc(known, func(f format) bool { return f.name == o.Format })
		if i < 0 {
			return f, false, fmt.Errorf("no format %q: want %s", o.Format, FormatNames())
		}
		tried = known[i : i+1]
	case extension == ".csv":
		return known[len(known)-1], false, nil
	case extension == ".jsonl", extension == ".ndjson":
		tried = slices.Concat(known[:1], known[2:7])
	default:
		tried = known[1 : len(known)-1] // log has Sluice's own lines in it
	}
	var lines [][]byte
	for line := range bytes.Lines(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
		if len(lines) == headLines {
			break
		}
	}
	best := 0
	f = tried[0]
	for _, wrap := range []bool{false, true} {
		if best > 0 {
			break
		}
		for _, t := range tried {
			if n := readable(t.make(o), lines, wrap); n > best {
				best, f, wrapped = n, t, wrap
			}
		}
	}
	return f, wrapped, nil
}

// readable counts the lines that parse takes for requests of somebody.
func readable(parse parser, lines [][]byte, wrapped bool) (n int) {
	if wrapped {
		parse = unwrapped(parse)
	}
	for _, line := range lines {
		var r record
		if parse(line, &r) == "" && isClient(r.client) {
			n++
		}
	}
	return n
}

// FormatNames lists what ReadOptions.Format may be.
func FormatNames() string {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// wanted says what Read knows, for who has something else. A line in JSON has names that can be
// mapped.
func wanted(line string) string {
	text := "want CLIENT - USER [02/Jan/2006:15:04:05 -0700] …, whatever stands before it, HAProxy's log of HTTP, " +
		".csv, JSON with t and source, or one of --format (" + FormatNames() + ")"
	var object map[string]any
	if json.Unmarshal(objectOf([]byte(line)), &object) == nil && len(object) > 0 {
		text += fmt.Sprintf("; for other JSON say --fields time=…,client=…,path=…,method=…,status=…, of %s",
			strings.Join(slices.Sorted(maps.Keys(object)), ", "))
	}
	return text
}

// unwrapped reads what stands as a string in an object: docker's log, journald's MESSAGE.
func unwrapped(parse parser) parser {
	return func(line []byte, r *record) string {
		var v struct {
			Log     string `json:"log"`
			Message string `json:"message"` // and MESSAGE: names match in either case
		}
		if json.Unmarshal(objectOf(line), &v) != nil {
			return SkippedSyntax
		}
		inner := strings.TrimSpace(cmp.Or(v.Log, v.Message))
		if inner == "" {
			return SkippedEmpty
		}
		return parse([]byte(inner), r)
	}
}
