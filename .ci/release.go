// Command release makes what is handed out, of the commit that is checked out: go run .ci/release.go [--out dist] [--once].
// For each architecture an archive and a Debian package, and SHA256SUMS of them all. All is built twice, from two clones in different folders,
// the second time the first architecture with an empty build cache; if one byte differs, nothing is handed out. lintian reads the packages where it is
// installed.
// Only Go and git are needed. Times in archives are the commit's; version and commit are in the programs (sluice version).
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var architectures = []string{"amd64", "arm64"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	out := flag.String("out", "dist", "folder for the results")
	once := flag.Bool("once", false, "build once, without the proof that it can be repeated")
	maintainer := flag.String("maintainer", "The Sluice authors <sluice@example.org>", "of the Debian package")
	flag.Parse()
	if err := release(*out, *maintainer, *once); err != nil {
		log.Fatal(err)
	}
}

func release(out, maintainer string, once bool) error {
	changed, err := output("", "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	commit, err := output("", "git", "rev-parse", "HEAD") // once: another may follow while this is built
	if err != nil {
		return err
	}
	if changed != "" {
		log.Print("changes that are not committed stay out of it")
	}
	work, err := os.MkdirTemp("", "sluice-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files, err := build(commit, filepath.Join(work, "one"), "", maintainer)
	if err != nil {
		return err
	}
	if !once {
		again, err := build(commit, filepath.Join(work, "another", "place"), filepath.Join(work, "cache"), maintainer)
		if err != nil {
			return err
		}
		for name := range files {
			if !bytes.Equal(files[name], again[name]) {
				return fmt.Errorf("%s: built twice, and not the same: %x and %x", name, sha256.Sum256(files[name]), sha256.Sum256(again[name]))
			}
		}
		log.Print("built twice: every byte is the same")
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	files["SHA256SUMS"] = []byte(sums.String())
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Print(sums.String())
	return inspect(out)
}

// inspect has Debian's own tools read the packages, where they are.
func inspect(out string) error {
	packages, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil {
		return err
	}
	for _, tool := range [][]string{{"dpkg-deb", "--info"}, {"dpkg-deb", "--contents"}, {"lintian", "--fail-on", "error,warning", "--allow-root"}} {
		if _, err := exec.LookPath(tool[0]); err != nil {
			log.Printf("%s is not installed: the packages are not read by it", tool[0])
			continue
		}
		for _, p := range packages {
			text, err := exec.Command(tool[0], append(tool[1:], p)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s %s: %w\n%s", strings.Join(tool, " "), p, err, text)
			}
			if tool[0] == "lintian" {
				os.Stdout.Write(text)
			}
		}
	}
	return nil
}

// build makes everything from a clone of a commit in a folder. cache "": the usual build cache.
func build(commit, folder, cache, maintainer string) (map[string][]byte, error) {
	repository, err := output("", "git", "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	if _, err := output("", "git", "clone", "--quiet", "--shared", "--no-checkout", repository, folder); err != nil {
		return nil, err
	}
	if _, err := output(folder, "git", "checkout", "--quiet", "--detach", commit); err != nil {
		return nil, err
	}
	seconds, err := output(folder, "git", "show", "--no-patch", "--format=%ct", commit)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	when := time.Unix(n, 0).UTC()

	files := make(map[string][]byte)
	for _, arch := range architectures {
		bin := filepath.Join(folder, "bin", arch)
		cmd := exec.Command(goCommand(), "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", bin+"/", "./cmd/...")
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0")
		if cache != "" && arch == architectures[0] { // compiling all of it for each would take twice as long, and tell no more
			cmd.Env = append(cmd.Env, "GOCACHE="+cache)
		}
		log.Printf("%s in %s", strings.Join(cmd.Args, " "), folder)
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", arch, err, text)
		}
		version, err := stamped(filepath.Join(bin, "sluice"), commit)
		if err != nil {
			return nil, err
		}
		archive, err := archive(folder, bin, "sluice-"+version+"-linux-"+arch, when)
		if err != nil {
			return nil, err
		}
		files["sluice-"+version+"-linux-"+arch+".tar.gz"] = archive
		deb, err := debian(folder, bin, arch, version, maintainer, when)
		if err != nil {
			return nil, err
		}
		files["sluice_"+version+"_"+arch+".deb"] = deb
	}
	return files, nil
}

func goCommand() string {
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	return "go"
}

// stamped is the version in a program, as Debian orders versions: 1.2.0, 1.2.0~rc1, 0.0.0~20261122094510.0123456789ab. That of another commit, or of
// changed files, is an error.
func stamped(program, commit string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", err
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != commit || settings["vcs.modified"] != "false" {
		return "", fmt.Errorf("%s is of commit %q, modified %q; want %s", program, settings["vcs.revision"], settings["vcs.modified"], commit)
	}
	number, pre, has := strings.Cut(strings.TrimPrefix(info.Main.Version, "v"), "-")
	if number == "" || number[0] < '0' || number[0] > '9' {
		return "", fmt.Errorf("%s has the version %q", program, info.Main.Version)
	}
	if has {
		number += "~" + strings.ReplaceAll(pre, "-", ".")
	}
	return number, nil
}

// A bundle is a tar archive in the making, compressed, in which all belongs to root and is of one time.
type bundle struct {
	buffer bytes.Buffer
	zip    *gzip.Writer
	tar    *tar.Writer
	under  string // what all names begin with
	when   time.Time
	seen   map[string]bool
	err    error
}

func newBundle(under string, when time.Time) *bundle {
	b := &bundle{under: under, when: when, seen: make(map[string]bool)}
	b.zip, b.err = gzip.NewWriterLevel(&b.buffer, gzip.BestCompression)
	b.tar = tar.NewWriter(b.zip)
	return b
}

// folder puts a folder in, after those that it is in.
func (b *bundle) folder(name string) {
	if name == "." || b.seen[name] {
		return
	}
	b.folder(path.Dir(name))
	b.seen[name] = true
	b.write(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil)
}

func (b *bundle) file(name string, mode int64, content []byte) {
	b.folder(path.Dir(name))
	b.write(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (b *bundle) write(h *tar.Header, content []byte) {
	if b.err != nil {
		return
	}
	h.Name = b.under + h.Name
	h.ModTime, h.Uname, h.Gname, h.Format = b.when, "root", "root", tar.FormatGNU
	if b.err = b.tar.WriteHeader(h); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

func (b *bundle) bytes() ([]byte, error) {
	err := errors.Join(b.err, b.tar.Close(), b.zip.Close())
	return b.buffer.Bytes(), err
}

// archive holds the programs, what one needs to run them, and the documents.
func archive(folder, bin, name string, when time.Time) ([]byte, error) {
	b := newBundle(name+"/", when)
	for _, program := range []string{"sluice", "sluice-wall", "sluice-loadgen"} {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		b.file(program, 0o755, content)
	}
	for _, what := range []string{"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "deploy", "docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(folder, what), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			below, err := filepath.Rel(folder, file)
			b.file(filepath.ToSlash(below), mode(content), content)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return b.bytes()
}

// mode is that of a file, whatever the umask of the checkout was: scripts can be run.
func mode(content []byte) int64 {
	if bytes.HasPrefix(content, []byte("#!")) {
		return 0o755
	}
	return 0o644
}

// placed says where in the system a Debian package puts what.
var placed = map[string]string{
	"deploy/systemd/sluice.service":      "lib/systemd/system/sluice.service",
	"deploy/systemd/sluice.socket":       "lib/systemd/system/sluice.socket",
	"deploy/systemd/sluice-wall.service": "lib/systemd/system/sluice-wall.service",
	"deploy/debian/sluice.yaml":          "etc/sluice/sluice.yaml",
	"deploy/debian/logrotate":            "etc/logrotate.d/sluice",
	"deploy/debian/lintian-overrides":    "usr/share/lintian/overrides/sluice",
	"deploy/anycast/announce.sh":         "usr/lib/sluice/announce.sh",
}

// read is what there is to read and to start from. It keeps its paths below usr/share/doc/sluice, so that links hold.
var read = []string{"README.md", "CHANGELOG.md", "SECURITY.md", "docs", "examples", "deploy"}

// unread is what of that is for making the documents or the package.
var unread = regexp.MustCompile(`^docs/(figures|pages)/|^deploy/debian/|\.sh$`)

// shells is where each has completions looked for.
var shells = map[string]string{
	"bash": "usr/share/bash-completion/completions/sluice",
	"zsh":  "usr/share/zsh/vendor-completions/_sluice",
	"fish": "usr/share/fish/vendor_completions.d/sluice.fish",
}

// documents adds to the files of a package what there is to read, and what shells read.
func documents(folder string, files map[string][]byte) error {
	for _, what := range read {
		if err := filepath.WalkDir(filepath.Join(folder, what), func(file string, d fs.DirEntry, err error) error {
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
		cmd := exec.Command(goCommand(), "run", "-trimpath", "-ldflags=-s -w", "./cmd/sluice", "completion", shell)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0")
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("completion %s: %w", shell, err)
		}
		files[to] = text
	}
	return nil
}

// debian makes a Debian package: an ar archive of a version, what dpkg should know and do, and the files.
func debian(folder, bin, arch, version, maintainer string, when time.Time) ([]byte, error) {
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
	for _, program := range []string{"sluice", "sluice-wall", "sluice-loadgen"} {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		files["usr/bin/"+program] = content
	}
	files["usr/share/doc/sluice/copyright"] = []byte("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sluice\n\n" +
		"Files: *\nCopyright: " + strconv.Itoa(when.Year()) + " the Sluice authors\nLicense: Apache-2.0\n On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n")
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
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controlBytes}, {"data.tar.gz", dataBytes}} {
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

func output(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}
