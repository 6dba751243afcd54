// Command release makes what is handed out, of the commit that is checked out: make release, or
// here go run ./release [--root ../..] [--out dist] [--once] [--snapshot]. For each architecture an archive and
// a Debian package, both with the licences and notices of all that is linked in, what is in each
// program (SBOM), and SHA256SUMS of them all. All is built twice, from two clones in different
// folders, the second time the first architecture with an empty build cache; if one byte differs,
// nothing is handed out. lintian reads the packages where it is installed. Only Go and git are
// needed. Times in archives are the commit's; version and commit are in the programs (sluice
// version).
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var architectures = []string{"amd64", "arm64"}

// programs are what is handed out.
var programs = []string{"sluice", "sluice-wall", "sluice-loadgen"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	root := flag.String("root", "../..", "folder of the repository")
	out := flag.String("out", "dist", "folder for the results, in that of the repository")
	once := flag.Bool("once", false, "build once, without the proof that it can be repeated")
	maintainer := flag.String("maintainer", "The Sluice authors <sluice@example.org>",
		"of the Debian package")
	snapshot := flag.Bool("snapshot", false,
		"make it although it has no version, no tag, or contacts that nobody reads")
	flag.Parse()
	if err := os.Chdir(*root); err != nil {
		log.Fatal(err)
	}
	if err := release(*out, *maintainer, *once, *snapshot); err != nil {
		log.Fatal(err)
	}
}

func release(out, maintainer string, once, snapshot bool) error {
	changed, err := output("", "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	// Once: another may follow while this is built
	commit, err := output("", "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if !snapshot {
		if err := ready(".", commit, maintainer); err != nil {
			return err
		}
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
		again, err := build(commit, filepath.Join(work, "another", "place"),
			filepath.Join(work, "cache"), maintainer)
		if err != nil {
			return err
		}
		for name := range files {
			if !bytes.Equal(files[name], again[name]) {
				return fmt.Errorf("%s: built twice, and not the same: %x and %x", name,
					sha256.Sum256(files[name]), sha256.Sum256(again[name]))
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
	for _, tool := range [][]string{{"dpkg-deb", "--info"}, {"dpkg-deb", "--contents"},
		{"lintian", "--fail-on", "error,warning", "--allow-root"}} {
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
	if _, err := output("", "git", "clone", "--quiet", "--shared", "--no-checkout", repository,
		folder); err != nil {
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
		cmd := exec.Command(goCommand(), "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w",
			"-o", bin+"/", "./cmd/...")
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch,
			"GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0")
		// Compiling all of it for each would take twice as long, and tell no more
		if cache != "" && arch == architectures[0] {
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
		terms, err := notices(folder, bin, arch)
		if err != nil {
			return nil, err
		}
		archive, err := archive(folder, bin, "sluice-"+version+"-linux-"+arch, terms, when)
		if err != nil {
			return nil, err
		}
		files["sluice-"+version+"-linux-"+arch+".tar.gz"] = archive
		deb, err := debian(folder, bin, arch, version, maintainer, terms, when)
		if err != nil {
			return nil, err
		}
		files["sluice_"+version+"_"+arch+".deb"] = deb
		for _, program := range programs {
			if files[program+"-"+version+"-linux-"+arch+".cdx.json"], err = sbom(folder,
				filepath.Join(bin, program)); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

func goCommand() string {
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	return "go"
}

// stamped is the version in a program, as Debian orders versions: 1.2.0, 1.2.0~rc1,
// 0.0.0~20261122094510.0123456789ab. That of another commit, or of changed files, is an error.
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
		return "", fmt.Errorf("%s is of commit %q, modified %q; want %s", program,
			settings["vcs.revision"], settings["vcs.modified"], commit)
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

// sbom says which modules a program is made of, and of which versions, in CycloneDX. Neither a time
// nor a number is in it, so that it can be made again.
func sbom(folder, program string) ([]byte, error) {
	cmd := exec.Command(goCommand(), "tool", "-modfile=release.mod", "cyclonedx-gomod", "bin",
		"-json", "-noserial", "-notimestamp", program)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath")
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return text, nil
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
