//go:build system

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// squeezed is a table without what aligns it.
func squeezed(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// Every command, against an edge of which a client has asked too much.
func TestOperatorsCommands(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: [{name: site, limit: 2}, {name: login, match: {path: /login, methods: [POST]}, limit: 5, window: 10m, mitigation_timeout: 0, mode: shadow, key: [source, \"header:X-Tenant\"], count: {statuses: [401, 403]}}]")
	p := start(t, origin(t), "--config", file)
	for range 5 {
		p.get()
	}
	p.until("counting the refusals", func() bool {
		_, body := p.admin("GET", "/v1/top?by=refused")
		_, status, _ := sluice("status", "--admin", p.back)
		return strings.Contains(body, `"count": 3`) && strings.Contains(status, "3 refused by a limit")
	})
	for _, test := range []struct {
		args string
		want []string // lines, or parts of them
	}{
		{"status", []string{"edge " + p.back + ", ready\n", "\nrules 1 enforce, 1 shadow\n", "\nrequests 5 received, 3 refused by a limit, 2 to origins\n", "\nblocked 1 now\n", "\npop none: this edge counts alone"}},
		{"status --wait 10s", []string{", ready\n"}},
		{"top", []string{"SOURCE REQUESTS\n127.0.0.1 5"}},
		{"top --by refused -n 1", []string{"SOURCE REFUSED\n127.0.0.1 3"}},
		{"blocked", []string{"SOURCE RULE ", " LEFT\n127.0.0.1 site ", " edge "}},
		{"rules", []string{"RULE MODE LIMIT THEN BLOCKED BY COUNTS MATCHES\n", "\nsite enforce 2 in 1m for 1m source everything", "\nlogin shadow 5 in 10m no: throttled source+header:X-Tenant 401,403 POST /login"}},
		{"block 192.0.2.7 --rule site --for 90m --reason scraper", []string{"192.0.2.7 is blocked under rule site until ", " (1h30m)\nin force on "}},
		{"block 2001:db8::7/64 --rule site", []string{"2001:db8::/64 is blocked under rule site until ", " (10m)"}},
		{"blocked", []string{"SOURCE RULE ", " UNTIL LEFT REASON\n192.0.2.7 site ", " admin ", " scraper\n2001:db8::/64 site ", "\n127.0.0.1 site "}},
		{"unblock 192.0.2.7 --rule site", []string{"192.0.2.7 is lifted under rule site; it starts afresh\nin force on "}},
		{"unblock 192.0.2.7 --rule site", []string{"192.0.2.7 was not blocked here under rule site; it starts afresh"}},
		{"block 198.51.100.0/24 --for 1h", []string{"198.51.100.0/24 is blocked under every rule until ", " (1h)\nin force on "}},
		{"blocked", []string{"\n198.51.100.0/24 * "}},
		{"blocked --rule site --manual", []string{"SOURCE RULE ", "\n2001:db8::/64 site "}},
		{"blocked --source 198.51.100.9", []string{"SOURCE RULE ", "\n198.51.100.0/24 * "}},
		{"blocked --source 203.0.113.0/24", []string{"nobody like that is blocked\n"}},
		{"blocked --mode shadow", []string{"nobody like that is blocked\n"}},
		{"blocked --by edge", []string{"\n127.0.0.1 site "}},
		{"blocked --rule *", []string{" LEFT\n198.51.100.0/24 * "}},
		{"unblock 198.51.100.0/24", []string{"198.51.100.0/24 is lifted under every rule; it starts afresh\nin force on "}},
		{"allow", []string{"nobody is allowed by an operator (sluice config shows whom the file lists)\n"}},
		{"allow 198.51.100.0/24 --for 24h --reason fair", []string{"198.51.100.0/24 is allowed until ", " (24h)\nin force on "}},
		{"deny 198.51.100.7", []string{"198.51.100.7 is denied until ", " (10m)\nin force on "}},
		{"allow 198.51.100.7", []string{"198.51.100.7 is allowed until ", "\nbut: this prefix is denied, which goes before"}},
		{"allow", []string{"SOURCE UNTIL LEFT REASON\n198.51.100.7 ", "\n198.51.100.0/24 ", " fair\n"}},
		{"deny", []string{"SOURCE UNTIL LEFT\n198.51.100.7 "}},
		{"deny 198.51.100.7 --remove", []string{"198.51.100.7 is denied no more\nin force on "}},
		{"deny 198.51.100.7 --remove", []string{"198.51.100.7 was not denied here by an operator\n"}},
		{"allow 198.51.100.7 --remove", []string{"198.51.100.7 is allowed no more\n", "but: it is allowed all the same"}},
		{"deny 198.51.100.0/25", []string{"198.51.100.0/25 is denied until "}},
		{"deny 198.51.100.7 --remove", []string{"198.51.100.7 was not denied here by an operator\n", "but: it is denied all the same: by the configuration, or as part of a wider prefix on this list\n"}},
		{"why 198.51.100.7", []string{"always refused, by the list deny (sluice deny and sluice config show it)\n"}},
		{"deny 198.51.100.0/25 --remove", []string{"198.51.100.0/25 is denied no more\n"}},
		{"rules history site", []string{"VERSION STATE WHAT\n0 in force what the file says\n"}},
		{"rules set site limit=300 window=2m match.methods=[GET]", []string{"rule site is changed\nlimit 2 → 300\nmatch.methods default → [\"GET\"]\nwindow 1m → 2m\nin force on this edge\nbut: in memory only"}},
		{"rules set site limit=300", []string{"rule site is so already\nin force on this edge\n"}},
		{"rules set site match.methods=null response.body=no", []string{"rule site is changed\nmatch.methods [\"GET\"] → default\nresponse.body default → no\n"}},
		{"rules history site", []string{"VERSION WHEN STATE WHO AT EDGE WHAT\n", " match.methods [\"GET\"] → default, ", "\n0 what the file says\n"}},
		{"rules rollback site", []string{"rule site is back at version ", "\nmatch.methods default → [\"GET\"]\nresponse.body no → default\n"}},
		{"rules history site", []string{" in force ", " back at ", "\n0 what the file says\n"}},
		{"rules rollback site 0", []string{"rule site is back at what the file says\nlimit 300 → 2\nmatch.methods [\"GET\"] → default\nwindow 2m → 1m\n"}},
		{"events", []string{"TIME KIND RULE SOURCE WHO WHAT\n", " operator site 192.0.2.7 ", " blocked for 1h30m: scraper\n", " operator site 192.0.2.7 ", " lifted\n"}},
		{"events --since 1h", []string{" operator site 192.0.2.7 ", " lifted\n"}},
		{"events --since 1000000", []string{"nothing has happened"}},
	} {
		code, stdout, stderr := sluice(append(strings.Fields(test.args), "--admin", p.back)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit %d: %s", test.args, code, stderr)
		}
		rest := squeezed(stdout)
		for _, want := range test.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%s: there is no %q, in this order, in\n%s", test.args, want, stdout)
			}
			rest = want[len(want)-1:] + after
		}
		for line := range strings.Lines(stdout) {
			long := strings.HasPrefix(test.args, "events") || strings.HasPrefix(test.args, "why ") || strings.HasPrefix(test.args, "rules history") // a text at the end is whole
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 && !long || long && strings.Contains(line, "…") {
				t.Errorf("%s: a line has %d columns: %s", test.args, n, line)
			}
		}
	}
	for _, command := range []string{"top", "blocked", "rules", "events"} { // as the edge has it
		_, stdout, _ := sluice(command, "--json", "--admin", p.back)
		path := map[string]string{"blocked": "mitigations"}[command]
		if path == "" {
			path = command
		}
		if _, want := p.admin("GET", "/v1/"+path); inOrder(t, stdout) != inOrder(t, want) { // mitigations come in no order
			t.Errorf("%s --json: %s, want %s", command, stdout, want)
		}
	}
	if code, stdout, _ := sluice("block", "192.0.2.9", "--rule", "site", "--json", "--admin", p.back); code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"by": "admin"`) {
		t.Errorf("block --json: exit %d: %s", code, stdout)
	}
	if code, stdout, _ := sluice("status", "--json", "--admin", p.back); code != 0 || !strings.Contains(stdout, `"/readyz": "ready"`) || !strings.Contains(stdout, `"name": "login"`) || !json.Valid([]byte(stdout)) {
		t.Errorf("status --json: exit %d: %s", code, stdout)
	}
	p.stop(syscall.SIGTERM)
}

// inOrder is a JSON list with its elements sorted.
func inOrder(t *testing.T, list string) string {
	t.Helper()
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(list), &elements); err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	slices.SortFunc(elements, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	return fmt.Sprintf("%s", elements)
}

// A wrong attempt gets a sentence: what, where, and what to do. Nothing goes to standard output.
func TestOperatorsMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	right, wrong, empty := put("right", "open sesame\n"), put("wrong", "abracadabra\n"), put("empty", "\n")
	file := put("sluice.yaml", "admin_token_file: "+right+"\n")
	anywhere := put("anywhere.yaml", "{listen: '127.0.0.1:0', admin: '127.0.0.1:0', source: {trust: [10.0.0.1]}, origins: [{servers: ['http://127.0.0.1:1']}]}")
	p := start(t, origin(t), "--config", file)
	back := p.back
	file = put("operator.yaml", "admin: "+back+"\nadmin_token_file: "+right+"\n")
	broken := put("broken.yaml", "admin: "+back+"\ndeny: [everybody]\n")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := silent.Addr().String()
	silent.Close()
	at, with := " --admin "+back, " --admin "+back+" --token-file "+right
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"status --config " + file, 0, ""},
		{"status" + with, 0, ""},
		{"status --admin " + nobody, 1, "sluice status: no edge listens at " + nobody + ": start it, or name its operators' listener with --admin ADDR or --config FILE\n"},
		{"status --wait 1ms --admin " + nobody, 1, "sluice status: no edge listens at " + nobody + ": start it, or name its operators' listener with --admin ADDR or --config FILE\n"},
		{"blocked --admin no-such-host.invalid:1", 1, "sluice blocked: the name no-such-host.invalid cannot be found: check the spelling of --admin\n"},
		{"blocked --admin unix:" + dir + "/none", 1, "sluice blocked: no edge listens at unix:" + dir + "/none: start it, or name its operators' listener with --admin ADDR or --config FILE\n"},
		{"blocked" + at, 1, "sluice blocked: " + back + " wants a token: give the file that holds it with --token-file FILE\n"},
		{"blocked" + at + " --token-file " + wrong, 1, "sluice blocked: " + back + " wants another token: give the file that its admin_token_file names with --token-file FILE. An edge reads a replaced file within a second; where systemd made a copy of it at the start (LoadCredential=), it reads the new one after systemctl restart\n"},
		{"blocked" + at + " --token-file " + empty, 1, "sluice blocked: --token-file: " + empty + " is empty: put the token into it\n"},
		{"blocked" + at + " --token-file " + dir + "/none", 1, "sluice blocked: --token-file: open " + dir + "/none: no such file or directory: give a readable file that holds the token\n"},
		{"blocked --config " + dir + "/none", 1, "sluice blocked: " + dir + "/none: cannot be read: no such file or directory: give the path of a readable file\n"},
		{"block 192.0.2.7 --config " + broken, 1, "sluice block: " + broken + ":2:8: deny: \"everybody\" is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address; until it is mended, leave --config out, and name the listener with --admin ADDR and --token-file FILE\n"},
		{"rules --admin " + p.front, 1, "sluice rules: what answers at " + p.front + " is not the operators' listener of an edge (200 to GET /v1/rules): name that with --admin ADDR\n"},
		{"status --admin " + p.front, 1, "sluice status: what answers at " + p.front + " is not the operators' listener of an edge (200 to GET /readyz): name that with --admin ADDR\n"},
		{"block 192.0.2.7 --rule none" + with, 1, "sluice block: no such rule: none (sluice rules lists them)\n"},
		{"unblock 192.0.2.7 --rule none" + with, 1, "sluice unblock: no such rule: none (sluice rules lists them)\n"},
		{"block nobody" + with, 2, `sluice block: "nobody" is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them (sluice help block tells more)` + "\n"},
		{"block 192.0.2.0/33" + with, 2, `sluice block: "192.0.2.0/33" is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them (sluice help block tells more)` + "\n"},
		{"unblock .." + with, 2, `sluice unblock: ".." is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them (sluice help unblock tells more)` + "\n"},
		{"block" + with, 2, "sluice block: want a SOURCE|CIDR, the # and digest that sluice blocked shows, or --key PART=VALUE (sluice help block tells more)\n"},
		{"block 192.0.2.7 192.0.2.8" + with, 2, `sluice block: unexpected argument "192.0.2.8" (sluice help block tells more)` + "\n"},
		{"block 192.0.2.7 --for 0s" + with, 2, "sluice block: --for 0s: want more than 0 (sluice help block tells more)\n"},
		{"block 192.0.2.7 --for 10" + with, 2, `sluice block: --for 10: want a time with a unit, such as 30s, 10m or 48h (sluice help block tells more)` + "\n"},
		{"block 192.0.2.7 --rule=" + with, 2, "sluice block: --rule is empty: name a rule, or leave it out (sluice help block tells more)\n"},
		{"top --by size" + with, 2, `sluice top: --by "size": want requests, refused or shadow (sluice help top tells more)` + "\n"},
		{"top -n 0" + with, 2, "sluice top: --number 0: want 1 to 1000 (sluice help top tells more)\n"},
		{"events --since yesterday" + with, 1, "sluice events: since is not possible: want the number of an event, or a time such as 2026-05-04T14:05:00Z\n"},
		{"blocked --mode off" + with, 2, `sluice blocked: --mode "off": want enforce or shadow (sluice help blocked tells more)` + "\n"},
		{"blocked --by me" + with, 2, `sluice blocked: --by "me": want edge, pop, admin or peer (sluice help blocked tells more)` + "\n"},
		{"blocked --manual --by pop" + with, 2, "sluice blocked: --manual and --by pop: give one of them (sluice help blocked tells more)\n"},
		{"blocked --source nobody" + with, 2, `sluice blocked: --source: "nobody" is no source: want an address, a prefix such as 192.0.2.0/24, or # and 32 hexadecimal digits as sluice blocked shows them (sluice help blocked tells more)` + "\n"},
		{"blocked --rule none" + with, 1, "sluice blocked: no such rule: none (sluice rules lists them)\n"},
		{"allow nobody" + with, 2, `sluice allow: "nobody" is no prefix: want an address, or a prefix such as 192.0.2.0/24 (sluice help allow tells more)` + "\n"},
		{"deny --remove" + with, 2, "sluice deny: --remove: whose? want a SOURCE|CIDR (sluice help deny tells more)\n"},
		{"deny 192.0.2.7 --remove --for 1h" + with, 2, "sluice deny: --remove ends at once: leave --for and --reason out (sluice help deny tells more)\n"},
		{"deny 0.0.0.0/0" + with, 1, "sluice deny: 0.0.0.0/0 is too wide: want /8 or longer\n"},
		{"allow 192.0.2.7 --for 721h" + with, 1, "sluice allow: for 721h: want more than 0 and at most 720h\n"},
		{"rules set" + with, 2, `sluice rules: "set" is not enough: want sluice rules set NAME FIELD=VALUE… (sluice help rules tells more)` + "\n"},
		{"rules show default" + with, 2, "sluice rules: no form \"show\": want rules, rules add [FILE], rules edit NAME [FILE], rules set NAME FIELD=VALUE…, rules remove NAME, rules history NAME, rules rollback NAME [VERSION] (sluice help rules tells more)\n"},
		{"rules add " + write(t, "{name: partners, limit: 9, match: {lists: [partners]}}\n") + with, 1, `sluice rules: rule partners: match: lists: there is no list "partners": name it under lists, with its file or url` + "\n"},
		{"rules set default" + with, 2, "sluice rules: nothing is to be set: sluice rules set default limit=300 (sluice help rules tells more)\n"},
		{"rules set default limit" + with, 2, `sluice rules: "limit" is no FIELD=VALUE: want such as limit=300, match.path=/login, or window=null for the default (sluice help rules tells more)` + "\n"},
		{"rules set default limit=1 limit=2" + with, 2, `sluice rules: "limit=2": limit is there twice (sluice help rules tells more)` + "\n"},
		{"rules set default match=null match.path=/a" + with, 2, `sluice rules: "match.path=/a": match is there with another value (sluice help rules tells more)` + "\n"},
		{"rules set default match.methods=[GET" + with, 2, `sluice rules: "match.methods=[GET" is no list and no fields: want such as 'match.methods=[GET, POST]' (sluice help rules tells more)` + "\n"},
		{"rules set default limit=0" + with, 1, "sluice rules: rule:1:10: limit: 0 is out of range: want 1 to 1000000000\n"},
		{"rules set default mode=on" + with, 1, `sluice rules: rule:1:21: mode: "on" is not possible: want enforce or shadow or off` + "\n"},
		{"rules set none limit=1" + with, 1, "sluice rules: no such rule: none (sluice rules lists them)\n"},
		{"rules history none" + with, 1, "sluice rules: no such rule: none (sluice rules lists them)\n"},
		{"rules rollback none" + with, 1, "sluice rules: no such rule: none (sluice rules lists them)\n"},
		{"rules rollback default" + with, 1, "sluice rules: rule default: there is no earlier version to go back to\n"},
		{"rules rollback default 7" + with, 1, "sluice rules: rule default: no version 7 is kept (sluice rules history default lists them)\n"},
		{"rules rollback default first" + with, 2, `sluice rules: version "first": want the number of one (sluice rules history default lists them), or 0, which is what the file says (sluice help rules tells more)` + "\n"},
		{"why 192.0.2.7 --config " + file, 0, ""},
		{"why 192.0.2.7" + at, 1, "sluice: " + back + " wants a token: give the file that holds it with --token-file FILE\n"},
		{"why 192.0.2.7 --config " + dir + "/none", 1, "sluice: " + dir + "/none: cannot be read: no such file or directory: give the path of a readable file\n"},
		{"why 192.0.2.7 --admin http://127.0.0.1", 2, `sluice: --admin: "http://127.0.0.1" is not the address of an operators' listener: want HOST:PORT or unix:/PATH (sluice --help tells more)` + "\n"},
		{"rules --frobnicate", 2, "sluice rules: unknown flag: --frobnicate (sluice help rules tells more)\n"},
		{"rules --admin http://127.0.0.1", 2, `sluice rules: --admin: "http://127.0.0.1" is not the address of an operators' listener: want HOST:PORT or unix:/PATH (sluice help rules tells more)` + "\n"},
		{"help blok", 2, `sluice: help: no command "blok" (did you mean block?): sluice help lists them (sluice --help tells more)` + "\n"},
		{"help frobnicate", 2, `sluice: help: no command "frobnicate": sluice help lists them (sluice --help tells more)` + "\n"},
		{"completion tcsh", 2, `sluice: completion: there is no completion for "tcsh": want bash, zsh, fish (sluice --help tells more)` + "\n"},
		{"version now", 2, "sluice: version wants --json or nothing (sluice --help tells more)\n"},
		{"-t", 2, "sluice: check wants one file: sluice check FILE (sluice --help tells more)\n"},
		{"-t " + anywhere, 0, ""},
		{"--version", 0, ""},
		{"block --help", 0, ""},
		{"help", 0, ""},
		{"help completion", 0, ""},
	} {
		code, stdout, stderr := sluice(strings.Fields(test.args)...)
		if code != test.code || stderr != test.says {
			t.Errorf("%s: exit %d\n got %swant %s", test.args, code, stderr, test.says)
		}
		if (code == 0) != (stdout != "") {
			t.Errorf("%s: standard output: %q", test.args, stdout)
		}
	}
	p.stop(syscall.SIGTERM)
}

// What is said to one edge of a PoP is told of all, and an edge that drains is not ready.
func TestOperatorsCommandsOverThePoP(t *testing.T) {
	t.Parallel()
	nodes := startMemcached(t)
	first, second := start(t, origin(t), "--memcached", nodes), start(t, origin(t), "--memcached", nodes)
	meet(first, second)
	if code, stdout, stderr := sluice("block", "192.0.2.7", "--rule", "default", "--admin", first.back); code != 0 || !strings.HasSuffix(stdout, " (10m)\nin force on all 2 edges of the PoP\n") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if _, stdout, _ := sluice("blocked", "--admin", second.back); !strings.Contains(squeezed(stdout), "\n192.0.2.7 default ") {
		t.Errorf("on the other edge: %s", stdout)
	}
	if _, stdout, _ := sluice("status", "--admin", second.back); !strings.Contains(squeezed(stdout), "\nNODE STATE\n"+nodes+" up") {
		t.Errorf("its status: %s", stdout)
	}
	if code, stdout, stderr := sluice("unblock", "192.0.2.7", "--rule", "default", "--admin", second.back); code != 0 || stdout != "192.0.2.7 is lifted under rule default; it starts afresh\nin force on all 2 edges of the PoP\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	second.stop(syscall.SIGTERM)
	first.stop(syscall.SIGTERM)
}
