// Package settings reads the files that an edge and its operators' commands are told of: configurations, secrets and tokens. What is wrong
// with one is a sentence: which setting, what is wrong, and what to do.
package settings

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"sluice/edge/config"
	"sluice/pop/across"
	"sluice/pop/nodename"
	"sluice/pop/secret"
)

// ReadConfig reads a configuration. The error names the file, and every line that is wrong.
func ReadConfig(file string) (*config.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("%s: cannot be read: %w: give the path of a readable file", file, err)
	}
	return ParseConfig(file, text)
}

// ParseConfig is ReadConfig of a text that a file is to have.
func ParseConfig(file string, text []byte) (*config.Config, error) {
	return config.Parser{Nodes: CheckNodes}.Parse(file, text)
}

// CheckNodes reports what is wrong with a list of memcached nodes.
func CheckNodes(names []string) error {
	_, err := nodename.All(names)
	return err
}

// Sentence is an error as one line: the first of several, and how to see the others.
func Sentence(err error) string {
	first, rest, more := strings.Cut(err.Error(), "\n")
	if !more {
		return first
	}
	return fmt.Sprintf("%s (and %d more: sluice check FILE shows all)", first, 1+strings.Count(rest, "\n"))
}

// ReadSecret reads what the edges of a PoP share, or makes it from the PoP's name.
func ReadSecret(c *config.Config) (secret.Secret, error) {
	if c.PoP.SecretFile == "" {
		return secret.Of([]byte(c.PoP.Name)), nil
	}
	text, err := os.ReadFile(c.PoP.SecretFile)
	if err != nil {
		return secret.Secret{}, fmt.Errorf("pop.secret_file: %w: give a readable file of at least 16 bytes", err)
	}
	if len(strings.TrimSpace(string(text))) < 16 {
		return secret.Secret{}, fmt.Errorf("pop.secret_file: %s has less than 16 bytes: head -c 32 /dev/urandom | base64 makes a good one", c.PoP.SecretFile)
	}
	return secret.Of([]byte(strings.TrimSpace(string(text)))), nil
}

// mostPeersKeys bounds what a message that nobody has signed costs: a hash for each.
const mostPeersKeys = 4

// ReadPeersKeys reads what PoPs share that are peers: a secret on each line, of which the first signs. "" has none.
func ReadPeersKeys(file string) (keys []across.Key, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("pop.peers_secret_file: %w: give a readable file with a secret of at least 16 bytes", err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch secret := strings.TrimSpace(line); {
		case secret == "":
		case len(secret) < 16:
			return nil, fmt.Errorf("pop.peers_secret_file: %s: line %d has less than 16 bytes: each line is a secret; head -c 32 /dev/urandom | base64 makes a good one", file, n)
		default:
			keys = append(keys, across.KeyOf([]byte(secret)))
		}
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("pop.peers_secret_file: %s is empty: head -c 32 /dev/urandom | base64 makes a secret", file)
	case len(keys) > mostPeersKeys:
		return nil, fmt.Errorf("pop.peers_secret_file: %s has %d secrets, one on each line: at most %d; remove the old ones", file, len(keys), mostPeersKeys)
	}
	return keys, nil
}

// GuessableSecret warns of a tier that others may reach, under a secret that they can guess; "": there is none.
func GuessableSecret(c *config.Config) string {
	if c.PoP.SecretFile != "" {
		return ""
	}
	for _, node := range c.PoP.Memcached {
		if name, err := nodename.Canonical(node); err == nil {
			node = name
		}
		if host, _, err := net.SplitHostPort(node); err == nil && !isLoopback(host) {
			return "the PoP's secret follows from its name: whoever reaches the tier can write into it; give pop.secret_file"
		}
	}
	return ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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
