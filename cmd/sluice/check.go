package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/cmd/sluice/internal/settings"
	"sluice/cmd/sluice/internal/tier"
	"sluice/cmd/sluice/internal/upgrade"
	"sluice/counter"
	"sluice/edge"
	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/edge/operator"
	"sluice/edge/regular"
	"sluice/edge/upstream"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// A report is what check finds out about a file.
type report struct {
	File     string   `json:"file"`
	Good     bool     `json:"good"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
	Notes    []string `json:"notes"` // what it comes to, if it is good
	// Differences are those from what runs; nil: nobody asked.
	Differences []operator.Difference `json:"differences,omitempty"`

	config *config.Config // if it is good
}

// examine finds everything that is wrong with a file, and all that a start with it would find; and
// what will hurt. It starts nothing, and changes nothing.
func examine(file string) report {
	r := report{File: file, Errors: []string{}, Warnings: []string{}, Notes: []string{}}
	c, err := reader().Config(file)
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
		return r
	}
	noOrigin := c.NoOrigin()
	if noOrigin {
		o := upstream.Default() // in place of --origin
		o.Hosts, o.Servers = []string{"*"}, []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
		c.Origins = []upstream.Config{o}
	}
	if err := c.Check(); err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
		return r
	}
	wrong, doubtful, notes := tryStart(c)
	for _, err := range wrong {
		r.Errors = append(r.Errors, fmt.Sprintf("%s: %v", file, err))
	}
	r.Warnings = append(append(r.Warnings, c.Warnings()...), doubtful...)
	if r.Good = len(wrong) == 0; !r.Good {
		return r
	}
	switch {
	case noOrigin:
		c.Origins = nil
		r.Notes = append(r.Notes, "good, but it names no origin: serving needs --origin URL")
	case len(c.Rules) == 0: // defaultRule
		r.Notes = append(r.Notes,
			"good, but it gives no rules: serving blocks sources over 100 in 1m (--limit, --window), unless there is a rule, such as one with mode: shadow")
	default:
		r.Notes = append(r.Notes, "good: "+inForce(c))
	}
	for i := range c.Rules {
		if families := c.Rules[i].Families(); families != "" {
			r.Notes = append(r.Notes, "rule "+c.Rules[i].Name+" counts by "+families)
		}
	}
	r.Notes = append(r.Notes, notes...)
	r.config = c
	return r
}

func (r report) print(stdout, stderr io.Writer) int {
	for _, text := range r.Errors {
		fmt.Fprintln(stderr, text)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(stderr, "%s: warning: %s\n", r.File, w)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(stdout, "%s: %s\n", r.File, note)
	}
	if !r.Good {
		return operator.ExitFailed
	}
	return 0
}

// printDifferences says what a reload of the file would change where an edge runs.
func (r report) printDifferences(where string, stdout io.Writer) int {
	if len(r.Differences) == 0 {
		fmt.Fprintf(stdout, "%s: the edge at %s runs what it says\n", r.File, where)
		return 0
	}
	fmt.Fprintf(stdout, "%s: the edge at %s would change:\n", r.File, where)
	for _, d := range r.Differences {
		fmt.Fprintln(stdout, "  "+operator.Printable(d.String()))
	}
	return operator.ExitFailed
}

// tryStart does what a start does before anything is served, on the way to which nothing is opened
// for others.
func tryStart(c *config.Config) (wrong []error, doubtful, notes []string) {
	try := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	doubt := func(text string) {
		if text != "" {
			doubtful = append(doubtful, text)
		}
	}
	awaits := func(err error) {
		if text := notYet(err); text != "" {
			doubt(text)
			return
		}
		try(err)
	}
	use := modules(true, nil)
	place := use.Rules(c)
	key, err := settings.ReadSecret(c)
	awaits(err)
	switch {
	case c.StateDir == "":
	case err != nil: // no key to read by what is kept there
		awaits(tryFolder(c.StateDir))
	default:
		awaits(tryState(c, key, place))
	}
	doubt(settings.GuessableSecret(c))
	_, err = settings.ReadPeersKeys(c.PoP.PeersSecretFile)
	awaits(err)
	_, err = settings.ReadToken("admin_token_file", c.AdminTokenFile)
	awaits(err)
	services := calledOf(c)
	for _, s := range services {
		_, _, err = s.readToken()
		awaits(err)
	}
	if place != nil {
		_, err = place.Open(key, 0, nil)
		try(err)
	}
	_, err = edge.New(edge.Options{Config: c, Use: use,
		Table: counter.New(counter.Options{Counters: 1024}), Blocks: mitigation.New(1024, nil)})
	try(err)
	shown, err := clientCertificates(c)
	try(err)
	for name, certificates := range shown {
		doubtful = append(doubtful, expired(name, certificates, time.Now())...)
	}
	if path, is := strings.CutPrefix(c.Plans.Store, "sqlite:"); is {
		if err := regular.TryWrite(path); err != nil {
			awaits(fmt.Errorf("plans.store: %w: give the path of a file that can be written", err))
		}
	}
	for _, s := range services {
		if err := s.readCertificates(); err != nil {
			try(err)
		} else if s.certificates != nil {
			doubtful = append(doubtful, expired(s.Name, s.certificates, time.Now())...)
		}
	}
	for _, err := range use.Try(c) {
		awaits(err)
	}
	at := [][2]string{{"admin", c.Admin}, {"peers_listen", c.PoP.PeersListen}}
	for _, s := range services {
		at = append(at, [2]string{s.Name, s.Listen})
	}
	for _, l := range c.Listen {
		at = append(at, [2]string{"listen", l.Address})
	}
	for _, l := range c.ListenTLS {
		at = append(at, [2]string{"listen_tls", l.Address})
	}
	for _, l := range at {
		switch err := tryListen(l[0], l[1]); {
		case errors.Is(err, syscall.EADDRINUSE):
			doubt(l[0] + " " + l[1] + inUse)
		case errors.Is(err, syscall.EACCES):
			doubt(upgrade.ListenError(l[0], l[1], err).Error() +
				", or start it as a unit that may (AmbientCapabilities=CAP_NET_BIND_SERVICE)")
		default:
			try(err)
		}
	}
	doubtful = append(doubtful, originsHere(c)...)
	secrets := map[string]string{"admin_token_file": c.AdminTokenFile,
		"pop.secret_file": c.PoP.SecretFile, "pop.peers_secret_file": c.PoP.PeersSecretFile,
		"plans.store": strings.TrimPrefix(c.Plans.Store, "sqlite:")}
	for _, s := range services {
		if secrets[s.Name+".key_file"] = s.KeyFile; s.TokenFile != nil {
			secrets[s.Name+".token_file"] = *s.TokenFile
		}
	}
	for _, f := range c.Files() {
		if f.Secret {
			secrets[f.Setting] = f.Path
		}
	}
	for _, what := range slices.Sorted(maps.Keys(secrets)) {
		if file := secrets[what]; settings.OpenToAll(file) {
			doubt(what + ": every user of this machine can read " + file + ": chmod o= it")
		}
	}
	// Else no request is expected there
	if at := c.Listen[0].Address; len(c.Source.Trust) == 0 && len(c.Listen)+len(c.ListenTLS) == 1 &&
		isPrivate(at) && (len(c.Origins) > 0 || c.CheckPath != "") {
		doubt("no proxy is trusted, and " + at +
			" is where a proxy connects, not a client: all its clients would be limited as one; name it in source.trust")
	}
	return wrong, doubtful, use.Notes()
}

// credentialsDir is where systemd puts the files of a unit's LoadCredential= while it runs, in a
// folder of the unit's.
const credentialsDir = "/run/credentials/"

// notYet explains an error that a unit would not have, because systemd makes what is missing:
// credentials, and folders (StateDirectory=, LogsDirectory=). "": it is an error for a unit as
// well.
func notYet(err error) string {
	var of *fs.PathError
	if !errors.As(err, &of) || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	in, there := os.Stat(filepath.Dir(of.Path))
	switch {
	case strings.HasPrefix(of.Path, credentialsDir) && there != nil:
		return err.Error() +
			"; not checked, because systemd puts it there when the unit starts (LoadCredential=)"
	case of.Op == regular.Writing && there == nil && in.IsDir():
		return err.Error() +
			"; a start needs it: only systemd makes it, for a unit (StateDirectory=, LogsDirectory=)"
	}
	return ""
}

// inUse is a warning about an address where something listens.
const inUse = ": the port is in use: by an edge that this file is for, or a start will fail"

// tryState reports what a start would find in a state_dir.
func tryState(c *config.Config, key secret.Secret, place *rulelist.Place) error {
	if err := tier.CheckState(c, key, place); err != nil {
		return err
	}
	return tryFolder(c.StateDir)
}

func tryFolder(stateDir string) error {
	if err := regular.Access(stateDir, regular.MayWrite|regular.MaySearch); err != nil {
		return fmt.Errorf("state_dir: %w: give a folder that this user may write", err)
	}
	return nil
}

// tryListen reports why one cannot listen at an address. That a port is in use, or not for this
// user, is an error of the system's.
func tryListen(what, address string) error {
	if address == "" {
		return nil
	}
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
			return upgrade.ListenError(what, address, &fs.PathError{Op: "bind", Path: path,
				Err: errors.New("there is something else")})
		}
		if err := regular.Access(filepath.Dir(path),
			regular.MayWrite|regular.MaySearch); err != nil {
			return upgrade.ListenError(what, address, err)
		}
		return nil
	}
	ln, err := net.Listen("tcp", address)
	if err == nil {
		return ln.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
		return upgrade.ListenError(what, address, err)
	}
	return err
}

// isPrivate reports whether an address to listen on is one that clients of the internet do not
// reach themselves.
func isPrivate(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsPrivate())
}
