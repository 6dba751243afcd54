package message

import "bytes"

// A Lookup finds what a request has by any of many names in one pass over its query or its cookies. A client chooses how long these are, so
// what they cost must not be multiplied by the number of names.
//
// Add all names before the first pass. From then on it is safe for concurrent use.
type Lookup struct {
	places  map[string]int // by folded name
	longest int
	first   [256]bool // what a folded name begins with: most names in a request end there
}

// Add returns the place of a name, counted from 0. Names that some server takes for the same have one place. A name is not encoded, and
// does not begin with a space.
func (l *Lookup) Add(name []byte) int {
	folded := make([]byte, len(name))
	for i, c := range name {
		folded[i] = foldCookie(c)
	}
	place, known := l.places[string(folded)]
	if !known {
		if l.places == nil {
			l.places = make(map[string]int)
		}
		place = len(l.places)
		l.places[string(folded)] = place
		l.longest, l.first[folded[0]] = max(l.longest, len(folded)), true
	}
	return place
}

// Len is how many places there are.
func (l *Lookup) Len() int { return len(l.places) }

// Parameters calls found for each parameter of a query that has one of the names, with its name and its value as they came. Names are
// read as the laxest of common servers take them (foldCookie; PHP also leaves out spaces before one, ends it at a null byte, and has a[]
// for an array a). So a[b has two names: a and a_b.
func (l *Lookup) Parameters(query []byte, at Split, found func(place int, name, value []byte)) {
	var room [128]byte
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
		i, folded, isName := 0, room[:0], true
		for ; isName && i < len(pair) && pair[i] != '='; i++ {
			c := pair[i]
			switch c {
			case '+':
				c = ' '
			case '%':
				if b, ok := Escaped(pair[i:]); ok {
					c = b
					i += 2
				}
			}
			switch {
			case c == ' ' && len(folded) == 0:
				continue
			case c == 0 || c == '[':
				if place, ok := l.places[string(folded)]; ok {
					name, value := cutParameter(pair, i)
					found(place, name, value)
				}
			}
			c = foldCookie(c)
			isName = c != 0 && len(folded) < l.longest && (len(folded) > 0 || l.first[c])
			folded = append(folded, c)
		}
		if !isName {
			continue
		}
		if place, ok := l.places[string(folded)]; ok {
			name, value := cutParameter(pair, i)
			found(place, name, value)
		}
	}
}

func indexSplit(query []byte, at Split) int {
	if at == Ampersands {
		return bytes.IndexByte(query, '&')
	}
	return bytes.IndexAny(query, string(at))
}

// cutParameter cuts a parameter at its equals sign, which is not before from.
func cutParameter(pair []byte, from int) (name, value []byte) {
	if i := bytes.IndexByte(pair[from:], '='); i >= 0 {
		return pair[:from+i], pair[from+i+1:]
	}
	return pair, pair[len(pair):]
}

// Cookies calls found for each cookie that has one of the names, with its name and its value as they came.
func (l *Lookup) Cookies(h *Head, found func(place int, name, value []byte)) {
	var room [128]byte
	for i := range h.Lines {
		if h.Lines[i].Kind != Cookie || h.Lines[i].Drop {
			continue
		}
		for rest := h.Lines[i].Value; len(rest) > 0; {
			var name, value []byte
			if name, value, rest = cutCookie(rest); len(name) == 0 || len(name) > l.longest || !l.first[foldCookie(name[0])] {
				continue
			}
			folded := room[:0]
			for _, c := range name {
				folded = append(folded, foldCookie(c))
			}
			if place, ok := l.places[string(folded)]; ok {
				found(place, name, value)
			}
		}
	}
}
