package tokens_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/message"
	"sluice/edge/modules/tokens"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// A signer signs tokens, and has its public key in a file.
type signer struct {
	jose.Signer
	file string
}

func newSigner(t testing.TB) signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: k}, nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return signer{s, file}
}

func (s signer) token(t testing.TB, sub string, expires time.Duration) string {
	t.Helper()
	text, err := jwt.Signed(s).Claims(map[string]any{"sub": sub, "exp": time.Now().Add(expires).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A rule by a claim counts who has signed in, wherever from, and everybody else by source, in a bucket apart.
func TestTokenKey(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	for _, place := range []struct{ config, before, after string }{
		{"", "Authorization: Bearer ", ""}, {", header: X-Token", "x-token: ", ""}, {", cookie: session", "Cookie: a=b; session=", "; c=d"},
	} {
		e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
jwt: {keys_file: `+ours.file+place.config+`}
rules: [{name: r, key: "jwt:sub", limit: 2, window: 1h, mitigation_timeout: 0}]
source: {trust: [127.0.0.1]}
`, tokens.Module())
		get := func(what, from, token string, want int) {
			t.Helper()
			header := []string{"X-Forwarded-For: " + from}
			if token != "" {
				header = append(header, place.before+token+place.after)
			}
			if resp, body := e.Get("/", header...); resp.StatusCode != want {
				t.Errorf("%q: %s from %s: %d %s, want %d", place.config, what, from, resp.StatusCode, body, want)
			}
		}
		anna := ours.token(t, "anna", time.Hour)
		get("anna", "192.0.2.1", anna, 200)
		get("anna, by another token", "192.0.2.2", ours.token(t, "anna", 2*time.Hour), 200)
		get("anna", "192.0.2.3", anna, 429)
		get("bert", "192.0.2.3", ours.token(t, "bert", time.Hour), 200)
		get("nobody", "192.0.2.1", "", 200)
		get("a forged anna", "192.0.2.1", theirs.token(t, "anna", time.Hour), 200)
		get("an expired bert", "192.0.2.1", ours.token(t, "bert", -time.Hour), 429)
		get("bert still", "192.0.2.1", ours.token(t, "bert", time.Hour), 200)
		get("nobody", "192.0.2.2", "anna", 200)
	}
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "jwt: {keys_file: "+ours.file+"}\nrules: [{name: r, key: \"jwt:sub\", limit: 2}]\n", tokens.Module())
	anna, bert := "Authorization: Bearer "+ours.token(t, "anna", time.Hour), "Authorization: Bearer "+ours.token(t, "bert", time.Hour)
	if resp, _ := e.Get("/", anna, bert); resp.StatusCode != 400 {
		t.Errorf("two tokens: %d, want 400", resp.StatusCode)
	}
}

// Who has signed in cannot write the token so that an origin takes it and the edge does not, to be counted by source instead. In each
// of these forms some origin does take it.
func TestTokenSpellings(t *testing.T) {
	ours := newSigner(t)
	anna := ours.token(t, "anna", time.Hour)
	h, rest, _ := strings.Cut(anna, ".")
	cut := len(anna) - 5
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	odd := anna[:len(anna)-1] + string(alphabet[strings.IndexByte(alphabet, anna[len(anna)-1])^1]) // in bits that stand for nothing
	for config, spellings := range map[string]map[string]int{
		"": {
			"Authorization: Bearer " + anna: 429, "authorization: bEARER   " + anna: 429, "Authorization: Bearer\t" + anna: 429,
			"Authorization: " + anna: 429, "Authorization: JWT " + anna: 429, "Authorization: Token token=\"" + anna + "\"": 429,
			"Authorization: Bearer\xc2\xa0" + anna: 400, "Authorization: Bearer \"" + anna + "\"": 400,
			"Authorization: Bearer " + anna + "==": 429, "Authorization: Bearer " + anna + " =": 400, "Authorization: Bearer " + odd: 429,
			"Authorization: Bearer " + anna + "==junk":                               400, // ends there for some
			"Authorization: Bearer " + anna + " " + anna:                             400,
			"Authorization: Bearer " + anna + ", Basic YTpi":                         400,
			"Authorization: Bearer " + anna + "!":                                    400,
			"Authorization: Bearer " + anna[:cut] + "!" + anna[cut:]:                 400, // passed over
			"Authorization: Bearer " + anna[:cut] + " " + anna[cut:]:                 400,
			"Authorization: Bearer " + h + "." + strings.Replace(rest, ".", ".~", 1): 400,
			"Authorization: Basic YTpiLmMuZA==":                                      200, "Authorization: Bearer opaque": 200, "Authorization: Digest uri=\"/eye/a.b.c\", nc=1": 200,
		},
		", header: X-Token": {"x-token: " + anna: 429, "x_token: Bearer\t" + anna: 429, "x-token: " + anna + "~": 400},
		", cookie: session": {
			"Cookie: session=" + anna: 429, "Cookie: a=b; session=\"" + anna + "\"": 429, "Cookie: session=" + h + "%2e" + rest: 429,
			"Cookie: session=%" + fmt.Sprintf("%x", anna[0]) + anna[1:]: 429, "Cookie: session=" + anna + "%3D": 429,
			"Cookie: session=\"" + h + "\\056" + rest + "\"":     400, // Python's
			"Cookie: session=" + anna[:cut] + "+" + anna[cut:]:   400,
			"Cookie: session=" + anna[:cut] + "%21" + anna[cut:]: 400,
			"Cookie: session=s%3Aopaque.x%2Fy+z":                 200,
		},
	} {
		for spelling, want := range spellings {
			e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
jwt: {keys_file: `+ours.file+config+`}
rules: [{name: r, key: "jwt:sub", limit: 1, window: 1h, mitigation_timeout: 0}]
source: {trust: [127.0.0.1]}
`, tokens.Module())
			plain := map[string]string{"": "Authorization: Bearer ", ", header: X-Token": "X-Token: ", ", cookie: session": "Cookie: session="}[config]
			if resp, _ := e.Get("/", "X-Forwarded-For: 192.0.2.1", plain+anna); resp.StatusCode != 200 {
				t.Fatalf("%q: %d", config, resp.StatusCode)
			}
			if resp, _ := e.Get("/", "X-Forwarded-For: 192.0.2.2", spelling); resp.StatusCode != want {
				t.Errorf("%s: %d, want %d", strings.ReplaceAll(spelling, anna, "TOKEN"), resp.StatusCode, want)
			}
		}
	}
}

// Who is blocked under a rule about its source is refused before anything of its token is verified: it is remembered neither as good nor as bad.
func TestBlockedBeforeVerified(t *testing.T) {
	ours := newSigner(t)
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
jwt: {keys_file: `+ours.file+`}
rules:
- {name: who, key: "jwt:sub", limit: 1000, window: 1h}
- {name: all, limit: 1, window: 1h, mitigation_timeout: 1h}
`, tokens.Module())
	first := "Authorization: Bearer " + ours.token(t, "a", time.Hour)
	for range 2 {
		e.Get("/", first)
	}
	before := e.Metrics()["sluice_token_verifications_total"]
	for range 5 {
		if resp, _ := e.Get("/", "Authorization: Bearer "+newSigner(t).token(t, "b", time.Hour)); resp.StatusCode != 429 {
			t.Errorf("%d, want 429", resp.StatusCode)
		}
	}
	if n := e.Metrics()["sluice_token_verifications_total"]; before != 1 || n != before {
		t.Errorf("%v tokens were verified before the block, %v in all: want 1 and 1", before, n)
	}
}

// Keys that are changed hold from the next time that the configuration is put in force; a file that is wrong leaves what was.
func TestKeysChange(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	c := edgetest.Parse(t, "origins: [{servers: [\""+edgetest.StartRecorder(t, edgetest.Hello).URL()+"\"]}]\njwt: {keys_file: "+ours.file+"}\nrules: [{name: r, key: \"jwt:sub\", limit: 1, window: 1h, mitigation_timeout: 0}]\n", tokens.Module())
	e := edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(tokens.Module())))
	claims := func() int {
		resp, _ := e.Get("/", "Authorization: Bearer "+theirs.token(t, "anna", time.Hour))
		return resp.StatusCode
	}
	if got := []int{claims(), claims()}; got[0] != 200 || got[1] != 429 { // by source
		t.Errorf("%v, want 200 and 429", got)
	}
	text, err := os.ReadFile(theirs.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.file, []byte("-----BEGIN nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(c); err == nil || !strings.Contains(err.Error(), "jwt.keys_file: "+ours.file) {
		t.Errorf("a wrong file: %v", err)
	}
	if err := os.WriteFile(ours.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(c); err != nil {
		t.Fatal(err)
	}
	if got := []int{claims(), claims()}; got[0] != 200 || got[1] != 429 { // by the claim
		t.Errorf("%v, want 200 and 429", got)
	}
}

// A token is looked at for a rule that is about the request, and for no other: what a match leaves out costs no verification, and two tokens are
// none of its business. Who only tries a rule refuses nobody, and has the claim all the same.
func TestTokensNobodyAsksFor(t *testing.T) {
	ours := newSigner(t)
	const left, tried = "{name: r, match: {headers: {X-A: b}}, key: \"jwt:sub\", limit: 1000}", "{name: all, limit: 1000}"
	for rule, want := range map[string]float64{left: 0, tried: 1} {
		use := []edge.Module{tokens.Module()}
		if rule == tried {
			trial := rules.Default("tried", 5)
			trial.Key, trial.Mode = []string{"jwt:name"}, rules.Shadow
			use = append(use, edge.Module{Name: "tries", Prepare: func(*edge.Setup) (edge.Points, error) {
				return edge.Points{Trials: []rules.Trial{{Config: trial, Tally: new(rules.Tally)}}}, nil
			}})
		}
		e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "jwt: {keys_file: "+ours.file+"}\nrules: ["+rule+"]\n", use...)
		anna, bert := "Authorization: Bearer "+ours.token(t, "anna", time.Hour), "Authorization: Bearer "+ours.token(t, "bert", time.Hour)
		for _, header := range [][]string{{anna}, {anna}, {anna, bert}} {
			if resp, _ := e.Get("/", header...); resp.StatusCode != 200 {
				t.Errorf("%s: %d", rule, resp.StatusCode)
			}
		}
		if n := e.Metrics()["sluice_token_verifications_total"]; n != want {
			t.Errorf("%s: %v verifications, want %v", rule, n, want)
		}
		if resp, _ := e.Get("/", anna, bert, "X-A: b"); rule == left && resp.StatusCode != 400 {
			t.Errorf("two tokens: %d", resp.StatusCode)
		}
	}
}

// A known token costs a request no allocation.
func TestAllocations(t *testing.T) {
	ours := newSigner(t)
	m := tokens.Module()
	c := edgetest.Parse(t, "jwt: {keys_file: "+ours.file+", header: x-token}\nrules: [{name: r, key: \"jwt:sub\", limit: 1000}]\n", m)
	setup := &edge.Setup{Config: c}
	p, err := m.Prepare(setup)
	if err != nil {
		t.Fatal(err)
	}
	defaults := c.RuleDefaults()
	defaults.Facts = p.Facts
	setup.Made, err = rules.New(c.Rules, defaults, func(string) *rules.Tally { return new(rules.Tally) })
	if err != nil {
		t.Fatal(err)
	}
	p.InForce()
	q := new(message.Request)
	if err := q.Head.Add([]byte("X-Token"), []byte(ours.token(t, "anna", time.Hour)), 5); err != nil {
		t.Fatal(err)
	}
	view := &key.View{Request: q, At: time.Now()}
	find := func() {
		view.Reset()
		view.Request = q
		view.Fact(p.Facts[0])
	}
	find()
	if n := testing.AllocsPerRun(100, find); n != 0 || view.Fact(p.Facts[0]) == nil {
		t.Errorf("%v allocations", n)
	}
}
