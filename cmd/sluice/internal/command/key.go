package command

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"sluice/edge/control"
	"sluice/edge/operator"
)

// keyFlags name who is counted by a key, in place of a source. What they say of a mistake has
// nothing of the value, which may be a secret.
type keyFlags struct {
	parts []string
	file  string
}

func (k *keyFlags) add(set *pflag.FlagSet) {
	set.StringArrayVar(&k.parts, "key", nil,
		"in place of a source, who is counted by a key: `PART=VALUE`, such as header:X-Api-Key=k-4711 or jwt:sub=alice; of a composite key once for each part, in any order")
	set.StringVar(&k.file, "key-file", "",
		"`FILE` that has the value of the --key without one, or lines PART=VALUE; - is standard input. So the value is in no history and no process list")
}

func (k *keyFlags) given() bool { return len(k.parts) > 0 || k.file != "" }

// maxKeyFile bounds what is read of a file: many times what an edge takes for a value.
const maxKeyFile = 256 << 10

// unreadError is what is wrong with a file, and not with the command line.
type unreadError struct{ error }

// key is who is named; stdin is what the file - is.
func (k *keyFlags) key(stdin io.Reader) (*control.Key, error) {
	parts, open := []control.KeyPart{}, -1
	for _, text := range k.parts {
		part, value, ok := strings.Cut(text, "=")
		switch {
		case part == "":
			return nil,
				operator.UsageErrorf("--key: want PART=VALUE, such as header:X-Api-Key=k-4711")
		case !ok && part == "global":
		case !ok && k.file == "":
			return nil,
				operator.UsageErrorf("--key has no value: want PART=VALUE, such as header:X-Api-Key=k-4711, or the value from --key-file FILE (- is standard input)")
		case !ok && open >= 0:
			return nil,
				operator.UsageErrorf("two --key have no value, and --key-file has one: give the file lines PART=VALUE, and leave --key out")
		case !ok:
			open = len(parts)
		case value == "":
			return nil, operator.UsageErrorf("--key %s: the value is empty", part)
		}
		parts = append(parts, control.KeyPart{Key: part, Value: value})
	}
	if k.file != "" {
		lines, err := k.read(stdin)
		if err != nil {
			return nil, unreadError{err}
		}
		switch {
		case open >= 0 && len(lines) > 1:
			return nil,
				unreadError{fmt.Errorf("--key-file %s: it has %d lines: want the value of --key %s, in one", k.file, len(lines), parts[open].Key)}
		case open >= 0:
			parts[open].Value = lines[0]
		default:
			for i, line := range lines {
				part, value, ok := strings.Cut(line, "=")
				if !ok || part == "" || value == "" {
					return nil,
						unreadError{fmt.Errorf("--key-file %s, line %d: want PART=VALUE, or name the part with --key PART", k.file, i+1)}
				}
				parts = append(parts, control.KeyPart{Key: part, Value: value})
			}
		}
	}
	if len(parts) == 1 {
		return &control.Key{KeyPart: parts[0]}, nil
	}
	return &control.Key{Parts: parts}, nil
}

// read reads the file's lines.
func (k *keyFlags) read(stdin io.Reader) ([]string, error) {
	from := stdin
	if k.file != "-" {
		f, err := os.Open(k.file)
		if err != nil {
			return nil, fmt.Errorf("--key-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxKeyFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--key-file: %w", err)
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("--key-file %s: it is longer than %d bytes: want one value", k.file,
			maxKeyFile)
	}
	lines := strings.Split(strings.ReplaceAll(strings.TrimRight(string(text), "\r\n"), "\r\n",
		"\n"), "\n")
	if lines[0] == "" {
		return nil, fmt.Errorf("--key-file %s: it is empty", k.file)
	}
	return lines, nil
}

// named is who is named: a source, or a key.
type named struct {
	source string
	key    *control.Key
}

// whom reads who a command line names.
func (k *keyFlags) whom(args []string, source func(string) error) (n named, err error) {
	switch {
	case k.given() && len(args) > 0:
		return n, operator.UsageErrorf("a SOURCE and --key: give one of them")
	case k.given():
		n.key, err = k.key(os.Stdin)
		return n, err
	case len(args) == 0:
		return n,
			operator.UsageErrorf("want a SOURCE|CIDR, the # and digest that sluice blocked shows, or --key PART=VALUE")
	}
	if err = source(args[0]); err != nil {
		return n, operator.UsageErrorf("%w", err)
	}
	n.source = args[0]
	return n, nil
}
