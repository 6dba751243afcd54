package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sluice/edge/changes"
	"sluice/edge/rules"
	"sluice/edge/rules/rulestest"
)

var now = time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)

// An edge answers each request, written "METHOD path?query body", with what stands behind it; all else it does not have.
type edge map[string]string

func (e edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	answer, known := e[strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body))]
	switch {
	case !known:
		http.NotFound(w, r)
	case strings.HasPrefix(answer, "{") || strings.HasPrefix(answer, "["):
		w.Header().Set("Content-Type", "application/json")
		if status, text, ok := strings.Cut(answer, "\n"); ok && strings.HasPrefix(status, `{"error"`) {
			w.WriteHeader(http.StatusNotFound)
			answer = status + text
		}
		_, _ = io.WriteString(w, answer)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if answer != "ready" && r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, answer)
	}
}

// ask runs do against an edge, and returns what was printed and the error as text.
func ask(t *testing.T, e edge, do func(*Client) error) (printed, failed string) {
	t.Helper()
	s := httptest.NewServer(e)
	defer s.Close()
	var out bytes.Buffer
	err := do(&Client{Address: s.Listener.Addr().String(), Now: now, Out: &out})
	if err != nil {
		failed = strings.ReplaceAll(err.Error(), s.Listener.Addr().String(), "EDGE")
	}
	return strings.ReplaceAll(out.String(), s.Listener.Addr().String(), "EDGE"), failed
}

func blockedAll(c *Client) error { return c.Blocked(Filter{}) }

// Of what is different once a change is made, what it does not name is not said to be its doing; and what does not stand was not so already.
func TestChangeAmongOthers(t *testing.T) {
	set := func(c *Client) error { return c.SetRule("login", map[string]any{"mitigation_timeout": "5m"}) }
	looked := map[string]string{"GET /v1/rules/login": `{"name":"login","limit":5,"mitigation_timeout":"1m"}`}
	for answer, want := range map[string]string{
		`{"name":"login","limit":9,"mitigation_timeout":"5m"}`:                                                                      "rule login is changed\n  mitigation_timeout 1m → 5m\nin force on this edge\nsomebody else has changed meanwhile: limit 5 → 9\n",
		`{"name":"login","limit":5,"mitigation_timeout":"1m"}`:                                                                      "rule login is so already\nin force on this edge\n",
		`{"name":"login","limit":5,"mitigation_timeout":"1m","overtaken":[{"field":"mitigation_timeout"}],"warnings":["it is 1m"]}`: "rule login is changed, but not all as you said\nin force on this edge\nbut: it is 1m\n",
	} {
		e := edge{`PATCH /v1/rules/login {"mitigation_timeout":"5m"}`: answer}
		maps.Copy(e, looked)
		if got, failed := ask(t, e, set); got != want || failed != "" {
			t.Errorf("%s:\n got %q, %s\nwant %q", answer, got, failed, want)
		}
	}
}

// A rule is changed as it was when it was looked at: its tag goes along, and who comes second is told so.
func TestRuleThatSomebodyElseChanges(t *testing.T) {
	const tag = `"1-000000000001"`
	current, now, looks := tag, `{"name":"login","limit":5}`, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch got := r.Header.Get("If-Match"); {
		case strings.HasSuffix(r.URL.Path, "/history"):
			_, _ = io.WriteString(w, `[{"version":2,"who":"bob","edge":"web2","in_force":true}]`)
		case r.Method == http.MethodGet && got == "":
			if looks++; looks == 1 {
				w.Header().Set("ETag", tag)
				_, _ = io.WriteString(w, `{"name":"login","limit":5}`)
				return
			}
			w.Header().Set("ETag", current)
			_, _ = io.WriteString(w, now)
		case got == current:
			_, _ = io.WriteString(w, `{"name":"login","limit":7,"version":2,"origin":"pop","edges":{"known":3,"have":2,"missing":["web3"]},"warnings":["a","b"]}`)
		default:
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = io.WriteString(w, `{"error":{"message":"another"}}`)
		}
	}))
	defer s.Close()
	var out bytes.Buffer
	c := &Client{Address: s.Listener.Addr().String(), Out: &out}
	set := func() error { return c.SetRule("login", map[string]any{"limit": 7}) }
	if err := set(); err != nil || out.String() != "rule login is changed\n  limit 5 → 7\nin force on 2 of the 3 edges of the PoP, and not yet on web3: there as soon as it can be reached\nbut: a\nbut: b\n" {
		t.Errorf("%v %s", err, &out)
	}
	// Somebody else has changed another field: then it is said again, over that.
	current, now = `"2-000000000002"`, `{"name":"login","limit":5,"window":"2m"}`
	looks = 0
	if err := set(); err != nil || looks != 2 {
		t.Errorf("%v after %d looks", err, looks)
	}
	// The same field: then nothing is changed, and it is told whose value stands.
	now, looks = `{"name":"login","limit":9}`, 0
	if err := set(); err == nil || !strings.Contains(err.Error(), "limit 5 → 9, by bob at web2; look at it") {
		t.Errorf("%v", err)
	}
}

func TestAnswers(t *testing.T) {
	block := func(source, rule string) func(*Client) error {
		return func(c *Client) error { return c.Block(source, rule, 10*time.Minute, "why") }
	}
	body := ` {"for":"10m0s","reason":"why"}`
	inForce := `{"rule":"*","source":"198.51.100.0/24","end":"` + now.Add(10*time.Minute).Format(time.RFC3339) + `","by":"admin"`
	for _, test := range []struct {
		name   string
		edge   edge
		do     func(*Client) error
		prints string
		fails  string
	}{
		{"a prefix under all rules", edge{"PUT /v1/mitigations/%2A/198.51.100.0/24" + body: inForce + `,"edges":{"known":3,"have":3,"missing":[]}}`}, block("198.51.100.0/24", "*"),
			"198.51.100.0/24 is blocked under every rule until 2026-05-04 14:10:00Z (10m)\nin force on all 3 edges of the PoP\n", ""},
		{"an edge is missing", edge{"PUT /v1/mitigations/%2A/198.51.100.0/24" + body: inForce + `,"edges":{"known":3,"have":2,"missing":["web2"]}}`}, block("198.51.100.0/24", "*"),
			"198.51.100.0/24 is blocked under every rule until 2026-05-04 14:10:00Z (10m)\nin force on 2 of the 3 edges of the PoP, and not yet on web2: there as soon as it can be reached\n", ""},
		{"edges of several PoPs", edge{"PUT /v1/mitigations/%2A/198.51.100.0/24" + body: inForce + `,"edges":{"known":2,"have":2,"missing":[],"pops":2}}`}, block("198.51.100.0/24", "*"),
			"198.51.100.0/24 is blocked under every rule until 2026-05-04 14:10:00Z (10m)\nin force on all 2 edges of 2 PoPs\n", ""},
		{"a warning", edge{"PUT /v1/mitigations/%2A/198.51.100.0/24" + body: inForce + `,"edges":{"known":1,"have":1},"warning":"it is on the list of the allowed\u001b[2J"}`}, block("198.51.100.0/24", "*"),
			"198.51.100.0/24 is blocked under every rule until 2026-05-04 14:10:00Z (10m)\nin force on the only edge of the PoP\nbut: it is on the list of the allowed·[2J\n", ""},
		{"no word for all rules", edge{"PUT /v1/mitigations/%2A/192.0.2.7" + body: `{"error":{"message":"edge: no such rule: *"}` + "\n}"}, block("192.0.2.7", "*"),
			"", "this edge does not have it: blocks under all rules at once; name one with --rule NAME (sluice rules lists them)"},
		{"a key", edge{"DELETE /v1/mitigations/a%2Fb/%230123456789abcdef0123456789abcdef": `{"lifted":true,"edges":{"known":2,"have":2}}`},
			func(c *Client) error { return c.Unblock("#0123456789abcdef0123456789abcdef", "a/b") },
			"#0123456789abcdef0123456789abcdef is lifted under rule a/b; it starts afresh\nin force on all 2 edges of the PoP\n", ""},
		{"configuration", edge{"GET /v1/config": `{"rules":[{"name":"login","limit":5,"from":"file"}],"listen":":8080"}`}, (*Client).Config,
			"rules:\n- name: login\n  limit: 5\n  from: file\nlisten: :8080\n", ""},
		{"what waits for a restart", edge{"GET /v1/config": `{"admin":":1","limits":{"idle_timeout":"1m0s","memory":1},"listen":":8080","pop":{"memcached":["a:1"]},
			"waiting":[{"field":"listen","runs":":8080","file":":9090"},{"field":"limits.idle_timeout","runs":"1m0s","file":"2m0s"},{"field":"pop.memcached","runs":["a:1"],"file":[]}]}`}, (*Client).Config,
			"admin: :1\nlimits:\n  idle_timeout: 1m0s  # the file says 2m0s: after a restart\n  memory: 1\nlisten: :8080  # the file says :9090: after a restart\npop:\n  memcached:  # the file says []: after a restart\n  - a:1\n", ""},
		{"no configuration", edge{}, (*Client).Config,
			"", "this edge does not have it: EDGE answers GET /v1/config with 404; if that is the operators' listener of an edge, the edge is of another version than this command"},
		{"blocks", edge{"GET /v1/mitigations?n=1000": `[
			{"rule":"login","source":"192.0.2.1","mode":"enforce","action":"tag","start":"2026-05-04T14:00:00Z","end":"` + now.Add(90*time.Second).Format(time.RFC3339) + `","by":"edge"},
			{"rule":"login","source":"192.0.2.2","mode":"shadow","end":"` + now.Add(26*time.Hour).Format(time.RFC3339) + `","by":"pop"},
			{"rule":"*","source":"198.51.100.0/24","mode":"enforce","action":"refuse","end":"` + now.Add(59*time.Second).Format(time.RFC3339) + `","by":"admin","reason":"scraper\u001b[2J\n` + strings.Repeat("x", 200) + `"}]`}, blockedAll,
			"SOURCE           RULE   MODE     ACTION  BY     UNTIL                  LEFT  REASON\n" +
				"198.51.100.0/24  *      enforce  refuse  admin  2026-05-04 14:00:59Z    59s  scraper·[2J·" + strings.Repeat("x", 200) + "\n" +
				"192.0.2.2        login  shadow           pop    2026-05-05 16:00:00Z    26h\n" +
				"192.0.2.1        login  enforce  tag     edge   2026-05-04 14:01:30Z  1m30s\n", ""},
		{"blocks, one of them in the kernel", edge{"GET /v1/mitigations?n=1000": `[
			{"rule":"all","source":"192.0.2.1","mode":"enforce","action":"refuse","end":"` + now.Add(90*time.Second).Format(time.RFC3339) + `","by":"edge","kernel":{"since":"2026-05-04T14:00:00Z","attempts":7}},
			{"rule":"all","source":"192.0.2.2","mode":"enforce","action":"refuse","end":"` + now.Add(80*time.Second).Format(time.RFC3339) + `","by":"edge"},
			{"rule":"all","source":"192.0.2.3","mode":"enforce","action":"tag","end":"` + now.Add(70*time.Second).Format(time.RFC3339) + `","by":"edge"},
			{"rule":"try","source":"192.0.2.1","mode":"shadow","action":"refuse","end":"` + now.Add(60*time.Second).Format(time.RFC3339) + `","by":"edge"}]`}, blockedAll,
			"SOURCE     RULE  MODE     ACTION  WHERE   BY    UNTIL                  LEFT\n" +
				"192.0.2.1  all   enforce  refuse  kernel  edge  2026-05-04 14:01:30Z  1m30s\n" +
				"192.0.2.2  all   enforce  refuse  edge    edge  2026-05-04 14:01:20Z  1m20s\n" +
				"192.0.2.3  all   enforce  tag             edge  2026-05-04 14:01:10Z  1m10s\n" +
				"192.0.2.1  try   shadow   refuse          edge  2026-05-04 14:01:00Z     1m\n", ""},
		{"as many as are shown", edge{"GET /v1/mitigations?n=1000": "[{}" + strings.Repeat(",{}", 999) + "]"}, func(c *Client) error {
			out := c.Out
			c.Out = new(bytes.Buffer)
			err := blockedAll(c)
			_, after, _ := strings.Cut(c.Out.(*bytes.Buffer).String(), "these")
			_, _ = io.WriteString(out, after)
			return err
		}, " are 1,000; there may be more: sluice status counts them, GET /v1/mitigations lists them\n", ""},
		{"nobody", edge{"GET /v1/mitigations?n=1000": `[]`}, blockedAll, "nobody is blocked\n", ""},
		{"nobody that is known yet", edge{"GET /v1/mitigations?n=1000": `[]`, "GET /v1/status": `{"learning_until":"` + now.Format(time.RFC3339) + `"}`}, blockedAll,
			"nobody is blocked\nas far as this edge knows: until 2026-05-04 14:00:00Z there may be others, whom its neighbours had blocked before it started\n", ""},
		{"learning, alone, and with a peer away", edge{"GET /readyz": "ready", "GET /v1/pop": `{"name":"fra1","edges":[{"id":"5"}],"nodes":[{"address":"10.0.0.9:11211"}]}`, "GET /metrics": "",
			"GET /v1/status": `{"alone":"no node answers","learning_until":"` + now.Format(time.RFC3339) + `","peers":[{"name":"ams1","up":true},{"name":"lon1","up":false}]}`},
			func(c *Client) error {
				out := c.Out
				c.Out = new(bytes.Buffer)
				err := c.Status()
				for line := range strings.Lines(c.Out.(*bytes.Buffer).String()) {
					if strings.HasPrefix(line, "p") {
						_, _ = io.WriteString(out, line)
					}
				}
				return err
			}, "pop       fra1, 1 edge\npop       this edge counts alone: no node answers\n" +
				"pop       until 2026-05-04 14:00:00Z this edge may not know of every block from before it started: nobody can be asked now\n" +
				"peers     1 of 2 away, which take no blocks from here: lon1\n", ""},
		{"top", edge{"GET /v1/top?by=shadow&n=2": `[{"source":"192.0.2.1","count":1234567,"error":0},{"source":"2001:db8::/64","count":1200,"error":34}]`},
			func(c *Client) error { return c.Top("shadow", 2, false) },
			"SOURCE            SHADOW  AT LEAST\n192.0.2.1      1,234,567\n2001:db8::/64      1,200     1,166\n", ""},
		{"events since a while", edge{"GET /v1/events?since=" + strings.ReplaceAll(now.Add(-time.Minute).UTC().Format(time.RFC3339Nano), ":", "%3A"): `[
			{"number":8,"time":"` + now.Format(time.RFC3339) + `","kind":"block","text":"blocked by this edge: 9 requests in 1m, 8 are allowed (shadow: nobody is refused)","rule":"login","source":"192.0.2.1","skipped":1234},
			{"number":7,"time":"` + now.Add(-time.Second).Format(time.RFC3339) + `","kind":"operator","text":"lifted","who":"ada","from":"127.0.0.1:1"}]`},
			func(c *Client) error { return c.Events("1m", false) },
			"TIME                  KIND      RULE   SOURCE     WHO  WHAT\n" +
				"2026-05-04 13:59:59Z  operator                    ada  lifted\n" +
				"2026-05-04 14:00:00Z  block     login  192.0.2.1       blocked by this edge: 9 requests in 1m, 8 are allowed (shadow: nobody is refused) (and 1,234 more before it)\n", ""},
		{"status over etcd", edge{"GET /readyz": "ready", "GET /v1/pop": `{"name":"fra1","etcd":{"up":true,"wrong":{"login":"no"},"edges":[{"pop":"fra1","config_hash":1},{"pop":"ams1","config_hash":1},{"pop":"ams1","config_hash":2}]}}`}, (*Client).Status,
			"edge      EDGE, ready\nrules     none: nobody is limited\nrequests  EDGE does not tell: 404 to GET /metrics\npop       none: this edge counts alone\n" +
				"etcd      up, 3 edges of 2 PoPs, 1 of them with other rules than this one; what it has of rule login cannot be read\n", ""},
		{"status with etcd away", edge{"GET /readyz": "ready", "GET /v1/pop": `{"name":"fra1","etcd":{"up":false,"since":"` + now.Format(time.RFC3339) + `","error":"it hangs","edges":[{"pop":"fra1","config_hash":1}]}}`}, (*Client).Status,
			"edge      EDGE, ready\nrules     none: nobody is limited\nrequests  EDGE does not tell: 404 to GET /metrics\npop       none: this edge counts alone\n" +
				"etcd      away since 2026-05-04 14:00:00Z, rules stay as they are and cannot be changed: it hangs\n", ""},
		{"status", edge{"GET /readyz": "ready", "GET /v1/rules": `[{"name":"a","mode":"enforce"},{"name":"b","mode":"off"},{"name":"c","mode":"enforce"}]`,
			"GET /v1/pop": `{"name":"fra1","edges":[{"id":"5","name":"web2","refused":2},{"id":"web1","address":"10.0.0.1:8080","version":"1.0","generation":7,"config_hash":12345678901234567890,"since":"` + now.Format(time.RFC3339) + `"}],
				"nodes":[{"address":"10.0.0.9:11211","up":true,"joining":true},{"address":"10.0.0.8:11211","up":false}]}`,
			"GET /metrics": "# HELP sluice_received_total x\nsluice_received_total 12345\nsluice_http2_requests_total 45\nsluice_received_total_other 9\nsluice_answers_total{code=\"429\",from=\"limit\"} 5\nsluice_answers_total{code=\"503\",from=\"limit\"} 1\n" +
				"sluice_answers_total{code=\"200\",from=\"origin\"} 7\nsluice_shed_total{hosts=\"*\",priority=\"sheddable\"} 3\nsluice_build_info{commit=\"abc\",version=\"1.2\"} 1\nprocess_start_time_seconds " + "1.777e+09\n"}, (*Client).Status,
			"edge      EDGE, ready\nversion   1.2\nup        " + Span(now.Sub(time.Unix(1777000000, 0))) + "\nrules     2 enforce, 1 off\nrequests  12,345 received (45 by HTTP/2), 6 refused by a limit, 3 shed to spare an origin, 0 to origins\nblocked   0 now\npop       fra1, 2 edges\n\n" +
				"EDGE  ADDRESS        VERSION  GENERATION                CONFIG  SINCE                 REFUSED\n" +
				"web2                                   0                     0                              2\n" +
				"web1  10.0.0.1:8080  1.0               7  12345678901234567890  2026-05-04 14:00:00Z\n\n" +
				"NODE            STATE\n10.0.0.9:11211  up, joining\n10.0.0.8:11211  down\n", ""},
		{"certificates", edge{"GET /readyz": "ready", "GET /v1/rules": `[]`, "GET /v1/nodes": `[]`, "GET /metrics": fmt.Sprintf("sluice_certificate_expiry_timestamp_seconds{listener=\"listen_tls\"} %d\n"+
			"sluice_certificate_expiry_timestamp_seconds{listener=\"rate_limit_service\"} %d\nsluice_certificate_read_failures_total{listener=\"listen_tls\"} 3\n", now.Add(-time.Hour).Unix(), now.Add(77*time.Hour).Unix())}, (*Client).Status,
			"edge      EDGE, ready\ncert      listen_tls: EXPIRED on " + Clock(now.Add(-time.Hour)) + "; 3 looks at the listener's files since the start found them wrong or away\n" +
				"cert      rate_limit_service: EXPIRES SOON, in 3 days, on " + Clock(now.Add(77*time.Hour)) +
				"\nrules     none: nobody is limited\nrequests  0 received, 0 refused by a limit, 0 to origins\nblocked   0 now\npop       none: this edge counts alone\n", ""},
		{"draining", edge{"GET /readyz": "draining\n", "GET /v1/rules": `[]`, "GET /v1/nodes": `[]`, "GET /metrics": ""}, (*Client).Status,
			"edge      EDGE, draining\nrules     none: nobody is limited\nrequests  0 received, 0 refused by a limit, 0 to origins\nblocked   0 now\npop       none: this edge counts alone\n", "the edge is not ready: draining"},
		{"no metrics", edge{"GET /readyz": "ready", "GET /v1/rules": `[]`, "GET /v1/nodes": `[]`}, (*Client).Status,
			"edge      EDGE, ready\nrules     none: nobody is limited\nrequests  EDGE does not tell: 404 to GET /metrics\npop       none: this edge counts alone\n", ""},
		{"waiting in vain", edge{"GET /readyz": "draining\n"}, func(c *Client) error { return c.WaitReady(time.Millisecond) }, "", "the edge is not ready after 1ms: draining"},
		{"rules for a part of the sources", edge{"GET /v1/rules": `[{"name":"a","mode":"enforce","limit":1000,"window":"1m","mitigation_timeout":"1m","key":["source"],"share":100},
			{"name":"b","mode":"enforce","limit":5,"window":"1m","mitigation_timeout":"0s","key":["source"],"match":{"path":"/b"},"share":25}]`}, (*Client).Rules,
			"RULE  MODE     LIMIT        THEN BLOCKED   BY      MATCHES\n" +
				"a     enforce  1,000 in 1m  for 1m         source  everything\n" +
				"b     enforce  5 in 1m      no: throttled  source  /b, of 25 % of sources\n", ""},
		{"rules that do more", edge{"GET /v1/rules": `[
			{"name":"a","mode":"enforce","limit":120,"window":"1m","mitigation_timeout":"0s","key":["source"],"algorithm":"token_bucket","burst":20,"action":"delay","cost":1},
			{"name":"b","mode":"enforce","limit":5,"window":"1m","mitigation_timeout":"10m","escalate":["1h","24h"],"key":["source"],"cost":20,"check":"sync","on_store_failure":"closed","first_sight":"go"},
			{"name":"c","mode":"enforce","limit":5,"window":"1m","mitigation_timeout":"1m","key":["source"],"action":"tag","cost":{"bytes":10240},"estimate":"lower","first_sight":"wait"},
			{"name":"d","mode":"enforce","limit":60,"window":"1m","mitigation_timeout":"0s","key":["header:k"],"plans":{"pro":{"limit":1000},"free":{"limit":60}},"match":{"not":{"plans":["trial"]}},"cost":{"header":"X-Cost"}},
			{"name":"e","mode":"enforce","limit":60,"window":"1m","mitigation_timeout":"0s","key":["source"],"match":{"descriptors":{"domain":"web","entries":[{"key":"path","value":"/login*"},{"key":"user"}]}}},
			{"name":"f","mode":"enforce","limit":60,"window":"1m","mitigation_timeout":"0s","key":["source"],"match":{"not":{"asns":[64500]},"asns":[9,4294967295],"countries":["DE","FR"],"later":{"a":[1]}}}]`}, (*Client).Rules,
			"RULE  MODE     LIMIT      THEN BLOCKED   BY        MATCHES\n" +
				"a     enforce  120 in 1m  no: throttled  source    everything, token_bucket, burst 20, action delay\n" +
				"b     enforce  5 in 1m    for 10m        source    everything, cost 20, check sync, on store failure closed, repeat blocks 1h, 24h\n" +
				"c     enforce  5 in 1m    tagged for 1m  source    everything, action tag, cost 1 for each 10,240 bytes, first sight wait, estimate lower\n" +
				"d     enforce  60 in 1m   no: throttled  header:k  not on plan trial, cost by X-Cost, plans free 60, pro 1,000\n" +
				"e     enforce  60 in 1m   no: throttled  source    descriptor web path=/login* user\n" +
				"f     enforce  60 in 1m   no: throttled  source    asns 9 or 4294967295 countries DE or FR not asns 64500\n", ""},
		{"not an edge", edge{"GET /v1/rules": "<html>"}, (*Client).Rules, "", "what answers at EDGE is not the operators' listener of an edge (200 to GET /v1/rules): name that with --admin ADDR"},
		{"no list", edge{"GET /v1/rules": `{"rules":[]}`}, (*Client).Rules, "",
			"the answer of EDGE is not understood (json: cannot unmarshal object into Go value of type []operator.rule): --json shows it as it is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if printed, failed := ask(t, test.edge, test.do); printed != test.prints || failed != test.fails {
				t.Errorf("printed\n%swant\n%s\nfailed %s\n  want %s", printed, test.prints, failed, test.fails)
			}
		})
	}
}

// No table is wider than a hundred columns, whatever it holds, but for the text at its end: that is whole, and so are sources.
func TestTablesFit(t *testing.T) {
	long := strings.Repeat("long-rule-name-", 4)
	digest := "#0123456789abcdef0123456789abcdef"
	e := edge{
		"GET /v1/mitigations?n=1000": `[{"rule":"` + long + `","source":"` + digest + `","mode":"shadow","end":"2027-01-01T00:00:00Z","by":"admin","reason":"` + long + `"}]`,
		"GET /v1/rules": `[{"name":"` + long + `","mode":"shadow","limit":1000000000,"window":"1h30m20s","mitigation_timeout":"23h30m20s","key":["` + long + `","source"],
			"count":{"statuses":[401,402,403,404,405,406,407,408]},"match":{"hosts":["` + long + `"],"methods":["POST"],"path":"/` + long + `"}}]`,
		"GET /v1/events": `[{"number":1234567,"time":"2027-01-01T00:00:00Z","kind":"certificate","text":"` + long + `","rule":"` + long + `","source":"` + digest + `","who":"` + long + `"}]`,
	}
	for name, do := range map[string]func(*Client) error{"blocked": blockedAll, "rules": (*Client).Rules, "events": func(c *Client) error { return c.Events("", false) }} {
		printed, failed := ask(t, e, do)
		if failed != "" {
			t.Errorf("%s: %s", name, failed)
		}
		end := map[string]string{"blocked": long, "events": long, "rules": "POST " + long + " /" + long}[name]
		if !strings.HasSuffix(printed, "  "+end+"\n") {
			t.Errorf("%s: the text is not whole: %s", name, printed)
		}
		for line := range strings.Lines(printed) {
			line = strings.TrimSuffix(line, end+"\n")
			if n := utf8.RuneCountInString(line); n > 100 || n < 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if name != "rules" && !strings.Contains(printed, digest) {
			t.Errorf("%s: the source is not whole: %s", name, printed)
		}
	}
}

// What listens on all addresses, or on a Unix socket, is found.
func TestWhereToAsk(t *testing.T) {
	for address, want := range map[string]string{
		":8081": "tcp 127.0.0.1:8081", "0.0.0.0:8081": "tcp 127.0.0.1:8081", "[::]:8081": "tcp [::1]:8081",
		"10.0.0.1:8081": "tcp 10.0.0.1:8081", "edge.example:1": "tcp edge.example:1", "unix:/run/a": "unix /run/a",
	} {
		if network, to := dialed(address); network+" "+to != want {
			t.Errorf("%s: %s %s, want %s", address, network, to, want)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: edge{"GET /readyz": "ready"}}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	if err := (&Client{Address: "unix:" + path, Out: os.Stdout}).WaitReady(time.Second); err != nil {
		t.Error(err)
	}
}

// The token and the operator's name go along, and nothing follows a redirect, which could take them elsewhere.
func TestWhatIsSent(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Operator"))
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	err := (&Client{Address: s.Listener.Addr().String(), Token: "t", Who: "ada"}).Rules()
	if err == nil || errors.Is(err, errAbsent) || len(got) != 1 || got[0] != "/v1/rules Bearer t ada" {
		t.Errorf("%v %q", err, got)
	}
}

// sluice rules shows each field of a rule, but for those that say nothing alone, and the answer of a refusal.
func TestRulesShowEveryField(t *testing.T) {
	unshown := map[string]string{"sub_windows": "", "escalate_within": "", "response": "", "tag": ""}
	shown := map[string]bool{}
	of := reflect.TypeFor[rule]()
	for i := range of.NumField() {
		name, ok := of.Field(i).Tag.Lookup("json")
		if !ok {
			name = strings.ToLower(of.Field(i).Name)
		}
		shown[name] = true
	}
	of = reflect.TypeFor[rules.Config]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if _, not := unshown[name]; !not && !shown[name] && name != "" && name != "-" {
			t.Errorf("sluice rules does not show %s", name)
		}
	}
	for name, write := range rulestest.Written {
		var c rules.Config
		if write(&c); strings.HasPrefix(name, "Match.") && (rule{Match: c.Match}).matches(nil) == "everything" {
			t.Errorf("sluice rules does not show %s", name)
		}
		text, err := json.Marshal(map[string]any{"match": c.Match})
		if err != nil {
			t.Fatal(err)
		}
		var got rule
		if err := json.Unmarshal(text, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got, want := got.matches(nil), (rule{Match: c.Match}).matches(nil); got != want {
			t.Errorf("%s as an edge shows it: %s, want %s", name, got, want)
		}
	}
}

// The oldest version that is kept has no old rule beside it, and was not added for that.
func TestHistoryEnds(t *testing.T) {
	rule := json.RawMessage(`{"name":"login"}`)
	list := []changes.Past{{Version: 9, New: rule, After: 8}, {Version: 8, After: 7}, {Version: 7, New: rule, After: 6}, {Version: 5, New: rule}}
	for i, want := range []string{"added", "removed", "what it replaced is not kept any more", "added"} {
		if got := what(&list[i], list); got != want {
			t.Errorf("version %d: %q, want %q", list[i].Version, got, want)
		}
	}
}
