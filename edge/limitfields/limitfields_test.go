package limitfields_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"sluice/edge/limitfields"
)

func TestFields(t *testing.T) {
	for _, test := range []struct {
		policy limitfields.Policy
		left   uint64
		key    string
		want   string
	}{
		{limitfields.Policy{Name: "login", Quota: 5, Window: time.Minute}, 3, "",
			`"login";q=5;w=60 "login";r=3;t=37`},
		{limitfields.Policy{Name: "slow", Quota: 2, Unit: limitfields.ConcurrentRequests}, 0, "/a b",
			`"slow";q=2;qu="concurrent-requests" "slow";r=0;t=37;pk=:L2EgYg==:`},
		{limitfields.Policy{Name: "up", Quota: 1 << 60, Unit: limitfields.ContentBytes,
			Window: time.Millisecond}, 1 << 60, "",
			`"up";q=999999999999999;qu="content-bytes";w=1 "up";r=999999999999999;t=37`},
		{limitfields.Policy{Name: "a\"b\\c\x00é"}, 0, "", `"a\"b\\c";q=0 "a\"b\\c";r=0;t=37`},
	} {
		policy := test.policy.Append(nil)
		limit := limitfields.AppendLimit(nil, limitfields.AppendName(nil, test.policy.Name),
			test.left, 37)
		if test.key != "" {
			limit = limitfields.AppendPartition(limit, []byte(test.key))
		}
		if got := string(policy) + " " + string(limit); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// The page for those who write clients names the draft that is written.
func TestPageNamesTheDraft(t *testing.T) {
	page, err := os.ReadFile("../../docs/http/clients.md")
	if err != nil || !strings.Contains(string(page), limitfields.Draft) {
		t.Errorf("docs/http/clients.md does not name %s: %v", limitfields.Draft, err)
	}
}
