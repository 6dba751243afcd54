package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// terms are files in which a module says on what terms it may be handed on, and what has to be said
// with it.
var terms = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notices?|patents)([-.].*)?$`)

// notices is the text of these files, of Go and of each module that the programs of an architecture
// are made of: those beside a package that is linked in, and in the folders above it. Files that
// say the same stand there once. A module without terms is an error.
func notices(folder, bin, arch string) ([]byte, error) {
	list := func(args ...string) ([]string, error) {
		cmd := exec.Command(goCommand(), args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch,
			"GOFLAGS=-mod=readonly")
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
	}
	env, err := list("env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	const format = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	packages, err := list("list", "-deps", "-f", format, "./cmd/...")
	if err != nil {
		return nil, err
	}
	// A text, and whose it is: PATH VERSION: FILE.
	type entry struct {
		text []byte
		of   []string
	}
	var all []*entry
	said := make(map[string]bool) // modules that have some
	add := func(module, version, name, file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		said[module] = true
		of := module + " " + version + ": " + filepath.ToSlash(name)
		i := slices.IndexFunc(all, func(e *entry) bool { return bytes.Equal(e.text, text) })
		if i < 0 {
			i, all = len(all), append(all, &entry{text: text})
		}
		if !slices.Contains(all[i].of, of) {
			all[i].of = append(all[i].of, of)
		}
		return nil
	}
	for _, name := range []string{"LICENSE", "PATENTS"} {
		if err := add("Go", env[1], name, filepath.Join(env[0], name)); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(packages))) {
		f := strings.Split(p, "\t")
		if len(f) != 4 { // the empty line of what is Go's, or ours
			continue
		}
		module, version, root := f[0], f[1], f[2]
		for dir := f[3]; ; dir = filepath.Dir(dir) {
			files, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				if !terms.MatchString(file.Name()) || !file.Type().IsRegular() ||
					strings.HasSuffix(file.Name(), ".go") {
					continue
				}
				name, err := filepath.Rel(root, filepath.Join(dir, file.Name()))
				if err == nil {
					err = add(module, version, name, filepath.Join(dir, file.Name()))
				}
				if err != nil {
					return nil, err
				}
			}
			if len(dir) <= len(root) {
				break
			}
		}
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			if !said[m.Path] {
				return nil,
					fmt.Errorf("%s has %s %s linked in, and no file of that module says on what terms", program, m.Path, m.Version)
			}
		}
	}
	for _, e := range all {
		slices.Sort(e.of)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.of[0], b.of[0]) })
	var b bytes.Buffer
	b.WriteString("The programs of this release are linked with Go and with the modules below, which are under these terms.\n")
	for _, e := range all {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 100), strings.Join(e.of, "\n"),
			bytes.TrimSpace(e.text))
	}
	return b.Bytes(), nil
}
