package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// jsonFields says where an object has what: names in the order in which they are looked for, with
// dots between those of objects in objects.
type jsonFields struct {
	// An object without it is no request: a server's own messages may stand between them
	mark string

	time, client, host, method, target, status, agent []string

	request []string // a request line
	path    []string // a target, where neither target nor request is there
}

var (
	// nginx has no names of its own: those of its variables, and what many call them.
	nginxFields = jsonFields{
		time: []string{"msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "time",
			"date"},
		client:  []string{"remote_addr", "remote_ip", "client_ip", "clientip", "client"},
		host:    []string{"http_host", "host", "vhost", "server_name"},
		method:  []string{"request_method", "method"},
		target:  []string{"request_uri"},
		request: []string{"request"},
		path:    []string{"uri", "path", "url"},
		status:  []string{"status"},
		agent:   []string{"http_user_agent", "user_agent", "agent"},
	}
	caddyFields = jsonFields{
		mark:   "request",
		time:   []string{"ts"},
		client: []string{"request.client_ip", "request.remote_ip", "request.remote_addr"},
		host:   []string{"request.host"},
		method: []string{"request.method"},
		target: []string{"request.uri"},
		status: []string{"status"},
		agent:  []string{"request.headers.User-Agent"},
	}
	traefikFields = jsonFields{
		mark:   "DownstreamStatus",
		time:   []string{"StartUTC", "StartLocal", "time"},
		client: []string{"ClientHost", "ClientAddr"},
		host:   []string{"RequestHost", "RequestAddr"},
		method: []string{"RequestMethod"},
		target: []string{"RequestPath"},
		status: []string{"DownstreamStatus"},
		agent:  []string{"request_User-Agent"},
	}
	logpushFields = jsonFields{
		time:   []string{"EdgeStartTimestamp"},
		client: []string{"ClientIP"},
		host:   []string{"ClientRequestHost"},
		method: []string{"ClientRequestMethod"},
		target: []string{"ClientRequestURI", "ClientRequestPath"},
		status: []string{"EdgeResponseStatus"},
		agent:  []string{"ClientRequestUserAgent"},
	}
	gcpFields = jsonFields{
		mark:   "httpRequest",
		time:   []string{"timestamp", "receiveTimestamp"},
		client: []string{"httpRequest.remoteIp"},
		method: []string{"httpRequest.requestMethod"},
		target: []string{"httpRequest.requestUrl"},
		status: []string{"httpRequest.status"},
		agent:  []string{"httpRequest.userAgent"},
	}
)

// customFields are those of ReadOptions.Fields.
func customFields(names map[string]string) (*jsonFields, error) {
	f := new(jsonFields)
	for what, name := range names {
		list := []string{name}
		switch what {
		case "time":
			f.time = list
		case "client":
			f.client = list
		case "host":
			f.host = list
		case "method":
			f.method = list
		case "path":
			f.target = list
		case "request":
			f.request = list
		case "status":
			f.status = list
		case "agent":
			f.agent = list
		default:
			return nil,
				fmt.Errorf("no field %q: want time, client, host, method, path, request, status or agent", what)
		}
	}
	if f.time == nil || f.client == nil {
		return nil, fmt.Errorf("fields want time and client at least")
	}
	return f, nil
}

// ofFields makes parsers of objects.
func ofFields(f *jsonFields) func(*ReadOptions) parser {
	return func(o *ReadOptions) parser {
		p := jsonParser{f, clfParser{trust: o.Trust}}
		return p.parse
	}
}

type jsonParser struct {
	fields *jsonFields
	clf    clfParser
}

func (p *jsonParser) parse(line []byte, r *record) string {
	decoder := json.NewDecoder(bytes.NewReader(objectOf(line)))
	decoder.UseNumber() // a float has not all digits of an instant
	var object map[string]any
	if decoder.Decode(&object) != nil {
		return SkippedSyntax
	}
	f := p.fields
	if f.mark != "" && object[f.mark] == nil {
		return SkippedOther
	}
	client := value(object, f.client)
	if len(client) == 0 {
		return SkippedSource
	}
	r.client = []byte(client)
	if strings.Contains(client, ",") {
		r.client, r.listed = p.clf.untrusted(bytes.Split(r.client, []byte(","))), true
	}
	if !p.clf.instant(value(object, f.time), r) {
		return SkippedTime
	}
	r.host, r.agent = []byte(value(object, f.host)), []byte(value(object, f.agent))
	if n, ok := decimal([]byte(value(object, f.status))); ok && n >= 100 && n <= 999 {
		r.status = int16(n)
	}
	method, target := value(object, f.method), value(object, f.target)
	if line := value(object, f.request); target == "" && line != "" {
		requestLine([]byte(line), r)
		return ""
	}
	if target == "" {
		target = value(object, f.path)
	}
	if method == "" {
		method = "GET"
	}
	if rest, is := strings.CutPrefix(target, "https://"); is ||
		strings.HasPrefix(target, "http://") {
		rest = strings.TrimPrefix(rest, "http://")
		host, _, _ := strings.Cut(rest, "/")
		if len(r.host) == 0 {
			r.host = []byte(host)
		}
	}
	if target != "" {
		requestLine([]byte(method+" "+strings.ReplaceAll(target, " ", "%20")), r)
	}
	return ""
}

// objectOf is the object that a line is, or ends with behind a prefix, whose last letter may be
// that of a colour.
func objectOf(line []byte) []byte {
	if i := bytes.IndexByte(line, '{'); i > 0 && line[len(line)-1] == '}' &&
		bytes.IndexByte([]byte(" \t:m"), line[i-1]) >= 0 {
		return line[i:]
	}
	return line
}

// value is the first of the names that is there: a string, a number, or the first of a list of
// those.
func value(object map[string]any, names []string) string {
	for _, name := range names {
		v, ok := object[name]
		if !ok {
			v = object
			for part := range strings.SplitSeq(name, ".") {
				inner, _ := v.(map[string]any)
				v = inner[part]
			}
		}
		if list, is := v.([]any); is && len(list) > 0 {
			v = list[0]
		}
		switch v := v.(type) {
		case string:
			if v != "" && v != "-" {
				return v
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}

// layouts of instants besides numbers and the stamp of access logs; a fraction may follow the
// seconds. One without a zone is of UTC.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05", time.DateTime, "2006/01/02 15:04:05",
}

// instant reads a time: seconds, milliseconds, microseconds or nanoseconds since 1970, or text.
func (p *clfParser) instant(s string, r *record) bool {
	if i := strings.IndexAny(s, "eE"); i > 0 && s[0] >= '0' && s[0] <= '9' {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			s = strconv.FormatFloat(f, 'f', 6, 64)
		}
	}
	whole, part, point := strings.Cut(s, ".")
	isDigits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	if len(whole) >= 10 && isDigits(whole) && isDigits(part) {
		// The unit shows in how many digits stand before the point, from 2001 to 2286.
		digits := (len(whole) - 10) / 3 * 3
		if len(whole) != 10+digits || digits > 9 {
			return false
		}
		if digits > 0 {
			whole, part, point = whole[:10], whole[10:]+part, true
		}
		if point {
			whole += "." + part
		}
		return seconds([]byte(whole), r) && !r.relative
	}
	if t, ok := p.stamp([]byte(strings.Trim(s, "[]") + "]")); ok {
		r.at, r.coarse = t.at, t.coarse
		return true
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1970 && t.Year() <= 2200 {
			r.at, r.coarse = t.UnixNano(), !point
			return true
		}
	}
	return false
}
