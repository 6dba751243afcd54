// Package settings reads the files that an edge and its operators' commands are given:
// configurations, secrets and tokens. What is wrong with one is a sentence: which setting, what is
// wrong, and what to do.
package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sluice/edge/config"
	"sluice/edge/config/compose"
	"sluice/edge/rules"
	"sluice/pop/across"
	"sluice/pop/placement"
	"sluice/pop/secret"
)

// A Reader reads configurations of edges with some modules.
type Reader struct{ Modules []config.Module }

// Config reads a configuration. The error names the file, and every line that is wrong.
func (r Reader) Config(file string) (*config.Config, error) {
	c, _, err := r.Files(file)
	return c, err
}

// Files is Config, and what it has read, even where that is wrong.
func (r Reader) Files(file string) (*config.Config, *compose.Files, error) {
	files := new(compose.Files)
	text, err := os.ReadFile(file)
	if err != nil {
		files.Unread(file, err)
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, files, fmt.Errorf("%s: cannot be read: %w: give the path of a readable file",
			file, err)
	}
	p := r.parser()
	p.Files = files
	c, err := p.Parse(file, text)
	return c, files, err
}

func (r Reader) parser() config.Parser {
	return config.Parser{Nodes: CheckNodes, Env: os.LookupEnv, Missing: missing, Modules: r.Modules}
}

// Default is the configuration of an empty file.
func (r Reader) Default() *config.Config { return r.parser().Default() }

// Rules reads rules alone, as config.Parser does.
func (r Reader) Rules(file string, text []byte) ([]rules.Config, error) {
	return r.parser().ParseRules(file, text)
}

// CheckNodes reports what is wrong with a list of memcached nodes.
func CheckNodes(names []string) error {
	_, err := placement.Names(names)
	return err
}

// Sentence is an error as one line: the first of several, and how to see the others.
func Sentence(err error) string {
	first, rest, more := strings.Cut(err.Error(), "\n")
	if !more {
		return first
	}
	return fmt.Sprintf("%s (and %d more: sluice check FILE shows all)", first,
		1+strings.Count(rest, "\n"))
}

// ReadSecret reads what the edges of a PoP share, or makes it from the PoP's name. A second line is
// the secret that the first replaces.
func ReadSecret(c *config.Config) (secret.Secret, error) {
	if c.PoP.SecretFile == "" {
		return secret.Of([]byte(c.PoP.Name)).At(c.PoP.Name), nil
	}
	lines, err := readSecrets("pop.secret_file", c.PoP.SecretFile, secret.MaxLines)
	if err != nil {
		return secret.Secret{}, err
	}
	key := secret.Of([]byte(lines[len(lines)-1]))
	for _, line := range slices.Backward(lines[:len(lines)-1]) {
		key = secret.Of([]byte(line)).After(key)
	}
	return key.At(c.PoP.Name), nil
}

// readSecrets reads the file of a setting: a secret on each line, at least one.
func readSecrets(setting, file string, most int) (secrets []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give a readable file with a secret of at least 16 bytes",
			setting, err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch line = strings.TrimSpace(line); {
		case line == "":
		case len(line) < 16:
			return nil,
				fmt.Errorf("%s: %s: line %d has less than 16 bytes: each line is a secret; head -c 32 /dev/urandom | base64 makes a good one", setting, file, n)
		default:
			secrets = append(secrets, line)
		}
	}
	switch {
	case len(secrets) == 0:
		return nil, fmt.Errorf("%s: %s is empty: head -c 32 /dev/urandom | base64 makes a secret",
			setting, file)
	case len(secrets) > most:
		return nil,
			fmt.Errorf("%s: %s has %d secrets, one on each line: at most %d; remove the old ones",
				setting, file, len(secrets), most)
	}
	return secrets, nil
}

// mostPeersKeys bounds what a message without a valid signature costs: a hash for each.
const mostPeersKeys = 4

// ReadPeersKeys reads what PoPs share that are peers: a secret on each line, of which the first
// signs. "" has none.
func ReadPeersKeys(file string) (keys []across.Key, err error) {
	if file == "" {
		return nil, nil
	}
	secrets, err := readSecrets("pop.peers_secret_file", file, mostPeersKeys)
	for _, line := range secrets {
		keys = append(keys, across.KeyOf([]byte(line)))
	}
	return keys, err
}

// GuessableSecret warns of a tier that others may reach, under a secret that they can guess; "":
// there is none.
func GuessableSecret(c *config.Config) string {
	if c.PoP.SecretFile != "" {
		return ""
	}
	for _, node := range c.PoP.Memcached {
		if name, err := placement.Canonical(node); err == nil {
			node = name
		}
		if !config.IsLocal(node) {
			return "the PoP's secret follows from its name: anyone who reaches the tier can write into it; give pop.secret_file"
		}
	}
	return ""
}

// ReadToken reads the token of the operators' listener from the file that a setting names.
func ReadToken(setting, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w: give a readable file that holds the token", setting, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s: %s is empty: put the token into it", setting, file)
	}
	return token, nil
}

// OpenToAll reports whether every user of this machine can read a file.
func OpenToAll(file string) bool {
	info, err := os.Stat(file)
	return file != "" && err == nil && info.Mode().Perm()&0o004 != 0
}
