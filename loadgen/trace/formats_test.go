package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each format is found by a file's first lines, and gives the same three requests.
func TestFormats(t *testing.T) {
	noon := time.Date(2021, 3, 15, 12, 0, 0, 0, time.UTC)
	want := []string{
		"250ms 192.0.2.7 GET www.example.org /a?b=c 200 mill/1", "500ms 2001:db8::7 GET www.example.org /a?b=c 200 mill/1",
		"1.5s 192.0.2.7 GET www.example.org /a?b=c 200 mill/1",
	}
	whole := func(s []string) (out []string) { // without host, agent or fractions
		for _, line := range s {
			f := strings.Fields(line)
			out = append(out, strings.Join([]string{f[1], f[2], f[4], f[5]}, " "))
		}
		return out
	}
	type at = time.Time
	iso := func(t at) string { return t.Format("2006-01-02T15:04:05.000Z") }
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	nginx := func(t at, client string) string {
		return fmt.Sprintf(`{"msec": "%d.%03d", "remote_addr": %q, "request": "GET /a?b=c HTTP/2.0", "uri": "/a", "status": "200", "http_host": "www.example.org", "http_user_agent": "mill/1"}`,
			t.Unix(), t.Nanosecond()/1e6, client)
	}
	for _, f := range []struct {
		name, title string
		options     ReadOptions
		line        func(t at, client string) string
	}{
		{"nginx.json", "nginx JSON", ReadOptions{}, nginx},
		{"nginx.jsonl", "nginx JSON", ReadOptions{}, nginx},
		{"nginx-cri.log", "nginx JSON", ReadOptions{}, func(t at, c string) string { return iso(t) + " stdout F " + nginx(t, c) }},
		{"nginx-compose.log", "nginx JSON", ReadOptions{}, func(t at, c string) string { return "\x1b[36mweb-1  | \x1b[0m" + nginx(t, c) }},
		{"nginx-docker.log", "nginx JSON, in JSON of what carried it", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"log":%s,"stream":"stdout","time":"2021-03-15T12:00:07.5Z"}`, quoted(nginx(t, c)+"\n"))
		}},
		{"nginx-iso.log", "nginx JSON", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"time_iso8601":%q,"remote_addr":%q,"request_uri":"/a?b=c","request_method":"GET","status":200,"host":"www.example.org","http_user_agent":"mill/1"}`, iso(t), c)
		}},
		{"caddy.log", "Caddy JSON", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"level":"info","ts":%d.%03d,"msg":"handled request","request":{"remote_ip":"10.0.0.1","client_ip":%q,"method":"GET","host":"www.example.org","uri":"/a?b=c","headers":{"User-Agent":["mill/1"]}},"status":200}`,
				t.Unix(), t.Nanosecond()/1e6, c)
		}},
		{"traefik.log", "Traefik JSON", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"ClientHost":%q,"DownstreamStatus":200,"OriginStatus":0,"RequestHost":"www.example.org","RequestMethod":"GET","RequestPath":"/a?b=c","StartUTC":%q,"request_User-Agent":"mill/1","time":"2021-03-15T12:00:09Z"}`, c, iso(t))
		}},
		{"push.log", "Cloudflare Logpush", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"ClientIP":%q,"ClientRequestHost":"www.example.org","ClientRequestMethod":"GET","ClientRequestURI":"/a?b=c","EdgeResponseStatus":200,"EdgeStartTimestamp":%d,"ClientRequestUserAgent":"mill/1"}`, c, t.UnixNano())
		}},
		{"gcp.log", "Google Cloud JSON", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"timestamp":%q,"httpRequest":{"remoteIp":%q,"requestMethod":"GET","requestUrl":"https://www.example.org/a?b=c","status":200,"userAgent":"mill/1"}}`, iso(t), c)
		}},
		{"own.log", "JSON by --fields", ReadOptions{Fields: map[string]string{"time": "when.ms", "client": "who", "request": "what", "host": "at", "status": "said", "agent": "by"}}, func(t at, c string) string {
			return fmt.Sprintf(`{"when":{"ms":%d},"who":%q,"what":"GET /a?b=c","at":"www.example.org","said":200,"by":"mill/1"}`, t.UnixMilli(), c)
		}},
		{"alb.log", "AWS load balancer", ReadOptions{}, func(t at, c string) string {
			if strings.Contains(c, ":") {
				c = "[" + c + "]"
			}
			return fmt.Sprintf(`h2 %s app/lb/5 %s:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET https://www.example.org:443/a?b=c HTTP/2.0" "mill/1" ECDHE TLSv1.2 arn:x "Root=1" "www.example.org" "-" 1 %s "forward" "-"`, iso(t), c, iso(t))
		}},
		{"npm.log", "Nginx Proxy Manager", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`[%s] - 502 200 - GET https www.example.org "/a?b=c" [Client %s] [Length 3] [Gzip -] [Sent-to app] "mill/1" "-"`, t.Format("02/Jan/2006:15:04:05.000 -0700"), c)
		}},
		{"haproxy.log", "HAProxy HTTP", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`Mar 15 12:00:00 lb haproxy[1]: %s:3 [%s] web app/s1 1/0/3/6/10 200 5 - - ---- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`, c, t.Format("02/Jan/2006:15:04:05.000"))
		}},
		{"docker.log", "access log, in JSON of what carried it", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"log":%s,"stream":"stdout"}`, quoted(c+` - - [`+t.Format("02/Jan/2006:15:04:05.000 -0700")+`] "GET /a?b=c HTTP/1.1" 200 5 "-" "mill/1"`+"\n"))
		}},
		{"journal.json", "access log, in JSON of what carried it", ReadOptions{}, func(t at, c string) string {
			return fmt.Sprintf(`{"__CURSOR":"s","MESSAGE":%s}`, quoted(c+` - - [`+t.Format("02/Jan/2006:15:04:05.000 -0700")+`] "GET /a?b=c HTTP/1.1" 200 5 "-" "mill/1"`))
		}},
		{"cloudfront", "W3C", ReadOptions{}, func(t at, c string) string {
			return strings.Join([]string{t.Format("2006-01-02\t15:04:05"), "FRA1", c, "GET", "x.example", "/a", "200", "-", "mill/1", "b=c", "www.example.org"}, "\t")
		}},
		{"iis.log", "W3C", ReadOptions{Format: "w3c"}, func(t at, c string) string {
			return strings.Join([]string{t.Format(time.DateTime), "FRA1", c, "GET", "x.example", "/a", "200", "-", "mill/1", "b=c", "www.example.org"}, " ")
		}},
	} {
		text := ""
		if f.title == "W3C" {
			text = "#Version: 1.0\n#Fields: date time x-edge-location c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query x-host-header\n"
		}
		lines := strings.Count(text, "\n") + 3
		for i, ms := range []int{250, 500, 1500} {
			text += f.line(noon.Add(time.Duration(ms)*time.Millisecond), []string{"192.0.2.7", "2001:db8::7"}[i%2]) + "\n"
		}
		f.options.Agents = true
		trace, err := Read(f.options, logFile(t, f.name, text))
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		var got []string
		for i, r := range trace.Requests {
			got = append(got, fmt.Sprint(r.At, " ", trace.Addr(i), " ", r.Method, " ", r.Host, " ", r.Path, " ", r.Status, " ", trace.Agent(i)))
		}
		want := want
		switch {
		case f.title == "W3C":
			want = whole(want)
			for i, r := range trace.Requests { // those of a second may come in either order
				got[i] = fmt.Sprint(trace.Addr(i), " ", r.Method, " ", r.Path, " ", r.Status)
			}
			if got[0] == want[1] {
				got[0], got[1] = got[1], got[0]
			}
			if r := trace.Requests[0]; r.Host != "www.example.org" || trace.Agent(0) != "mill/1" || !trace.Coarse {
				t.Errorf("%s: %+v", f.name, r)
			}
		case f.title == "HAProxy HTTP":
			for i := range got {
				got[i] = strings.Replace(got[i], " GET  /", " GET www.example.org /", 1) + "mill/1"
			}
		case strings.HasPrefix(f.title, "access log"):
			for i := range got {
				got[i] = strings.Replace(got[i], " GET  /", " GET www.example.org /", 1)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || !trace.Start.Equal(noon) {
			t.Errorf("%s: from %v: %s", f.name, trace.Start, diff)
		}
		if diff := cmp.Diff([]string{fmt.Sprintf("%s, 3 of %d lines", f.title, lines)}, trace.ReadAs); diff != "" {
			t.Errorf("%s: %s", f.name, diff)
		}
	}
}

// A server's own messages between requests are counted apart, and are no error.
func TestOtherMessages(t *testing.T) {
	const request = `{"ts":1615809600.5,"msg":"handled request","request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/"},"status":200}` + "\n"
	trace, err := Read(ReadOptions{}, logFile(t, "caddy.log", `{"level":"info","ts":1615809600.1,"msg":"serving"}`+"\n"+request+request))
	if err != nil || len(trace.Requests) != 2 || trace.Skipped[SkippedOther] != 1 || trace.ReadAs[0] != "Caddy JSON, 2 of 3 lines" {
		t.Errorf("%+v, %v", trace, err)
	}
}

// What is not read says what it has, and how to say what that is.
func TestUnknownFormats(t *testing.T) {
	f := func(o ReadOptions, text string, want ...string) {
		t.Helper()
		_, err := Read(o, logFile(t, "a.log", text))
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	f(ReadOptions{}, `{"when":1615809600.5,"who":"192.0.2.7"}`+"\n", "none of its 1 lines is a request", "--fields time=…,client=…", "of when, who")
	f(ReadOptions{}, "GET / 192.0.2.7\n", "--format (sluice, log, caddy, ")
	f(ReadOptions{Format: "apache"}, "x\n", `no format "apache": want sluice, log, `)
	f(ReadOptions{Fields: map[string]string{"time": "when"}}, "x\n", "want time and client")
	f(ReadOptions{Fields: map[string]string{"when": "when"}}, "x\n", `no field "when": want time, `)
	f(ReadOptions{Format: "nginx"}, `192.0.2.7 - - [15/Mar/2021:12:00:00 +0000] "GET / HTTP/1.1" 200 1`+"\n", "not of the file's format")
}

func TestInstants(t *testing.T) {
	at := time.Date(2021, 3, 15, 12, 0, 0, 0, time.UTC)
	for _, s := range []string{
		"1615809600", "1615809600.250", "1615809600250", "1615809600250.0", "1615809600250000", "1615809600250000000", "1.61580960025e9",
		"15/Mar/2021:13:00:00 +0100", "[15/Mar/2021:12:00:00.25 +0000]", "2021-03-15T12:00:00Z", "2021-03-15T13:00:00.250+0100",
		"2021-03-15T12:00:00.25", "2021-03-15 12:00:00", "2021/03/15 12:00:00.25", "2021-03-15 13:00:00.250 +0100",
	} {
		var r record
		want := at
		if strings.Contains(s, "25") {
			want = at.Add(250 * time.Millisecond)
		}
		if !new(clfParser).instant(s, &r) || r.at != want.UnixNano() || r.coarse == strings.Contains(s, "25") {
			t.Errorf("%s: %+v", s, r)
		}
	}
	for _, s := range []string{"", "-", "1.5", "161580960", "16158096002", "99999999999999999999", "noon", "1e400", "2021-03-15", "12:00:00"} {
		if r := new(record); new(clfParser).instant(s, r) {
			t.Errorf("%s: %+v", s, r)
		}
	}
}

// IPv6 clients of a load balancer come in brackets and without.
func TestALBClients(t *testing.T) {
	for client, want := range map[string]string{"192.0.2.7:1": "192.0.2.7", "2001:db8::7:4433": "2001:db8::7", "[2001:db8::7]:1": "2001:db8::7"} {
		trace, err := Read(ReadOptions{}, logFile(t, "elb.log", "2021-03-15T12:00:00.5Z lb "+client+` 10.0.0.1:80 0.1 0.1 0.1 404 404 0 29 "GET http://a.example:80/x HTTP/1.1" "mill 1" - -`+"\n"))
		if err != nil || trace.Sources[0].Name != want || trace.Requests[0].Status != 404 || trace.Requests[0].Path != "/x" || trace.Requests[0].Host != "a.example" {
			t.Errorf("%s: %+v, %v", client, trace, err)
		}
	}
}

func FuzzFormats(f *testing.F) {
	f.Add([]byte(`{"remote_addr":"192.0.2.7","msec":"1615809600.5","request":"GET / HTTP/1.1","request_uri":"http://x"}`))
	f.Add([]byte(`h2 2021-03-15T12:00:00Z a 192.0.2.7:1 - 0 0 0 200 200 1 1 "GET https://a/ HTTP/2.0" "x`))
	f.Add([]byte("#Fields: date time c-ip cs-method cs-uri-stem"))
	f.Add([]byte(`{"log":"x [","MESSAGE":1}`))
	f.Fuzz(func(_ *testing.T, line []byte) {
		if len(line) == 0 {
			return
		}
		for _, format := range known {
			parse := format.make(&ReadOptions{})
			parse(line, new(record))
			unwrapped(parse)(line, new(record))
		}
		p := new(w3cParser)
		p.parse([]byte("#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query"), new(record))
		p.parse(line, new(record))
	})
}
