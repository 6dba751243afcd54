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
	"sluice/edge/regular"
)

// fetchTime is how long a URL may take for its whole answer.
const fetchTime = 20 * time.Second

// validators are what a server knows its answer by (RFC 9110, 8.8).
type validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

var client = &http.Client{Timeout: fetchTime, CheckRedirect: func(next *http.Request,
	via []*http.Request) error {
	switch {
	case len(via) > 5:
		return errors.New("more than 5 redirects")
	case !sameHost(via[0].URL, next.URL):
		return fmt.Errorf("it redirects to another host, %s://%s: if that is right, configure the URL there", next.URL.Scheme, next.URL.Host)
	}
	return nil
}}

// sameHost reports whether a redirect stays where the operator sent the edge, perhaps over TLS now.
// An answer must not send it to others, such as those that only the edge can reach.
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
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, string(l.URL), nil)
	if err != nil {
		return nil, tags, false, err
	}
	r.Header.Set("User-Agent", "sluice")
	if l.tags.ETag != "" {
		r.Header.Set("If-None-Match", l.tags.ETag)
	}
	if l.tags.Modified != "" {
		r.Header.Set("If-Modified-Since", l.tags.Modified)
	}
	resp, err := client.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		// What has come, where that is not HTTP
		if before, _, quotes := strings.Cut(err.Error(), `"`); quotes {
			err = errors.New(before + "…")
		}
		return nil, tags, false, fmt.Errorf("%s: %w", l.Where(), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && l.tags != (validators{}):
		return nil, tags, true, nil
	case resp.StatusCode != http.StatusOK:
		return nil, tags, false, fmt.Errorf("%s: it answers %s", l.Where(),
			strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", http.StatusText(resp.StatusCode))))
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

// An answer is a list as a URL has it.
type answer struct {
	text []byte
	tags validators
}

// copyHead is the first line of a copy, behind copyMark: a comment, so that the copy is a list as
// well.
type copyHead struct {
	URL string `json:"url"` // its digest: a URL may hold a password
	Sum string `json:"sum"` // digest of the rest: half a copy is a list, too
	validators
}

const (
	copyMark = "# sluice "
	// Bytes of the first line; tags are headers of an answer, which has some KiB
	maxHead = 64 << 10
)

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (l *list) urlDigest() string { return digestOf([]byte(l.URL)) }

// copyName is the file of a copy. Each URL has its own: one that is tried does not take the copy of
// that in force.
func (l *list) copyName() string { return l.Name + "." + l.urlDigest()[:16] }

// dropCopies removes the copies of what is in force no more.
func (b *Store) dropCopies(inForce map[string]*list) {
	if b.Dir == "" {
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

// keep writes the copy of what a URL has answered, if Dir has it not yet. What could not be written
// is tried again after the next look of any list.
func (b *Store) keep(l *list) {
	l.mu.Lock()
	fresh := l.fresh
	l.mu.Unlock()
	if fresh == nil {
		return
	}
	if err := b.write(l, fresh); err != nil {
		if !l.unkept {
			b.Events.Add(events.Event{Time: time.Now(), Kind: events.List, Level: slog.LevelWarn,
				Text: "list " + l.Name + " cannot be kept for the next start: " + err.Error()})
		}
		l.unkept = true
		return
	}
	l.unkept = false
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fresh == fresh {
		l.fresh = nil
	}
}

func (b *Store) write(l *list, a *answer) error {
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	head, err := json.Marshal(copyHead{l.urlDigest(), digestOf(a.text), a.tags})
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(b.Dir, ".list.*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // gone if it has replaced the file
	_, err = draft.Write(append(append(append([]byte(copyMark), head...), '\n'), a.text...))
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), filepath.Join(b.Dir, l.copyName()))
}

// restore has the copy of a URL in force, and reports whether there is a good one.
func (b *Store) restore(l *list) bool {
	if b.Dir == "" {
		return false
	}
	text, err := regular.Read(filepath.Join(b.Dir, l.copyName()), maxHead+int64(l.MaxBytes))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		var head copyHead
		first, body, _ := bytes.Cut(text, []byte{'\n'})
		switch err = json.Unmarshal(bytes.TrimPrefix(first, []byte(copyMark)), &head); {
		case err != nil:
		case head.URL != l.urlDigest() || head.Sum != digestOf(body):
			err = errors.New("it is not as it was written")
		default:
			err = l.put(body, head.validators)
		}
	}
	if err != nil {
		b.Events.Add(events.Event{Time: time.Now(), Kind: events.List, Level: slog.LevelWarn,
			Text: "the copy of list " + l.Name + " cannot be used: " + err.Error()})
	}
	return err == nil
}
