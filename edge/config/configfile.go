package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/config/compose"
	"sluice/edge/socket"
)

// Parse is Parse of the zero Parser.
func Parse(file string, text []byte) (*Config, error) { return Parser{}.Parse(file, text) }

// A Parser reads configuration files.
type Parser struct {
	// Nodes returns what is wrong with a list of memcached nodes, of which all but the last have
	// passed; nil takes any.
	Nodes func(names []string) error
	// Env looks up what ${NAME} stands for; nil: nothing is set.
	Env func(name string) (value string, set bool)
	// Missing is what the program was built without, by the setting that needs it. Such a setting
	// is an error.
	Missing map[string]string
	// Modules are features whose settings are read as well.
	Modules []Module
	// Others has sections that nobody reads skipped: those of features that this program has no use
	// for.
	Others bool
	// Files is told what was read, even where it is wrong; nil: nobody wants it.
	Files *compose.Files
}

// Default is Default with what modules add.
func (p Parser) Default() *Config {
	c := Default()
	c.Modules = p.Modules
	for _, m := range p.Modules {
		if m.Settings != nil {
			c.set(m.Name, m.Settings())
		}
	}
	return c
}

// Parse reads a configuration file and those that it includes. The error joins everything that is
// wrong with them, one line each in the form file:line:column: what is wrong, and the remedy.
func (p Parser) Parse(file string, text []byte) (*Config, error) {
	tree, errs := compose.Read(file, text, compose.Options{Env: p.Env, Files: p.Files})
	c, r := p.Default(), &reader{tree: tree, errs: errs, nodes: p.Nodes,
		missing: p.Missing, modules: p.Modules, others: p.Others}
	if tree.Root != nil && len(errs) == 0 {
		if r.hide(tree.Root, nil, c); len(r.errs) == 0 {
			r.config(tree.Root, c)
		}
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	c.Composed.Notes = tree.Notes
	return c, nil
}

func (r *reader) config(n ast.Node, c *Config) {
	names := make(map[string]ast.Node)
	f := r.settings("", c)
	f["listen"] = r.listeners("listen", &c.Listen)
	f["listen_tls"] = r.listeners("listen_tls", &c.ListenTLS)
	f["pop"] = func(n ast.Node) { r.pop(n, &c.PoP) }
	f["deny"] = r.group("deny", &c.Deny, &c.DenyMarked)
	f["allow"] = r.group("allow", &c.Allow, &c.AllowMarked)
	f["origins"] = r.each("origins", func(n ast.Node) { r.origin(n, c) })
	f["plans"] = func(n ast.Node) { r.plans(n, &c.Plans) }
	f["rules"] = r.each("rules", func(n ast.Node) { r.rule(n, c, names) })
	seen := r.mapping(n, "configuration", r.sections(n, c, f))
	for _, o := range c.optional() {
		if r.missing[o.setting] != "" && o.given {
			r.absent = append(r.absent, o.setting)
		}
	}
	for _, setting := range r.absent {
		section, _, _ := strings.Cut(setting, ".")
		r.fail(seen[section],
			"%s: this program was built without %s: build it with make build, or remove the setting",
			setting, r.missing[setting])
	}
	for i, at := range r.planned { // plans may come after rules
		if at != nil && i < len(c.Rules) {
			if err := c.CheckRule(&c.Rules[i]); err != nil {
				r.fail(at, "%v", err)
			}
		}
	}
	r.findFacts(c)
}

// An option is a setting whose part a program may be built without.
type option struct {
	setting string
	given   bool
}

func (c *Config) optional() []option {
	return []option{
		{"listen.redirect", slices.ContainsFunc(c.Listen,
			func(l Listener) bool { return l.Redirect != 0 })},
		{"plans.store", c.Plans.Store != ""},
	}
}

// CheckAddress reports whether one can listen on an address as it is written.
func CheckAddress(text string) error {
	if path, unix := strings.CutPrefix(text, "unix:"); unix {
		if !strings.HasPrefix(path, "/") || len(path) > socket.MaxPath {
			return fmt.Errorf("%q is not a Unix socket to listen on: want unix:/PATH of at most %d bytes", text, socket.MaxPath)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address to listen on: want HOST:PORT or :PORT, the port from 0 to 65535", text)
	}
	return nil
}

func (r *reader) pop(n ast.Node, p *PoP) {
	f := r.settings("pop.", p)
	f["memcached"] = r.texts("pop.memcached", func(n ast.Node, text string) {
		list := append(p.Memcached, text)
		if r.nodes != nil {
			if err := r.nodes(list); err != nil {
				r.fail(n, "pop.memcached: %v", err)
				return
			}
		}
		p.Memcached = list
	})
	f["peers"] = r.each("pop.peers", func(n ast.Node) { r.peer(n, p) })
	r.mapping(n, "pop", f)
}

// CheckPoPName reports whether a PoP may have this name.
func CheckPoPName(name string) error {
	if !plainName(name) {
		return fmt.Errorf("%q is not a name for a PoP: want 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	return nil
}

// checkName reports whether anything else may have this name.
func checkName(name string) error {
	if !plainName(name) {
		return fmt.Errorf("%q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	return nil
}

// checkOwnName reports whether operators may give a name, and write it in a path, where dots are
// steps.
func checkOwnName(name string) error {
	if strings.Trim(name, ".") == "" {
		return fmt.Errorf("%q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", name)
	}
	return checkName(name)
}

var plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`).MatchString
