package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
)

// A rule for a share of sources is as if it were not there for the others.
func TestShareOfSources(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "source: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 1, share: 30}]")
	limited := 0
	for i := range 100 {
		source := fmt.Sprintf("192.0.2.%d", i)
		first, _ := e.Get("/", "X-Forwarded-For: "+source)
		second, _ := e.Get("/", "X-Forwarded-For: "+source)
		is := second.StatusCode == 429
		if first.StatusCode != 200 || is != (first.Header.Get("RateLimit") != "") {
			t.Errorf("%s: %d %v, then %d", source, first.StatusCode, first.Header, second.StatusCode)
		}
		if st := e.Look(t.Context(), netip.MustParseAddr(source)).Rules[0]; st.OutsideShare == is {
			t.Errorf("%s: limited %v, and %+v", source, is, st)
		}
		if is {
			limited++
			continue
		}
		m, err := e.Block("r", source, time.Minute, "", control.Operator{}, time.Now())
		if err != nil || !strings.Contains(m.Warning, "not about this one") {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if limited < 15 || limited > 45 {
		t.Errorf("%d of 100 sources are limited", limited)
	}
	if m, err := e.Block("r", "192.0.2.0/24", time.Minute, "", control.Operator{}, time.Now()); err != nil || m.Warning != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if m := e.Rest(); m["sluice_requests_total{rule=r,verdict=pass}"] != float64(limited) || m["sluice_counters"] != float64(limited) {
		t.Errorf("%d are limited, and %v", limited, m)
	}
}
