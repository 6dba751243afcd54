package listen

import "sync/atomic"

// An Entry is what the configuration says of a listener, whose connections several sockets may
// share.
type Entry struct {
	Field   string // listen or listen_tls
	Address string // as it was configured
	// Redirect is the port of the https address that every request is sent to; 0: requests are
	// served.
	Redirect uint16
	// ProxyProtocol says whether trusted peers begin with a PROXY header; nil: Admission.Proxied
	// does.
	ProxyProtocol *bool

	Accepted atomic.Uint64 // connections, those turned away among them
}

// add has the entry counted among the registry's.
func (l *Registry) add(e *Entry) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, known := range l.entries {
		if known == e {
			return
		}
	}
	l.entries = append(l.entries, e)
}

// NewListener is one of the entry's sockets.
func (l *Registry) NewListener(of *Entry) *Listener {
	l.add(of)
	return &Listener{Registry: l, Entry: of, Ended: make(chan struct{})}
}
