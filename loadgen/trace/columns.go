package trace

import (
	"bytes"
	"slices"
	"strings"
)

// parseALB reads the log of an application load balancer of AWS, or of a classic one, which has no
// type before the time.
func parseALB(line []byte, r *record) string {
	words := quotedWords(line)
	if len(words) > 0 && slices.Contains([]string{"http", "https", "h2", "grpcs", "ws", "wss"},
		string(words[0])) {
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

// w3cParser reads logs in W3C's extended format, whose columns "#Fields:" names: IIS writes them
// with blanks, CloudFront with tabs.
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

// npmParser reads the log of Nginx Proxy Manager, which names the client behind the request:
//
//	[time] cache upstream-status status - method scheme host "target" [Client ADDRESS] … "agent" "referer"
type npmParser struct{ clf clfParser }

func (p *npmParser) parse(line []byte, r *record) string {
	if line[0] != '[' {
		return SkippedSyntax
	}
	t, ok := p.clf.stamp(line[1:])
	if !ok {
		return SkippedTime
	}
	words := quotedWords(line[1+t.end:])
	if len(words) < 10 || string(words[8]) != "[Client" {
		return SkippedSyntax
	}
	r.at, r.coarse = t.at, t.coarse
	r.client, r.host = bytes.TrimSuffix(words[9], []byte("]")), words[6]
	if n, ok := decimal(words[2]); ok && n >= 100 && n <= 999 {
		r.status = int16(n)
	}
	requestLine(bytes.Join([][]byte{words[4], words[7]}, []byte(" ")), r)
	if agent := words[len(words)-2]; !isDash(agent) {
		r.agent = agent
	}
	return ""
}
