package lists

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/edge/events"
)

// fetchTime is how long a URL may take for its whole answer.
const fetchTime = 20 * time.Second

// validators are what a server knows its answer by (RFC 9110, 8.8).
type validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

var client = &http.Client{Timeout: fetchTime, CheckRedirect: func(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > 5:
		return errors.New("more than 5 redirects")
	case !sameHost(via[0].URL, next.URL):
		return fmt.Errorf("it redirects to another host, %s://%s: if that is right, configure the URL there", next.URL.Scheme, next.URL.Host)
	}
	return nil
}}

// sameHost reports whether a redirect stays where the operator sent the edge, perhaps over TLS now. An answer must not send
// it to others, such as those that only the edge can reach.
func sameHost(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	ports := map[string]string{"http": "80", "https": "443"}
	port := func(u *url.URL) string { return cmp.Or(u.Port(), ports[u.Scheme]) }
	return from.Scheme == to.Scheme && port(from) == port(to) ||
		from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
}

// fetch asks a URL for its list. same: it is that of the answer before.
func fetch(ctx context.Context, l *list) (text []byte, tags validators, same bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, nil)
	if err != nil {
		return nil, tags, false, err
	}
	r.Header.Set("User-Agent", "sluice")
	if l.etag != "" {
		r.Header.Set("If-None-Match", l.etag)
	}
	if l.modified != "" {
		r.Header.Set("If-Modified-Since", l.modified)
	}
	resp, err := client.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		if before, _, quotes := strings.Cut(err.Error(), `"`); quotes { // what has come, where that is not HTTP
			err = errors.New(before + "…")
		}
		return nil, tags, false, fmt.Errorf("%s: %w", l.Where(), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && l.etag+l.modified != "":
		return nil, tags, true, nil
	case resp.StatusCode != http.StatusOK:
		return nil, tags, false, fmt.Errorf("%s: it answers %s", l.Where(), strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", http.StatusText(resp.StatusCode))))
	}
	if text, err = bounded(l, resp.Body); err != nil {
		return nil, tags, false, fmt.Errorf("%s: %w", l.Where(), err)
	}
	return text, validatorsOf(resp.Header), false, nil
}

// redacted is a URL without password and query, in which services want their keys.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the URL"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

// copyHead is the first line of a copy, behind copyMark: a comment, so that the copy is a list as well.
type copyHead struct {
	URL string `json:"url"` // its digest: a URL may hold a password
	validators
}

const copyMark = "# sluice "

func (l *list) urlDigest() string {
	sum := sha256.Sum256([]byte(l.URL))
	return hex.EncodeToString(sum[:])
}

// copyName is the file of a copy. Each URL has its own: one that is tried does not take the copy of that in force.
func (l *list) copyName() string { return l.Name + "." + l.urlDigest()[:16] }

// dropCopies removes the copies of what is in force no more.
func (b *Book) dropCopies(inForce map[string]*list) {
	if b.Dir == "" || b.Offline {
		return
	}
	wanted := make(map[string]bool)
	for _, l := range inForce {
		wanted[l.copyName()] = true
	}
	files, _ := os.ReadDir(b.Dir) // none, or none that is read: then none goes
	for _, f := range files {
		if !wanted[f.Name()] {
			_ = os.Remove(filepath.Join(b.Dir, f.Name()))
		}
	}
}

// keep writes the copy of what a URL has answered.
func (b *Book) keep(l *list, text []byte) error {
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	head, err := json.Marshal(copyHead{l.urlDigest(), validators{l.etag, l.modified}})
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(b.Dir, ".list.*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // gone if it has replaced the file
	_, err = draft.Write(append(append(append([]byte(copyMark), head...), '\n'), text...))
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), filepath.Join(b.Dir, l.copyName()))
}

// restore has the copy of a URL in force, and reports whether there is a good one.
func (b *Book) restore(l *list) bool {
	if b.Dir == "" {
		return false
	}
	text, err := os.ReadFile(filepath.Join(b.Dir, l.copyName()))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var head copyHead
	if err == nil {
		first, body, _ := bytes.Cut(text, []byte{'\n'})
		if err = json.Unmarshal(bytes.TrimPrefix(first, []byte(copyMark)), &head); err == nil && head.URL != l.urlDigest() {
			return false // of another URL under this name
		}
		if err == nil {
			err = l.put(body, head.validators)
		}
	}
	if err != nil {
		b.Events.Add(events.Event{Time: time.Now(), Kind: events.List, Level: slog.LevelWarn, Text: "the copy of list " + l.Name + " cannot be used: " + err.Error()})
		return false
	}
	return true
}
