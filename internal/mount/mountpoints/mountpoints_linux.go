// Package mountpoints reads which file systems are mounted where, and takes away the mounts
// that sky-mount left below a folder.
package mountpoints

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is the type of sky's own file systems, after "fuse.".
const Kind = "sky"

// A Point is a place where something is mounted.
type Point struct {
	Path, Type, Source string
	Options            string // of the file system
	Device             string // its number, as in /sys/class/bdi: "0:50"
}

// Ours reports whether it is a mount of sky-mount.
func (p Point) Ours() bool { return p.Type == "fuse."+Kind }

// read reads the format of /proc/self/mountinfo (see proc(5)).
func read(r io.Reader) ([]Point, error) {
	var out []Point
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 2 {
			continue
		}
		p := Point{Path: unescape(f[4]), Type: g[0], Source: unescape(g[1]), Device: f[2]}
		if len(g) > 2 {
			p.Options = g[2]
		}
		out = append(out, p)
	}
	return out, lines.Err()
}

// unescape reads the octal escapes of the kernel's tables.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// At is what is mounted exactly at a path: the topmost, if there are several.
func At(path string) (Point, bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Point{}, false, err
	}
	defer f.Close()
	return In(f, path)
}

// In is At by a table in the format of /proc/self/mountinfo.
func In(table io.Reader, path string) (Point, bool, error) {
	all, err := read(table)
	if err != nil {
		return Point{}, false, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Path == path {
			return all[i], true, nil
		}
	}
	return Point{}, false, nil
}

// list is all mounts that this process sees, in the order in which they were made.
func list() ([]Point, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f)
}

// Abort ends the service of mounts of sky-mount at some paths: every call into them that
// waits fails, and so does each that comes later, until they are taken away. It is for those
// whose process was killed and waits for its own mount: that never ends by itself.
func Abort(at func(path string) bool) error {
	all, err := list()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range all {
		if p.Ours() && at(p.Path) {
			errs = append(errs, p.abort())
		}
	}
	return errors.Join(errs...)
}

func (p Point) abort() error {
	_, minor, _ := strings.Cut(p.Device, ":")
	if os.WriteFile("/sys/fs/fuse/connections/"+minor+"/abort", []byte("1"), 0) == nil { // the owner's right
		return nil
	}
	// Where that is not mounted, or on behalf of others. It is aborted even if it is in use.
	if err := unix.Unmount(p.Path, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("aborting the mount of %s at %s: %w", p.Source, p.Path, err)
	}
	return nil
}

// DetachBelow takes away all mounts of sky-mount in a folder. Whoever removes a folder calls
// it first: to remove what is in a mount would remove it from the bucket. It is an error if
// one is left.
func DetachBelow(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for range 100 {
		all, err := list()
		if err != nil {
			return err
		}
		did := false
		var failed error // one in another whose process died is not reached, and goes with that one
		for i := len(all) - 1; i >= 0; i-- {
			p := all[i]
			if !p.Ours() || p.Path != dir && !strings.HasPrefix(p.Path, dir+"/") {
				continue
			}
			if err := unix.Unmount(p.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				failed = fmt.Errorf("taking away the mount of %s at %s: %w", p.Source, p.Path, err)
				continue
			}
			did = true
		}
		if !did {
			return failed
		}
	}
	return fmt.Errorf("buckets are mounted in %s again and again", dir)
}
