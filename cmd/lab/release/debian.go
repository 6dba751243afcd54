package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// placed says where in the system a Debian package puts what.
var placed = map[string]string{
	"deploy/systemd/sluice.service":      "lib/systemd/system/sluice.service",
	"deploy/systemd/sluice-wall.service": "lib/systemd/system/sluice-wall.service",
	"deploy/debian/sluice.yaml":          "etc/sluice/sluice.yaml",
	"deploy/debian/logrotate":            "etc/logrotate.d/sluice",
	"deploy/debian/lintian-overrides":    "usr/share/lintian/overrides/sluice",
	"deploy/anycast/announce.sh":         "usr/lib/sluice/announce.sh",
}

// read is what there is to read and to start from. It keeps its paths below usr/share/doc/sluice,
// so that links hold.
var read = []string{"README.md", "CHANGELOG.md", "CHANGELOG-0.1.md",
	"CHANGELOG-commands.md", "CHANGELOG-tools.md", "SECURITY.md", "docs", "examples", "deploy"}

// unread is what of that is for making the documents or the package.
var unread = regexp.MustCompile(`^docs/(figures|pages)/|^deploy/debian/|^deploy/helm/[^/]+$|\.sh$`)

// shells is where each has completions looked for.
var shells = map[string]string{
	"bash": "usr/share/bash-completion/completions/sluice",
	"zsh":  "usr/share/zsh/vendor-completions/_sluice",
	"fish": "usr/share/fish/vendor_completions.d/sluice.fish",
}

// documents adds to the files of a package what there is to read, and what shells read.
func documents(folder string, files map[string][]byte) error {
	for _, what := range read {
		if err := filepath.WalkDir(filepath.Join(folder, what), func(file string, d fs.DirEntry,
			err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			below, err := filepath.Rel(folder, file)
			if below = filepath.ToSlash(below); err != nil || unread.MatchString(below) {
				return err
			}
			files["usr/share/doc/sluice/"+below], err = os.ReadFile(file)
			return err
		}); err != nil {
			return err
		}
	}
	for shell, to := range shells {
		cmd := exec.Command(goCommand(), "run", "-trimpath", "-ldflags=-s -w", "./cmd/sluice",
			"completion", shell)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1",
			"GOARM64=v8.0")
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("completion %s: %w", shell, err)
		}
		files[to] = text
	}
	return nil
}

// debian makes a Debian package: an ar archive of a version, what dpkg should know and do, and the
// files.
func debian(folder, bin, arch, version, maintainer string, terms []byte,
	when time.Time) ([]byte, error) {
	files := make(map[string][]byte)
	for from, to := range placed {
		content, err := os.ReadFile(filepath.Join(folder, from))
		if err != nil {
			return nil, err
		}
		files[to] = content
	}
	if err := documents(folder, files); err != nil {
		return nil, err
	}
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		files["usr/bin/"+program] = content
	}
	files["usr/share/doc/sluice/copyright"] = []byte("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sluice\n" +
		"Comment: The programs are linked with Go and with modules of others, whose licences and notices are in NOTICES.gz beside this file.\n\n" +
		"Files: *\nCopyright: " + strconv.Itoa(when.Year()) +
		" the Sluice authors\nLicense: Apache-2.0\n On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n")
	var err error
	if files["usr/share/doc/sluice/NOTICES.gz"], err = newGzip(terms); err != nil {
		return nil, err
	}
	entry, err := newGzip([]byte(fmt.Sprintf("sluice (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- %s  %s\n",
		version, maintainer, when.Format(time.RFC1123Z))))
	if err != nil {
		return nil, err
	}
	files["usr/share/doc/sluice/changelog.gz"] = entry

	data, sums, size := newBundle("./", when), "", 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		m := mode(files[name])
		if strings.HasPrefix(name, "usr/bin/") {
			m = 0o755
		}
		data.file(name, m, files[name])
		sums += fmt.Sprintf("%x  %s\n", md5.Sum(files[name]), name)
		size += (len(files[name]) + 1023) / 1024
	}
	control := newBundle("./", when)
	control.file("control", 0o644, []byte(fmt.Sprintf(`Package: sluice
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Depends: adduser
Recommends: ca-certificates
Suggests: memcached, bird2, prometheus
Section: net
Priority: optional
Description: HTTP edge that stops abusive sources before they reach an origin
 Sluice limits what each source may ask of an origin, by sliding window
 counters that several edges share through memcached. A source over its limit
 is blocked for a time, on every edge, within milliseconds.
 .
 sluice is one edge. sluice-wall has the kernel refuse who is blocked.
 sluice-loadgen replays logs and attacks, and tells how right the decisions are.
`, version, arch, maintainer, size)))
	control.file("conffiles", 0o644, []byte("/etc/logrotate.d/sluice\n/etc/sluice/sluice.yaml\n"))
	control.file("md5sums", 0o644, []byte(sums))
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		content, err := os.ReadFile(filepath.Join(folder, "deploy/debian", script))
		if err != nil {
			return nil, err
		}
		control.file(script, 0o755, content)
	}
	controlBytes, err := control.bytes()
	if err != nil {
		return nil, err
	}
	dataBytes, err := data.bytes()
	if err != nil {
		return nil, err
	}
	var ar bytes.Buffer
	ar.WriteString("!<arch>\n")
	for _, member := range []struct {
		name    string
		content []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controlBytes}, {"data.tar.gz",
		dataBytes}} {
		fmt.Fprintf(&ar, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, when.Unix(), 0, 0, "100644", len(member.content))
		ar.Write(member.content)
		if len(member.content)%2 == 1 {
			ar.WriteByte('\n')
		}
	}
	return ar.Bytes(), nil
}

func newGzip(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(content)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}
