package maintenance_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/modules/maintenance"
)

// While it is on, all but those that it spares get 503, and nothing goes to the origin; afterwards all is as before.
func TestMaintenance(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.StartUsing(t, o.URL(), "source: {trust: [127.0.0.1]}\nallow: [192.0.2.8]\n"+
		"rules: [{name: r, limit: 100}]\n", maintenance.Module())
	from := func(client string) (*http.Response, string) { return e.Get("/", "X-Forwarded-For: "+client) }
	now, by := time.Now(), control.Operator{Who: "anna"}
	if m, err := maintenance.End(e.Admin, by, now); err != nil || m.Changed || m.On {
		t.Errorf("off while off: %+v %v", m, err)
	}
	m, err := maintenance.Start(e.Admin, 2*time.Hour, []string{"10.0.0.0/8", "2001:db8::/32"}, `Moving "house"`, by, now)
	if err != nil || !m.On || m.Warning != "this edge counts alone: it forgets that when it restarts" || m.Open() || m.Message != `Moving "house"` || len(m.Allow) != 2 {
		t.Fatalf("%+v %v", m, err)
	}
	for _, client := range []string{"192.0.2.7", "192.0.2.8", "2001:db9::1"} { // of them one that is never limited
		resp, body := from(client)
		if h := resp.Header; resp.StatusCode != 503 || h.Get("Retry-After") != "600" || h.Get("Cache-Control") != "no-store" || h.Get("X-Request-Id") == "" ||
			body != `{"error":{"code":"maintenance","message":"Moving \"house\""}}`+"\n" {
			t.Errorf("%s: %d %v %s", client, resp.StatusCode, h, body)
		}
	}
	for _, client := range []string{"10.1.2.3", "2001:db8::1"} {
		if resp, _ := from(client); resp.StatusCode != 200 {
			t.Errorf("%s: %d", client, resp.StatusCode)
		}
	}
	if n := len(o.Requests()); n != 2 {
		t.Errorf("%d requests at the origin", n)
	}
	if n := e.Metrics()["sluice_requests_total{rule=,verdict=maintenance}"]; n != 3 {
		t.Errorf("%v of maintenance", n)
	}
	if list := e.Mitigations(time.Now()); len(list) != 0 {
		t.Errorf("it is no block: %+v", list)
	}
	if o := e.Overview(9, nil, time.Now()); o.Blocked.InForce != 0 || len(o.Blocked.List) != 0 || len(o.Denied) != 0 {
		t.Errorf("it is no block: %+v", o)
	}
	// A second order is in the place of the first, all of it.
	if m, err = maintenance.Start(e.Admin, 0, nil, "", by, time.Now()); err != nil || !strings.HasPrefix(m.Warning, "it was on already, since ") || !m.Open() || len(m.Allow) != 0 {
		t.Errorf("%+v %v", m, err)
	}
	if resp, body := from("10.1.2.3"); resp.StatusCode != 503 || !strings.Contains(body, "closed for maintenance") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if m, err = maintenance.End(e.Admin, by, time.Now()); err != nil || !m.Changed || m.On {
		t.Errorf("%+v %v", m, err)
	}
	if resp, _ := from("192.0.2.7"); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
	for _, bad := range []struct {
		d     time.Duration
		allow string
		text  string
		want  string
	}{
		{time.Hour, "10.0.0.0/33", "", `edge: allow: "10.0.0.0/33" is no prefix`},
		{time.Hour, "0.0.0.0/0", "", "edge: 0.0.0.0/0 is too wide"},
		{-1, "10.0.0.0/8", "", "edge: for "},
		{31 * 24 * time.Hour, "10.0.0.0/8", "", "edge: for "},
		{time.Hour, "10.0.0.0/8", "two\nlines", "edge: message: want one line"},
		{time.Hour, "10.0.0.0/8", strings.Repeat("x", 256), "edge: allow and message have 267 bytes together"},
	} {
		if _, err := maintenance.Start(e.Admin, bad.d, []string{bad.allow}, bad.text, by, time.Now()); err == nil || !strings.HasPrefix(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// It ends by itself.
func TestMaintenanceEnds(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.WithoutRules(t, "http://127.0.0.1:1"))
	now := time.Now()
	if _, err := maintenance.Start(s.Admin, time.Hour, nil, "", control.Operator{}, now.Add(-30*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if m := maintenance.Now(s.Admin, now.Add(29*time.Minute)); !m.On {
		t.Error("it has ended")
	}
	if m := maintenance.Now(s.Admin, now.Add(31*time.Minute)); m.On {
		t.Errorf("it has not: %+v", m)
	}
}

// The process that an upgrade starts takes it over, as it was.
func TestMaintenanceOutlivesUpgrade(t *testing.T) {
	older, newer := edgetest.NewServer(t, edgetest.WithoutRules(t, "http://127.0.0.1:1")), edgetest.NewServer(t, edgetest.WithoutRules(t, "http://127.0.0.1:1"))
	now := time.Now()
	was, err := maintenance.Start(older.Admin, time.Hour, []string{"10.0.0.0/8"}, "Moving house", control.Operator{}, now)
	if err != nil {
		t.Fatal(err)
	}
	for m := range older.InForce(now) {
		newer.Adopt(m, now)
	}
	is := maintenance.Now(newer.Admin, now)
	if !is.On || !is.Until.Equal(was.Until) || is.Message != was.Message || !slices.Equal(is.Allow, was.Allow) {
		t.Errorf("%+v, and it was %+v", is, was)
	}
	if m, err := maintenance.End(newer.Admin, control.Operator{}, now); err != nil || !m.Changed || m.On {
		t.Errorf("%+v %v", m, err)
	}
}

// Requests that come while a configuration comes into force are answered as before.
func TestReloadMeanwhile(t *testing.T) {
	const yaml = "rules: [{name: r, limit: 100000}]"
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), yaml,
		maintenance.Module())
	reloaded := make(chan error)
	go func() {
		defer close(reloaded)
		for range 5 {
			reloaded <- e.Reload(yaml)
		}
	}()
	for going := true; going; {
		if resp, _ := e.Get("/"); resp.StatusCode != http.StatusOK {
			t.Errorf("%d", resp.StatusCode)
		}
		var err error
		err, going = <-reloaded
		edgetest.Must(t, err)
	}
}
