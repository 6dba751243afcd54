package message

import "bytes"

// A Lookup finds what a request has by any of many names in one pass over its query, its cookies or
// its header lines. A client chooses how long these are, so what they cost must not be multiplied
// by the number of names. One is for either headers (AddHeader) or the others (Add).
//
// Names of parameters and cookies are read as the laxest of common servers take them, of which each
// alone takes the same name in any number of spellings. They are decoded. White space and brackets
// before a name are left out (Rack takes [[q for q, qs [q]), a null byte ends it (PHP), and so do
// brackets (a[] is an array a; Rack takes a]] for a). Letters have no case (ASP.NET), and dots,
// spaces and an opening bracket are underscores (PHP). So a[b has two names: a and a_b.
//
// Add all names before the first pass. From then on it is safe for concurrent use.
type Lookup struct {
	positions map[string]int // by folded name
	longest   int
	first     [256]bool // what a folded name begins with: most names in a request end there
}

// Found is what a request has by a name.
type Found struct {
	Position    int
	Name, Value []byte // as they came
	Odd         bool   // only some servers see it
}

// IsName reports whether parameters and cookies can be looked up by a name: a token (RFC 9110,
// 5.6.2) that decoding leaves as it is.
func IsName(name []byte) bool { return IsToken(name) && !bytes.ContainsAny(name, "%+&#") }

// Add returns the position of a name, counted from 0. Names that some server takes for the same
// have one position. IsName holds for it.
func (l *Lookup) Add(name []byte) int {
	return l.add(name, foldName)
}

// AddHeader is Add for the name of a header.
func (l *Lookup) AddHeader(name []byte) int { return l.add(name, foldHeader) }

func (l *Lookup) add(name []byte, fold func(byte) byte) int {
	folded := make([]byte, len(name))
	for i, c := range name {
		folded[i] = fold(c)
	}
	position, known := l.positions[string(folded)]
	if !known {
		if l.positions == nil {
			l.positions = make(map[string]int)
		}
		position = len(l.positions)
		l.positions[string(folded)] = position
		l.longest, l.first[folded[0]] = max(l.longest, len(folded)), true
	}
	return position
}

// Len is how many positions there are.
func (l *Lookup) Len() int { return len(l.positions) }

// Parameters calls found for each parameter of a query that has one of the names.
func (l *Lookup) Parameters(query []byte, at Split, found func(Found)) {
	for len(query) > 0 {
		if c := query[0]; c == '&' || c == ';' && at == Semicolons { // there is room for thousands
			query = query[1:]
			continue
		}
		var pair []byte
		if i := indexSplit(query, at); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			pair, query = query, nil
		}
		if !l.mayBegin(pair) {
			continue
		}
		l.names(pair, func(position, end int) {
			f := Found{Position: position, Name: pair, Value: pair[len(pair):]}
			if i := bytes.IndexByte(pair[end:], '='); i >= 0 {
				f.Name, f.Value = pair[:end+i], pair[end+i+1:]
			}
			found(f)
		})
	}
}

func indexSplit(query []byte, at Split) int {
	if at == Semicolons {
		return bytes.IndexAny(query, "&;")
	}
	return bytes.IndexByte(query, '&')
}

// mayBegin reports whether a name may be one of l, by its first byte.
func (l *Lookup) mayBegin(name []byte) bool {
	if len(name) == 0 {
		return false
	}
	switch c := name[0]; c {
	case '%', '+', ' ', '[', ']':
		return true
	default:
		return l.first[foldName(c)]
	}
}

// names calls found for each of the names that text has up to its first equals sign, with where it
// ends.
func (l *Lookup) names(text []byte, found func(position, end int)) {
	var room [128]byte
	folded := room[:0]
	for i := 0; ; i++ {
		if i == len(text) || text[i] == '=' {
			if position, ok := l.positions[string(folded)]; ok {
				found(position, i)
			}
			return
		}
		c := text[i]
		at := i
		switch c {
		case '+':
			c = ' '
		case '%':
			if b, ok := Escaped(text[i:]); ok {
				c = b
				i += 2
			}
		}
		switch c {
		case ' ', '[', ']', 0:
			if len(folded) == 0 && c != 0 {
				continue
			}
			if c != ' ' {
				if position, ok := l.positions[string(folded)]; ok {
					found(position, at)
				}
			}
		}
		c = foldName(c)
		if c == 0 || c == ']' || len(folded) == l.longest || len(folded) == 0 && !l.first[c] {
			return
		}
		folded = append(folded, c)
	}
}

// Cookies calls found for each cookie that has one of the names. A name that stands before an
// equals sign where only some servers begin a cookie is Odd: after a comma (RFC 2965), white space
// (Python's SimpleCookie), a quote, or bytes that are white space once decoded (U+00A0).
func (l *Lookup) Cookies(h *Head, found func(Found)) {
	for i := range h.Lines {
		if h.Lines[i].Kind != Cookie || h.Lines[i].Drop {
			continue
		}
		line := h.Lines[i].Value
		strange := !isVisible(line) || bytes.IndexByte(line, ',') >= 0 ||
			bytes.IndexByte(line, '"') >= 0
		for len(line) > 0 {
			var pair []byte
			switch end := bytes.IndexByte(line, ';'); {
			case end == 0: // a head has room for thousands
				line = line[1:]
				continue
			case end > 0:
				pair, line = line[:end], line[end+1:]
			default:
				pair, line = line, nil
			}
			name, value, ok := bytes.Cut(TrimSpace(pair), []byte{'='})
			if !ok {
				continue
			}
			name, value = TrimSpace(name), TrimSpace(value)
			if l.mayBegin(name) {
				l.names(name, func(position, end int) {
					found(Found{Position: position, Name: name,
						Value: value})
				})
			}
			if strange || bytes.IndexByte(pair[1:], ' ') >= 0 {
				l.odd(name, value, found)
			}
		}
	}
}

// odd calls found for the names of cookies that only some servers see in one.
func (l *Lookup) odd(name, value []byte, found func(Found)) {
	hit := func(position, _ int) {
		found(Found{Position: position, Name: name, Value: value,
			Odd: true})
	}
	if word := lastToken(name); len(word) < len(name) {
		l.names(word, hit)
	}
	for rest := value; ; {
		i := bytes.IndexByte(rest, '=')
		if i < 0 {
			return
		}
		if word := lastToken(rest[:i]); len(word) < i {
			l.names(word, hit)
		}
		rest = rest[i+1:]
	}
}

// lastToken is what some servers may take for a name before an equals sign.
func lastToken(text []byte) []byte {
	for len(text) > 0 && isBreak(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	for i := len(text); i > 0; i-- {
		if isBreak(text[i-1]) {
			return text[i:]
		}
	}
	return text
}

// isBreak reports whether some server ends a word of a Cookie line at a byte.
func isBreak(c byte) bool { return c <= ' ' || c >= 0x7f || c == ',' || c == '"' }

// Headers calls found for each header line with one of the names that the origin gets as it came,
// as Head.Header has it.
func (l *Lookup) Headers(h *Head, found func(Found)) {
	var room [128]byte
	for i := range h.Lines {
		line := &h.Lines[i]
		if line.Drop || line.Kind == ForwardedFor || len(line.Name) > l.longest ||
			!l.first[foldHeader(line.Name[0])] {
			continue
		}
		folded := room[:0]
		for _, c := range line.Name {
			folded = append(folded, foldHeader(c))
		}
		if position, ok := l.positions[string(folded)]; ok {
			found(Found{Position: position, Name: line.Name, Value: line.Value})
		}
	}
}

// foldName folds as the laxest of common servers do: ASP.NET Core takes small letters and capitals
// for the same, PHP a dot, a space and an opening bracket for an underscore.
func foldName(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '.', c == ' ', c == '[':
		return '_'
	}
	return c
}
