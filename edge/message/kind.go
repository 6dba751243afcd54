package message

// Kind distinguishes the headers that matter to a proxy.
type Kind uint8

const (
	Other Kind = iota
	Connection
	HopByHop // ends at this hop: Close, Keep-Alive, Proxy-Connection, TE, Trailer, Upgrade
	TransferEncoding
	ContentLength
	Host
	Cookie
	Expect
	ForwardedFor
	RealIP
	Forwarded
	ForwardedProto
	ForwardedHost
	ForwardedOther // other X-Forwarded-*: claims that only a trusted proxy may make
	Via
	RequestID // X-Request-ID: the edge writes it anew
	Override  // tells some servers of another target, method or host than the request's own
	// Spelled with underscores or other signs as one of the above, which many a server behind takes
	// for it (CGI, CVE-2024-45614);
	Lookalike
	// and Proxy, of which CGI makes the variable that names a program's own proxy (httpoxy,
	// CVE-2016-5385)
)

// KindOf is the kind of a header of that name.
func KindOf(name []byte) Kind { return classify(name) }

// kinds are the headers that mean something to a proxy, by the length of their names.
var kinds = [...][]struct {
	name string
	kind Kind
}{
	2:  {{"te", HopByHop}},
	3:  {{"via", Via}},
	4:  {{"host", Host}},
	5:  {{"close", HopByHop}, {"proxy", Lookalike}}, // close is a reserved name (RFC 9112, 9.6)
	6:  {{"cookie", Cookie}, {"expect", Expect}},
	7:  {{"upgrade", HopByHop}, {"trailer", HopByHop}},
	9:  {{"forwarded", Forwarded}, {"x-real-ip", RealIP}, {"path_info", Override}},
	10: {{"connection", Connection}, {"keep-alive", HopByHop}},
	11: {{"script_name", Override}},
	12: {{"x-request-id", RequestID}},
	14: {{"content-length", ContentLength}},
	15: {{"x-forwarded-for", ForwardedFor}},
	16: {{"x-forwarded-host", ForwardedHost}, {"proxy-connection", HopByHop}},
	17: {{"x-forwarded-proto", ForwardedProto}, {"transfer-encoding", TransferEncoding}},
}

func classify(name []byte) Kind {
	if len(name) < len(kinds) {
		for i := range kinds[len(name)] {
			k := &kinds[len(name)][i]
			if like, exact := isLike(name, k.name); exact {
				return k.kind
			} else if like {
				return Lookalike
			}
		}
	}
	if len(name) <= 8 || name[0]|0x20 != 'x' || foldHeader(name[1]) != '-' {
		return Other
	}
	for i := range families {
		f := &families[i]
		if len(name) != len(f.name) && (!f.prefix || len(name) < len(f.name)) {
			continue
		}
		if like, exact := isLike(name[:len(f.name)], f.name); exact {
			return f.kind
		} else if like {
			return Lookalike
		}
	}
	return Other
}

// families are more of the kinds: all X-Forwarded-*, and what some server lets stand for the
// request's target (Symfony, Zend, IIS behind ARR; gunicorn and Flask take SCRIPT_NAME off the
// path), its method (many a framework) or its host, which rules have not seen.
var families = [...]struct {
	name   string
	prefix bool
	kind   Kind
}{
	{"x-forwarded-", true, ForwardedOther},
	{"x-original-", true, Override},
	{"x-http-method", true, Override},
	{"x-rewrite-url", false, Override},
	{"x-method-override", false, Override},
	{"x-http-host-override", false, Override},
	{"x-script-name", false, Override},
}

// isLike reports whether some server takes a name for another of the same length, which is in lower
// case, and whether it is that one.
func isLike(name []byte, lower string) (like, exact bool) {
	if len(name) != len(lower) {
		return false, false
	}
	exact = true
	for i, c := range name {
		if foldHeader(c) != lower[i] && c != lower[i] {
			return false, false
		}
		exact = exact && (c == lower[i] || c|0x20 == lower[i])
	}
	return true, exact
}
