package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/pop"
	"sluice/pop/secret"
)

// withoutPart is an error of a program that was built without modules alone (-tags minimal).
var withoutPart = regexp.MustCompile(`[a-z_.]+: this program was built without .*`)

// What a start would find, a check finds, all of it, and starts nothing; what will hurt is warned of and is no failure.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	short, pem, empty := put("short", "secret\n", 0o600), put("pem", "no certificate\n", 0o600), put("empty", "\n", 0o600)
	good, shown := put("good", strings.Repeat("x", 32), 0o600), put("shown", strings.Repeat("x", 32), 0o600)
	if err := os.Chmod(shown, 0o604); err != nil { // whatever the umask
		t.Fatal(err)
	}
	const secret, others = "a secret of an edge\n", "peers_listen: '127.0.0.2:0', peers: [{name: ams1, edges: ['127.0.0.1:1']}], peers_secret_file: "
	half, many, two := put("half", secret+"\nshort\n", 0o600), put("many", strings.Repeat(secret, 5), 0o600), put("two", secret+"another secret of it", 0o600)
	cert, key := newAuthority(t).issue(t, "sluice")
	left := func(left time.Duration) string { // one that is valid for so long
		a := newAuthority(t)
		a.left = left
		cert, key := a.issue(t, "sluice")
		return "listen_tls: '127.0.0.1:0'\ntls: {certificate: " + cert + ", key: " + key + "}"
	}
	put("foreign/words", "not a list", 0o600)
	put("rules/rules", "not a list", 0o600)
	put("stranger/etcd%2Fs%2F", "not a list", 0o600)
	const store = "etcd: {endpoints: ['https://127.0.0.1:2379'], prefix: /s/, "
	const tier = "pop: {memcached: ['127.0.0.1:11211'], secret_file: "
	for _, test := range []struct {
		name, yaml string
		wrong      []string // lines: what they begin with
		warned     []string
	}{
		{"good", "", nil, nil},
		{"an origin that is the edge", "listen: 'unix:" + dir + "/s'\nsource: {trust: ['10.0.0.0/8']}\norigins: [{servers: ['unix:" + dir + "/s']}]", nil, []string{"origin unix:" + dir + "/s is this edge: it is served at listen unix:" + dir + "/s"}},
		{"secret that is not there", tier + dir + "/none}", []string{"pop.secret_file: open " + dir + "/none: no such file"}, nil},
		{"short secret", tier + short + "}", []string{"pop.secret_file: " + short + ": line 1 has less than 16 bytes"}, nil},
		{"short second line of the secret", tier + half + "}", []string{"pop.secret_file: " + half + ": line 3 has less than 16 bytes"}, nil},
		{"too many lines of the secret", tier + many + "}", []string{"pop.secret_file: " + many + " has 5 secrets, one on each line: at most 2"}, nil},
		{"two lines of the secret", tier + two + "}", nil, nil},
		{"the secret of a new package", tier + empty + "}", []string{"pop.secret_file: " + empty + " is empty"}, nil},
		{"short secret of peers", tier + good + ", " + others + half + "}", []string{"pop.peers_secret_file: " + half + ": line 3 has less than 16 bytes"}, nil},
		{"empty secret of peers", tier + good + ", " + others + empty + "}", []string{"pop.peers_secret_file: " + empty + " is empty"}, nil},
		{"too many secrets of peers", tier + good + ", " + others + many + "}", []string{"pop.peers_secret_file: " + many + " has 5 secrets"}, nil},
		{"two secrets of peers", tier + good + ", " + others + two + "}", nil, nil},
		{"CA of proxies that is none", "rate_limit_service: {listen: '127.0.0.1:0', cert_file: " + cert + ", key_file: " + key + ", client_ca_file: " + pem + "}", []string{"rate_limit_service: edge: CA of clients: " + pem + " has no certificate"}, nil},
		{"CA of proxies that is not there", "rate_limit_service: {listen: '127.0.0.1:0', cert_file: " + cert + ", key_file: " + key + ", client_ca_file: " + dir + "/none}", []string{"rate_limit_service: edge: CA of clients: open " + dir + "/none"}, nil},
		{"token that is not there", "admin_token_file: " + dir + "/none", []string{"admin_token_file: open " + dir + "/none"}, nil},
		{"empty token", "admin_token_file: " + empty, []string{"admin_token_file: " + empty + " is empty"}, nil},
		{"token for everybody", "admin_token_file: " + shown, nil, []string{"admin_token_file: every user of this machine can read " + shown}},
		{"secret for everybody", tier + shown + "}", nil, []string{"pop.secret_file: every user of this machine can read " + shown}},
		{"several files for everybody", "admin_token_file: " + shown + "\n" + tier + shown + "}\nstate_dir: " + dir + "\n" + store + "username: a, password_file: " + shown + "}\nrate_limit_service: {listen: '127.0.0.1:0', cert_file: " + cert + ", key_file: " + key + "}", nil,
			[]string{"admin_token_file: every user", "etcd.password_file: every user", "pop.secret_file: every user"}},
		{"certificate that is none", "listen_tls: '127.0.0.1:0'\ntls: {certificate: " + pem + ", key: " + pem + "}", []string{"edge: certificate " + pem}, nil},
		{"certificate that has expired", left(-time.Hour), nil, []string{"listen_tls: the certificate in "}},
		{"certificate that soon expires", left(13*24*time.Hour - time.Minute), nil, []string{"listen_tls: the certificate in "}},
		{"certificate that expires later", left(15 * 24 * time.Hour), nil, nil},
		{"certificates that are not there", "listen_tls: '127.0.0.1:0'\ntls: {folder: " + dir + "/none}", []string{"edge: certificates"}, nil},
		{"an origin's CA that is none", "origins: [{servers: ['https://127.0.0.1'], tls: {ca_file: " + pem + "}}]", []string{"edge: origin https://127.0.0.1: tls: " + pem}, nil},
		{"state in a folder to be", tier + good + "}\nstate_dir: " + dir + "/none", nil, []string{"state_dir: write " + dir + "/none: no such file"}},
		{"state in no folder", tier + good + "}\nstate_dir: " + dir + "/none/more", []string{"state_dir: write " + dir + "/none/more: no such file"}, nil},
		{"credentials to be", tier + "/run/credentials/none.service/pop.secret}\nadmin_token_file: /run/credentials/none.service/admin.token", nil, []string{"pop.secret_file: open /run/credentials/none.service/pop.secret", "admin_token_file: open /run/credentials/none.service/admin.token"}},
		{"state of somebody else", tier + good + "}\nstate_dir: " + dir + "/foreign", []string{"state_dir: " + dir + "/foreign/words: "}, nil},
		{"rules of somebody else, without a tier", "state_dir: " + dir + "/rules", []string{"state_dir: " + dir + "/rules/rules: "}, []string{"state_dir: without pop.memcached"}},
		{"rules of somebody else, without a secret", "pop: {memcached: ['127.0.0.1:1']}\nstate_dir: " + dir + "/rules", []string{"state_dir: " + dir + "/rules/rules: "}, nil},
		{"rules that are not read", tier + good + "}\nstate_dir: " + dir + "/rules", nil, nil},
		{"state to be", tier + good + "}\nstate_dir: " + dir, nil, nil},
		{"state of somebody else over etcd", tier + good + "}\nstate_dir: " + dir + "/stranger\n" + store + "}", []string{"state_dir: " + dir + "/stranger/etcd%2Fs%2F: "}, nil},
		{"etcd's password that is not there", "state_dir: " + dir + "\n" + store + "username: a, password_file: " + dir + "/none}", []string{"etcd.password_file: open " + dir + "/none"}, []string{"state_dir: without"}},
		{"etcd's password for everybody", tier + good + "}\nstate_dir: " + dir + "\n" + store + "username: a, password_file: " + shown + "}", nil, []string{"etcd.password_file: every user of this machine can read " + shown}},
		{"etcd's CA that is none", tier + good + "}\nstate_dir: " + dir + "\n" + store + "ca_file: " + pem + "}", []string{"etcd.ca_file: " + pem + " has no certificate"}, nil},
		{"etcd in plain text", tier + good + "}\nstate_dir: " + dir + "\netcd: {endpoints: ['http://10.0.0.1:2379']}", nil, []string{"etcd: http://10.0.0.1:2379 is plain text without a password"}},
		{"log in a folder to be", "access_log: {file: " + dir + "/none/log}", nil, []string{"access_log.file: write " + dir + "/none: no such file"}},
		{"log in no folder", "access_log: {file: " + dir + "/none/more/log}", []string{"access_log.file: write " + dir + "/none/more: no such file"}, nil},
		{"log that is a folder", "access_log: {file: " + dir + "}", []string{"access_log.file: write " + dir + ": is a directory"}, nil},
		{"log to be", "access_log: {file: " + dir + "/log}", nil, nil},
		{"another's address", "listen: '203.0.113.99:1'", []string{"listen 203.0.113.99:1: one cannot listen there"}, nil},
		{"a file in place of a socket", "listen: 'unix:" + pem + "'", []string{"listen unix:" + pem}, []string{"no proxy is trusted"}},
		{"two things", "admin_token_file: " + empty + "\naccess_log: {file: " + dir + "}", []string{"admin_token_file", "access_log.file"}, nil},
		{"a port in use", "admin: '" + busy.Addr().String() + "'", nil, []string{"admin " + busy.Addr().String() + ": the port is in use"}},
		{"behind a proxy on this machine", "listen: '127.0.0.1:0'", nil, []string{"no proxy is trusted"}},
		{"which is named", "listen: '127.0.0.1:0'\nsource: {trust: [127.0.0.1]}", nil, nil},
		{"a tier elsewhere without a secret", "pop: {memcached: ['10.0.0.1:11211']}", nil, []string{"the PoP's secret follows from its name"}},
		{"everybody trusted", "source: {trust: ['::/0'], trust_everybody: true}", nil, []string{"source.trust has every address"}},
		{"paths that clients make up", "rules: [{name: k, limit: 1, key: [source, 'path:2'], match: {path: '/a/*'}}]", nil, []string{"rule k counts by path:2"}},
		{"hosts that clients make up", "rules: [{name: k, limit: 1, key: host}]", nil, []string{"rule k counts by host"}},
		{"what clients cannot make up", "rules: [{name: k, limit: 1, key: [source, path], match: {path: /a}}, {name: g, limit: 1, key: global}]", nil, nil},
		{"what clients can add", "rules: [{name: k, limit: 1, match: {not: {headers: {X-In: '*'}}}}]", nil, []string{"rule k leaves out requests with the header x-in"}},
		{"what clients can add, and are limited for", "rules: [{name: k, limit: 1, match: {path: /a, not: {cookies: {c: '*'}}}}, {name: b, limit: 1, match: {path: /a}}]", nil, nil},
		{"what clients cannot add", "rules: [{name: k, limit: 1, match: {headers: {x: '*'}, not: {sources: [192.0.2.1], path: /a}}}]", nil, nil},
		{"a key that clients make up", "rules: [{name: k, limit: 1, key: [source, 'header:K'], match: {path: /a}}, {name: b, limit: 1, match: {path: /b}}]", nil, []string{"rule k counts by header:K"}},
		{"and another rule", "rules: [{name: k, limit: 1, key: 'header:K', match: {path: /a}}, {name: b, limit: 1, match: {path: /a}}]", nil, nil},
		{"which is about some", "rules: [{name: k, limit: 1, key: 'cookie:K'}, {name: b, limit: 1, share: 50}]", nil, []string{"rule k counts by cookie:K"}},
		{"which refuses nobody", "rules: [{name: k, limit: 1, key: 'cookie:K'}, {name: b, limit: 1, mode: shadow}]", nil, []string{"rule k counts by cookie:K"}},
		{"a parameter that clients make up", "rules: [{name: k, limit: 1, key: 'query:k'}]", nil, []string{"rule k counts by query:k"}},
		{"several things that clients make up", "rules: [{name: k, limit: 1, key: ['query:k', 'cookie:c', 'header:h']}]", nil, []string{"rule k counts by query:k"}},
		{"beside a rule that tags", "rules: [{name: k, limit: 1, key: 'query:k'}, {name: b, limit: 1, action: tag}]", nil, []string{"rule k counts by query:k"}},
		{"a claim, which nobody makes up", "jwt: {keys_file: " + shown + ", algorithms: [HS256]}\nrules: [{name: k, limit: 1, key: [source, 'jwt:sub']}]", nil, []string{"jwt.keys_file: every user of this machine can read " + shown}},
		{"keys of tokens that are not there", "jwt: {keys_file: " + dir + "/none}", []string{"jwt.keys_file: open " + dir + "/none"}, nil},
		{"keys of tokens that are none", "jwt: {keys_file: " + pem + "}", []string{"jwt.keys_file: " + pem}, nil},
		{"exact in a short window", tier + good + "}\nrules: [{name: r, limit: 1, window: 19s, estimate: lower}, {name: s, limit: 1, window: 20s, estimate: lower}, {name: t, limit: 1, window: 5s}]",
			nil, []string{"rule r has a window of 19s"}},
		{"a small table", "table: {counters: 1024}\nrules: [{name: r, limit: 1}]", nil, []string{"table.counters is 1024"}},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			yaml := test.yaml + "\n"
			for name, line := range map[string]string{"listen:": "listen: ':0'", "admin:": "admin: '127.0.0.1:0'", "origins:": "origins: [{servers: ['http://127.0.0.1:1']}]"} {
				if !strings.HasPrefix(yaml, name) && !strings.Contains(yaml, "\n"+name) {
					yaml += line + "\n"
				}
			}
			file := put("sluice.yaml", yaml, 0o600)
			var stdout, stderr bytes.Buffer
			code := run([]string{"check", file}, &stdout, &stderr)
			if m := withoutPart.FindSubmatch(stderr.Bytes()); m != nil {
				t.Skipf("%s: TestMinimal has such errors", m[0])
			}
			want := append([]string(nil), test.wrong...)
			for _, w := range test.warned {
				want = append(want, "warning: "+w)
			}
			got := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
			if stderr.Len() == 0 {
				got = nil
			}
			bad := len(got) != len(want)
			for i := range min(len(got), len(want)) {
				bad = bad || !strings.HasPrefix(got[i], file+": "+want[i])
			}
			if bad || (code == 0) != (len(test.wrong) == 0) || (code == 0) != (stdout.Len() > 0) {
				t.Errorf("exit %d\n got %s\nwant %s", code, stderr.String(), strings.Join(want, "\n     "))
			}
			if _, err := os.Stat(filepath.Join(dir, "log")); err == nil {
				t.Error("a check has made a file")
			}
		})
	}
}

// A list that this PoP's operators made is a good state.
func TestCheckTakesItsOwnState(t *testing.T) {
	dir, key := t.TempDir(), secret.Of([]byte("a secret of some length"))
	m, err := pop.NewMachine(pop.Config{Nodes: []string{"127.0.0.1:1"}, Secret: key, ID: 1, Counters: counter.New(counter.Options{Counters: 64, Tier: true})}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	list, _ := m.Operators.Encoded(time.Now())
	c := &config.Config{StateDir: dir, PoP: config.PoP{Memcached: []string{"127.0.0.1:1"}}}
	if err := os.WriteFile(filepath.Join(dir, "words"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryState(c, key, nil); err != nil {
		t.Error(err)
	}
	if err := tryState(c, secret.Of([]byte("another of some length")), nil); err == nil {
		t.Error("under another secret it is good")
	}
}

func TestVersion(t *testing.T) {
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: version}, Settings: settings}
	}
	commit, changed := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, test := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{info("(devel)"), "devel, commit unknown, go1.26.8"},
		{info("v1.2.3", commit), "v1.2.3, commit 0123456789ab, go1.26.8"},
		{info("v0.0.0-20261124075039-0123456789ab", commit), "v0.0.0-20261124075039-0123456789ab, go1.26.8"},
		{info("", commit, changed), "devel, commit 0123456789ab with changes, go1.26.8"},
	} {
		if got := buildOf(test.info).String(); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// A number in prefixes does not say its family, so a check does.
func TestCheckTellsFamilies(t *testing.T) {
	for prefixes, want := range map[string]string{
		"[64, 24, 48, 32, {prefix: 16, limit: 900}]": "rule r counts by IPv4 /32 /24 /16 and IPv6 /64 /48\n",
		"[33]": "rule r counts by IPv6 /33\n",
		"[24]": "rule r counts by IPv4 /24\n",
		"[]":   "good: 1 rule, 1 origin\n",
	} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte("listen: ':0'\nadmin: '127.0.0.1:0'\norigins: [{servers: ['http://127.0.0.1:1']}]\nrules: [{name: r, limit: 1, prefixes: "+prefixes+"}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := run([]string{"check", file}, &stdout, &stderr); code != 0 || !strings.HasSuffix(stdout.String(), file+": "+want) {
			t.Errorf("%s: exit %d, %s%s, want %s", prefixes, code, stdout.String(), stderr.String(), want)
		}
	}
}

// A file without rules limits sources all the same, which a check says.
func TestCheckWithoutRules(t *testing.T) {
	for rules, want := range map[string]string{
		"":          "good, but it gives no rules: serving blocks sources over 100 in 1m",
		"rules: []": "good, but it gives no rules: serving blocks sources over 100 in 1m",
		"rules: [{name: r, limit: 1, mode: off}]": "good: 1 rule, 1 origin",
	} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte("listen: ':0'\nadmin: '127.0.0.1:0'\norigins: [{servers: ['http://127.0.0.1:1']}]\n"+rules+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := run([]string{"check", file}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), file+": "+want) {
			t.Errorf("%s: exit %d, %s%s, want %s", rules, code, stdout.String(), stderr.String(), want)
		}
	}
}
