package pop

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// record is a line of the mitigation log: a bit, how a counter stands that has come near its limit, or when hits
// of it came. A bit stands under its source's key, too. Every record carries a MAC under the PoP's secret, so that whoever else
// reaches the tier can block nobody; one that does not check is as good as missing.
type record struct {
	kind   kind
	rule   uint64 // Secret.ruleDigest
	source counter.Source
	epoch  uint64 // Machine.epoch of whoever wrote it
	start  time.Time
	end    time.Time     // aBlock
	by     mitigation.By // aBlock
	limit  uint32        // aBlock: that the source was judged by
	reason string        // aBlock
	newest uint32        // aCount, aQuestion: the group of groups[0]
	groups []uint64      // aCount, aQuestion: lanes, the newest group first
	edge   uint64        // aTimes: who counted them
	times  counter.Times // aTimes; aQuestion: the sub-window alone
}

type kind uint8

const (
	aBlock kind = iota
	_           // was a lift, before operators' words had a list of their own
	aCount
	aQuestion // aCount, and when did hits of a sub-window and the next come? (times.go)
	aTimes    // the answer
)

const (
	recordFixed = 1 + 8 + counter.SourceSize + 8 + 8
	maxReason   = 200
	maxRecord   = recordFixed + 13 + maxReason + macSize
)

// seal encodes r as one line of text without its end.
func (s Secret) seal(r record) []byte {
	b := make([]byte, 0, maxRecord)
	b = append(b, byte(r.kind))
	b = binary.BigEndian.AppendUint64(b, r.rule)
	b = r.source.AppendBinary(b)
	b = binary.BigEndian.AppendUint64(b, r.epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(r.start.UnixNano()))
	switch r.kind {
	case aBlock:
		b = binary.BigEndian.AppendUint64(b, uint64(r.end.UnixNano()))
		b = append(b, byte(r.by))
		b = binary.BigEndian.AppendUint32(b, r.limit)
		b = append(b, r.reason[:min(len(r.reason), maxReason)]...)
	case aQuestion, aCount:
		if r.kind == aQuestion {
			b = binary.BigEndian.AppendUint32(b, r.times.SubWindow)
		}
		b = binary.BigEndian.AppendUint32(b, r.newest)
		for _, g := range r.groups {
			b = binary.BigEndian.AppendUint64(b, g)
		}
	case aTimes:
		b = binary.BigEndian.AppendUint64(b, r.edge)
		b = binary.BigEndian.AppendUint32(b, r.times.SubWindow)
		for _, hits := range r.times.Hits {
			b = binary.BigEndian.AppendUint16(b, hits)
		}
	}
	return base64.RawStdEncoding.AppendEncode(nil, s.records.appendMAC(b, forMAC))
}

// open decodes what seal made and reports whether it is authentic.
func (s Secret) open(text []byte) (r record, ok bool) {
	if len(text) > base64.RawStdEncoding.EncodedLen(maxRecord) {
		return r, false
	}
	b, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil || len(b) < recordFixed+macSize {
		return r, false
	}
	if !s.records.checks(b, forMAC) {
		return r, false
	}
	body := b[:len(b)-macSize]
	r.kind = kind(body[0])
	r.rule = binary.BigEndian.Uint64(body[1:])
	if r.source, ok = counter.SourceFromBinary(body[9 : 9+counter.SourceSize]); !ok {
		return r, false
	}
	body = body[9+counter.SourceSize:]
	r.epoch = binary.BigEndian.Uint64(body)
	r.start = time.Unix(0, int64(binary.BigEndian.Uint64(body[8:])))
	switch body = body[16:]; r.kind {
	case aBlock:
		if len(body) < 13 || body[8] > byte(mitigation.ByAdmin) {
			return r, false
		}
		r.end, r.by, r.reason = time.Unix(0, int64(binary.BigEndian.Uint64(body))), mitigation.By(body[8]), string(body[13:])
		r.limit = binary.BigEndian.Uint32(body[9:])
	case aQuestion, aCount:
		if r.kind == aQuestion && len(body) >= 4 {
			r.times.SubWindow, body = binary.BigEndian.Uint32(body), body[4:]
		}
		if len(body) < 4 || len(body)%8 != 4 {
			return r, false
		}
		r.newest = binary.BigEndian.Uint32(body)
		for body = body[4:]; len(body) > 0; body = body[8:] {
			r.groups = append(r.groups, binary.BigEndian.Uint64(body))
		}
	case aTimes:
		if len(body) != 8+4+2*len(r.times.Hits) {
			return r, false
		}
		r.edge, r.times.SubWindow, body = binary.BigEndian.Uint64(body), binary.BigEndian.Uint32(body[8:]), body[12:]
		for i := range r.times.Hits {
			r.times.Hits[i] = binary.BigEndian.Uint16(body[2*i:])
		}
	default:
		return r, false
	}
	return r, true
}

// announce tells the tier of a bit: its own key first, so that it is there for whoever looks, then the log.
func (m *Machine) announce(n mitigation.News, now time.Time) {
	rule := m.rules.Load().byID[n.Key.Rule]
	if rule == nil {
		return
	}
	c := counter.Counter{Rule: rule.Counter, Source: n.Key.Source}
	i := m.place(c.Source)
	if i < 0 {
		return
	}
	f := flight{what: aBit, counter: c, record: &record{
		rule: rule.digest, source: c.Source, epoch: m.epoch(rule.Counter, c.Source), start: n.Bit.Start, end: n.Bit.End,
		by: n.Bit.By, limit: rule.Counter.Limit, reason: n.Bit.Reason,
	}}
	m.send(m.bitCommand(i, Add, *f.record, c, now), f)
}

func (m *Machine) bitCommand(node int, op Op, r record, c counter.Counter, now time.Time) Command {
	// A second after the end, because memcached's seconds are coarse; what counts is the end in the value.
	return Command{Node: node, Op: op, Key: m.secret.bitKey(c, r.epoch), Value: m.secret.seal(r), Expire: seconds(r.end.Sub(now)) + 1}
}

// bitAnswered goes on to the log, or looks who was there first.
func (m *Machine) bitAnswered(f flight, r *Result, now time.Time) {
	switch {
	case r.Status == NotThere && r.Op == Add:
		f.what = aBitLook
		m.send(Command{Node: r.Node, Op: Get, Key: r.Key}, f)
	default: // stored or unknown: the log is worth a try in any case
		m.appendLog(r.Node, *f.record)
	}
}

// bitLooked decides between our bit and the one that was there. One in force has been announced by its edge; one that has
// ended stands there only because memcached is slow to forget, and one of a stricter limit is none.
func (m *Machine) bitLooked(f flight, r *Result, now time.Time) {
	if r.Status == Done && r.Values[0] != nil {
		if there, ok := m.secret.open(r.Values[0]); ok && there.kind == aBlock && there.end.After(now) && there.limit >= f.record.limit && there.rule == f.record.rule && there.source == f.record.source {
			m.learn(there, now)
			return
		}
	}
	f.what = aBit
	m.send(m.bitCommand(r.Node, Set, *f.record, f.counter, now), f)
}

// learn puts a record from the tier into force here and reports whether that was news.
func (m *Machine) learn(r record, now time.Time) (news bool) {
	rule := m.rules.Load().byDigest[r.rule]
	if rule == nil {
		return false
	}
	key := mitigation.Key{Rule: rule.Counter.ID, Source: r.source}
	switch epoch := m.epoch(rule.Counter, r.source); {
	case r.epoch < epoch:
		return false // from before an operator lifted the source
	case r.epoch > epoch && now.Sub(r.start) >= logKept:
		return false // recorded long ago, and the lift is forgotten
	case r.epoch > epoch: // its edge knows of a lift that is on its way to this one
		m.void(wordName{rule.Name, r.source}, r.epoch, now)
	}
	switch r.kind {
	case aCount, aQuestion:
		if now.Sub(r.start) < logKept {
			c := counter.Counter{Rule: rule.Counter, Source: r.source}
			standing := m.counters.Learn(c, r.newest, r.groups, now)
			m.judge(c, counter.Standing{Over: standing.Over, News: standing.Behind}, now)
			if r.kind == aQuestion {
				m.tellTimes(c, r.times.SubWindow, now)
			}
		}
		return false
	case aTimes:
		m.hearTimes(key, counter.Counter{Rule: rule.Counter, Source: r.source}, r, now)
		return false
	}
	if r.limit < rule.Counter.Limit {
		return false // it was judged by a stricter rule than is in force here
	}
	end := r.end
	if latest := now.Add(max(rule.Timeout, rule.Counter.Lifetime())); end.After(latest) {
		end = latest
	}
	// now carries the monotonic clock, and ends are held against that.
	return m.bits.Start(key, mitigation.Bit{Start: r.start, End: now.Add(end.Sub(now)), By: mitigation.ByPoP, Reason: r.reason}, now)
}

// The mitigation log of a node is a list of lines per second, in parts of bounded size.
const (
	logKept    = 10 * time.Second
	logPart    = 48 << 10 // bytes after which a writer goes on to the next part
	logParts   = 16       // a second's parts; what comes beyond is not logged, and found at first sight
	logOverlap = time.Second
)

type logWriter struct {
	second int64
	part   int
	size   int
	lines  []byte // of this Step
}

// appendLog adds a line to the log of a node. Lines of one Step leave together.
func (m *Machine) appendLog(node int, r record) {
	w := &m.nodes[node].writer
	w.lines = append(append(w.lines, m.secret.seal(r)...), '\n')
}

// writeLogs sends the lines that a Step has gathered.
func (m *Machine) writeLogs(now time.Time) {
	for i := range m.nodes {
		if w := &m.nodes[i].writer; len(w.lines) > 0 {
			m.writeLog(i, bytes.Clone(w.lines), now)
			w.lines = w.lines[:0]
		}
	}
}

func (m *Machine) writeLog(node int, lines []byte, now time.Time) {
	w := &m.nodes[node].writer
	if second := now.Unix(); second != w.second {
		w.second, w.part, w.size = second, 0, 0
	}
	if w.size > logPart {
		w.part, w.size = w.part+1, 0
	}
	if w.part >= logParts {
		m.stats.logFull.Add(uint64(bytes.Count(lines, []byte{'\n'})))
		return
	}
	p := logPlace{w.second, w.part}
	c := Command{Node: node, Op: Append, Key: m.logKeys.key(p), Value: lines}
	if _, there := m.nodes[node].log.seen[p]; !there && w.size == 0 { // most seconds have one line, if any
		c.Op, c.Expire = Add, seconds(logKept)
	}
	w.size += len(lines)
	m.send(c, flight{what: aLog})
}

// logAnswered makes the part if there was none. If somebody made it in between, it is appended to after all; a part that is there
// and cannot be appended to is full.
func (m *Machine) logAnswered(f flight, r *Result, now time.Time) {
	if r.Status != NotThere {
		return
	}
	c := Command{Node: r.Node, Op: Append, Key: r.Key, Value: r.Value}
	switch {
	case r.Op == Append && f.tries == 0:
		c.Op, c.Expire = Add, seconds(logKept)
		m.send(c, flight{what: aLog, tries: 1})
	case r.Op == Add:
		m.send(c, flight{what: aLog, tries: 1})
	default:
		if w := &m.nodes[r.Node].writer; r.Key == m.logKeys.key(logPlace{w.second, w.part}) {
			w.size = logPart + 1
		}
		m.writeLog(r.Node, r.Value, now)
	}
}

type logPlace struct {
	second int64
	part   int
}

// logKeys remembers keys of the last seconds, which are asked for again and again.
type logKeys struct {
	secret Secret
	last   [64]struct {
		place logPlace
		key   string
	}
}

func (l *logKeys) key(p logPlace) string {
	at := &l.last[(uint64(p.second)*4+uint64(p.part))%uint64(len(l.last))]
	if at.place != p || at.key == "" {
		at.place, at.key = p, l.secret.logKey(p.second, p.part)
	}
	return at.key
}

// logReader reads a node's log, a little of it again each time, because a line may be written late.
type logReader struct {
	until time.Time        // everything before this has been read
	news  time.Time        // when it last had something new
	seen  map[logPlace]int // bytes of a part that have been read
	asked []logPlace       // of the probe under way
}

func newLogReader(now time.Time) logReader {
	return logReader{until: now, seen: make(map[logPlace]int)}
}

// keys names the parts to read: from a little before what has been read to a second ahead, because clocks differ.
func (l *logReader) keys(names *logKeys, now time.Time) []string {
	l.asked = l.asked[:0]
	from := l.until.Add(-logOverlap)
	if oldest := now.Add(-logKept); from.Before(oldest) {
		from = oldest // what was missed is found at first sight of its sources
	}
	var keys []string
	for second := from.Unix(); second <= now.Unix()+1; second++ {
		for part := 0; part < logParts && len(keys) < maxKeys; part++ {
			p := logPlace{second, part}
			l.asked = append(l.asked, p)
			keys = append(keys, names.key(p))
			if _, ok := l.seen[p]; !ok {
				break
			}
		}
	}
	return keys
}

// maxKeys is how many keys a Get may have.
const maxKeys = 100

// readLog learns the lines that are new since the last reading.
func (m *Machine) readLog(n *node, r *Result, now time.Time) {
	l := &n.log
	for i, p := range l.asked {
		if i >= len(r.Values) || r.Values[i] == nil {
			continue
		}
		text, seen := r.Values[i], l.seen[p]
		if len(text) < seen {
			seen = 0 // the node came back without it, and somebody wrote anew
		}
		for line := range bytes.Lines(text[seen:]) {
			if line[len(line)-1] != '\n' {
				break
			}
			seen += len(line)
			l.news = now
			if rec, ok := m.secret.open(line[:len(line)-1]); !ok {
				m.stats.forged.Add(1)
			} else if m.learn(rec, now) {
				m.stats.propagation.Observe(now.Sub(rec.start))
			}
		}
		l.seen[p] = seen
	}
	l.until = n.probed
	for p := range l.seen {
		if time.Unix(p.second, 0).Before(now.Add(-2 * logKept)) {
			delete(l.seen, p)
		}
	}
}

func seconds(d time.Duration) int32 {
	return int32(min(max((d+time.Second-1)/time.Second, 1), 30*24*3600))
}
