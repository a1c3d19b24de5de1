package remote

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// binary is an agent that can be brought onto nodes.
type binary struct {
	path   string
	id     string // build id
	hash   string // SHA-256 of the file
	copies string // folder for compressed copies
	small  bool   // it is the agent alone, and not the whole sky
}

// static reports whether the agent runs without any library of the node's.
func (b *binary) static() bool {
	f, err := elf.Open(b.path)
	if err != nil {
		return true // not Linux's
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// binaries finds the agent for a kind of machine, once.
type binaries struct {
	mu    sync.Mutex
	found map[string]*binary
}

// platform is how a node's uname calls what Go calls goos/goarch.
func platform(system, machine string) (goos, goarch string, err error) {
	goos = strings.ToLower(system)
	switch machine {
	case "x86_64", "amd64":
		goarch = "amd64"
	case "aarch64", "arm64":
		goarch = "arm64"
	default:
		return "", "", fmt.Errorf("nodes need an x86-64 or ARM-64 processor; this one is %s", machine)
	}
	if goos != "linux" && goos != "darwin" {
		return "", "", fmt.Errorf("nodes need Linux or macOS; this one runs %s", system)
	}
	return goos, goarch, nil
}

// binary is the agent for a platform: the small one that this build carries, else
// the running program where it fits, else sky-agent-<os>-<arch> or
// sky-<os>-<arch> next to it.
func (r *Connector) binary(goos, goarch string) (*binary, error) {
	r.bins.mu.Lock()
	defer r.bins.mu.Unlock()
	key := goos + "-" + goarch
	if b := r.bins.found[key]; b != nil {
		if _, err := os.Stat(b.path); err == nil {
			return b, nil
		}
	}
	b, err := r.find(goos, goarch)
	if err != nil {
		return nil, err
	}
	if b.hash, err = fileHash(b.path); err != nil {
		return nil, err
	}
	if r.bins.found == nil {
		r.bins.found = map[string]*binary{}
	}
	r.bins.found[key] = b
	return b, nil
}

func (r *Connector) find(goos, goarch string) (*binary, error) {
	if r.o.Agents != nil {
		if packed, ok := r.o.Agents(goos, goarch); ok {
			b, err := r.unpack(packed, filepath.Join(r.o.RuntimeDir, r.o.BuildID, "agent-"+goos+"-"+goarch))
			if err == nil {
				b.small = true
			}
			return b, err
		}
	}
	if goos == runtime.GOOS && goarch == runtime.GOARCH {
		path, err := r.install()
		return &binary{path: path, id: r.o.BuildID, copies: filepath.Dir(path)}, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(self)
	for _, name := range []string{"sky-agent-" + goos + "-" + goarch, "sky-" + goos + "-" + goarch} {
		path := filepath.Join(dir, name)
		id, err := usable(path, goos, goarch)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s cannot be used on nodes: %w", path, err)
		}
		return &binary{path: path, id: id, copies: filepath.Join(r.o.RuntimeDir, id), small: strings.HasPrefix(name, "sky-agent-")}, nil
	}
	return nil, fmt.Errorf("the node is a %s/%s machine, this server is %s/%s, and there is no agent for it: put sky-agent-%s-%s of the same release into %s",
		goos, goarch, runtime.GOOS, runtime.GOARCH, goos, goarch, dir)
}

// unpack puts an agent that this build carries into a folder, both as it is and
// compressed.
func (r *Connector) unpack(packed []byte, dir string) (*binary, error) {
	path := filepath.Join(dir, "sky")
	if _, err := os.Stat(path); err != nil {
		err := wholefile.Write(path+".zst", packed, 0o600)
		if err == nil {
			err = wholefile.Fill(path, 0o700, func(w *os.File) error {
				z, err := zstd.NewReader(bytes.NewReader(packed))
				if err != nil {
					return err
				}
				defer z.Close()
				_, err = io.Copy(w, z)
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("unpacking the agent to %s: %w", path, err)
		}
	}
	id, err := buildid.Of(path)
	return &binary{path: path, id: id, copies: dir}, err
}

// usable is the build id of a program of this release for a platform; one for
// another platform or of another revision is refused.
func usable(path, goos, goarch string) (id string, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", err
	}
	own, err := buildinfo.ReadFile(buildid.Self())
	if err != nil {
		own = &buildinfo.BuildInfo{}
	}
	if err := sameBuild(own, info, goos, goarch); err != nil {
		return "", err
	}
	return buildid.Of(path)
}

func sameBuild(own, info *buildinfo.BuildInfo, goos, goarch string) error {
	setting := func(i *buildinfo.BuildInfo, key string) string {
		for _, s := range i.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return ""
	}
	if o, a := setting(info, "GOOS"), setting(info, "GOARCH"); o != goos || a != goarch {
		return fmt.Errorf("it is for %s/%s", o, a)
	}
	if mine, its := setting(own, "vcs.revision"), setting(info, "vcs.revision"); mine != "" && its != "" && mine != its {
		return fmt.Errorf("it was built from revision %s, this server from %s", its, mine)
	}
	return nil
}

// install keeps one copy of the running program for each build, so that agents
// do not depend on a file that the user may replace or remove.
func (r *Connector) install() (string, error) {
	dst := filepath.Join(r.o.RuntimeDir, r.o.BuildID, "sky")
	if _, err := os.Stat(dst); err == nil {
		return dst, nil
	}
	src := r.o.Binary
	if src == "" {
		src = buildid.Self()
	}
	in, err := os.Open(src)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := roomFor(dst, in); err != nil {
		return "", err
	}
	err = wholefile.Fill(dst, 0o700, func(w *os.File) error {
		_, err := io.Copy(w, in)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("copying the agent to %s: %w", dst, err)
	}
	return dst, nil
}

// leftFree is what stays free on the server's disk beside a copy of sky: with less
// the server makes nothing any more.
const leftFree = 16 << 20

// roomFor says, before anything is written, that a copy of sky does not fit.
func roomFor(dst string, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return err
	}
	free, err := diskspace.Free(dst)
	if err != nil || info.Size()+leftFree <= free {
		return nil // what is wrong otherwise is said by whoever writes
	}
	return fmt.Errorf("the first launch copies sky to %s, so that agents and their jobs outlive the file that was started; that takes %s and %s beside it, and the disk has %s free; free space on it and try again",
		dst, diskspace.Bytes(info.Size()), diskspace.Bytes(leftFree), diskspace.Bytes(free))
}

// packed is a compressed copy of a binary, made on first use. The suffix is
// ".zst" or ".gz"; "" is the binary itself.
func (r *Connector) packed(b *binary, suffix string) (string, error) {
	if suffix == "" {
		return b.path, nil
	}
	dst := filepath.Join(b.copies, "sky"+suffix)
	r.bins.mu.Lock()
	defer r.bins.mu.Unlock()
	if _, err := os.Stat(dst); err == nil {
		return dst, nil
	}
	in, err := os.Open(b.path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	return dst, wholefile.Fill(dst, 0o600, func(w *os.File) error {
		var z io.WriteCloser
		if suffix == ".zst" {
			z, err = zstd.NewWriter(w)
		} else {
			z, err = gzip.NewWriterLevel(w, gzip.BestSpeed)
		}
		if err != nil {
			return err
		}
		_, err := io.Copy(z, in)
		return errors.Join(err, z.Close())
	})
}

func fileHash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
