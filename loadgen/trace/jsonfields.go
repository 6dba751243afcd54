package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// jsonFields says where an object has what: names in the order in which they are looked for, with dots
// between those of objects in objects.
type jsonFields struct {
	mark string // an object without it is no request: a server's own messages may stand between them

	time, client, host, method, target, status, agent []string

	request []string // a request line
	path    []string // a target, where neither target nor request is there
}

var (
	// nginx has no names of its own: those of its variables, and what many call them.
	nginxFields = jsonFields{
		time:    []string{"msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "time", "date"},
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
			return nil, fmt.Errorf("no field %q: want time, client, host, method, path, request, status or agent", what)
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
	if rest, is := strings.CutPrefix(target, "https://"); is || strings.HasPrefix(target, "http://") {
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

// objectOf is the object that a line is, or ends with behind a prefix.
func objectOf(line []byte) []byte {
	if i := bytes.IndexByte(line, '{'); i > 0 && line[len(line)-1] == '}' && (line[i-1] == ' ' || line[i-1] == '\t' || line[i-1] == ':') {
		return line[i:]
	}
	return line
}

// value is the first of the names that is there: a string, a number, or the first of a list of those.
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

// layouts of instants besides numbers and the stamp of access logs; a fraction may follow the seconds.
// One without a zone is of UTC.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700",
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

// parseALB reads the log of an application load balancer of AWS, or of a classic one, which has no
// type before the time.
func parseALB(line []byte, r *record) string {
	words := quotedWords(line)
	if len(words) > 0 && slices.Contains([]string{"http", "https", "h2", "grpcs", "ws", "wss"}, string(words[0])) {
		words = words[1:]
	} else if len(words) > 0 && !bytes.Contains(words[0], []byte("T")) {
		return SkippedSyntax
	}
	if len(words) < 12 {
		return SkippedSyntax
	}
	if !new(clfParser).instant(string(words[0]), r) {
		return SkippedTime
	}
	host, _ := cutPort(words[2]) // an IPv6 client may stand in no brackets
	if _, ok := parseClient(string(host)); !ok {
		return SkippedClient
	}
	r.client = host
	if n, ok := decimal(words[7]); ok && n >= 100 && n <= 999 {
		r.status = int16(n)
	}
	if _, rest, is := bytes.Cut(words[11], []byte("://")); is {
		r.host, _, _ = bytes.Cut(rest, []byte("/"))
		r.host, _ = cutPort(r.host)
	}
	requestLine(words[11], r)
	if len(words) > 12 && !isDash(words[12]) {
		r.agent = words[12]
	}
	return ""
}

// quotedWords splits a line at blanks that stand in no quotes.
func quotedWords(line []byte) (words [][]byte) {
	for len(line) > 0 {
		if line[0] == ' ' {
			line = line[1:]
			continue
		}
		if line[0] != '"' {
			var word []byte
			word, line, _ = bytes.Cut(line, []byte(" "))
			words = append(words, word)
			continue
		}
		end := 1
		for end < len(line) && line[end] != '"' {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(line))
		words = append(words, line[1:end])
		line = line[min(end+1, len(line)):]
	}
	return words
}

// w3cParser reads logs in W3C's extended format, whose columns "#Fields:" names: IIS writes them with
// blanks, CloudFront with tabs.
type w3cParser struct {
	columns map[string]int
	clf     clfParser
}

func (p *w3cParser) parse(line []byte, r *record) string {
	if line[0] == '#' {
		if names, is := bytes.CutPrefix(line, []byte("#Fields:")); is {
			p.columns = make(map[string]int)
			for i, name := range strings.Fields(string(names)) {
				p.columns[strings.ToLower(name)] = i
			}
		}
		return SkippedComment
	}
	if p.columns == nil {
		return SkippedSyntax
	}
	cells := bytes.Fields(line)
	if bytes.IndexByte(line, '\t') >= 0 {
		cells = bytes.Split(line, []byte("\t"))
	}
	get := func(names ...string) []byte {
		for _, name := range names {
			if i, ok := p.columns[name]; ok && i < len(cells) && !isDash(cells[i]) {
				return cells[i]
			}
		}
		return nil
	}
	if r.client = get("c-ip"); r.client == nil {
		return SkippedSource
	}
	if !p.clf.instant(string(get("date"))+" "+string(get("time")), r) {
		return SkippedTime
	}
	r.host, r.agent = get("x-host-header", "cs-host", "cs(host)"), get("cs(user-agent)")
	if n, ok := decimal(get("sc-status")); ok && n >= 100 && n <= 999 {
		r.status = int16(n)
	}
	if method, stem := get("cs-method"), get("cs-uri-stem"); method != nil && stem != nil {
		target := append([]byte(nil), stem...)
		if query := get("cs-uri-query"); query != nil {
			target = append(append(target, '?'), query...)
		}
		requestLine(append(append(append([]byte(nil), method...), ' '), target...), r)
	}
	return ""
}
