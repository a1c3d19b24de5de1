//go:build linux

package mount

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// fsxFile makes this test binary the process that exercises a file: its path, a seed, a
// number of steps, whether it may be mapped to be written, and where the content that it must
// have in the end is left. It is a process of its own, as one that waits for a mapped page
// cannot serve the store at the same time.
const fsxFile = "SKY_MOUNT_TEST_FSX"

// One file is read, written, by a second handle, too, mapped, cut off, made longer, synced and
// opened again in any order, as the program fsx does; all the time it holds what was written, and so does the
// bucket in the end.
func TestOneFileHoldsWhatWasWritten(t *testing.T) {
	seeds := 2
	if n, err := strconv.Atoi(os.Getenv("SKY_MOUNT_SEEDS")); err == nil {
		seeds = n
	}
	for _, mode := range []mountapi.Mode{mountapi.Direct, mountapi.Cached} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t)
			q := r.request()
			if mode == mountapi.Cached {
				q = r.cached(time.Millisecond)
			}
			r.mount(q)
			for seed := range seeds {
				name, left := fmt.Sprint("file", seed), filepath.Join(t.TempDir(), "content")
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d 400 %t %s", fsxFile, r.file(name), seed, mode == mountapi.Cached, left))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, out)
				}
				want, err := os.ReadFile(left)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Timeout: 5 * time.Minute}); err != nil {
					t.Fatal(err)
				}
				if got := r.content(name); got != string(want) {
					t.Errorf("seed %d: the bucket has %d bytes, want %d, or others", seed, len(got), len(want))
				}
			}
		})
	}
}

// fsxMain is the process.
func fsxMain(args string) error {
	f := strings.Fields(args)
	seed, _ := strconv.ParseUint(f[1], 10, 64)
	steps, _ := strconv.Atoi(f[2])
	x := &fsx{path: f[0], r: rand.New(rand.NewPCG(seed, 17)), mapWrites: f[3] == "true"}
	if err := x.open(); err != nil {
		return err
	}
	for i := range steps {
		what, err := x.step()
		if err == nil && i%20 == 19 {
			err = x.compare(0, len(x.want))
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, what, err)
		}
	}
	if err := x.close(); err != nil {
		return err
	}
	return os.WriteFile(f[4], x.want, 0o600)
}

// fsx is a file and what it must hold.
type fsx struct {
	path      string
	r         *rand.Rand
	mapWrites bool
	f         *os.File
	writer    *os.File // opened to write only; nil without mapWrites
	want      []byte
}

const fsxMost = 200_000 // bytes of the file

func (x *fsx) open() (err error) {
	if x.f, err = os.OpenFile(x.path, os.O_RDWR|os.O_CREATE, 0o644); err == nil && x.mapWrites {
		x.writer, err = os.OpenFile(x.path, os.O_WRONLY, 0)
	}
	return err
}

func (x *fsx) close() (err error) {
	if x.writer != nil {
		err = x.writer.Close()
	}
	return errors.Join(err, x.f.Close())
}

// span is a part of what is there; ok: there is any.
func (x *fsx) span() (off, n int, ok bool) {
	if len(x.want) == 0 {
		return 0, 0, false
	}
	off = x.r.IntN(len(x.want))
	return off, 1 + x.r.IntN(min(len(x.want)-off, 60_000)), true
}

// size makes the model as long as the file becomes.
func (x *fsx) size(n int) {
	if n <= len(x.want) {
		x.want = x.want[:n]
		return
	}
	x.want = append(x.want, make([]byte, n-len(x.want))...)
}

func (x *fsx) bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(x.r.Uint32())
	}
	return p
}

func (x *fsx) step() (what string, err error) {
	switch x.r.IntN(10) {
	case 0, 1:
		off := x.r.IntN(fsxMost * 3 / 4)
		p := x.bytes(1 + x.r.IntN(fsxMost/4))
		f, by := x.f, ""
		if x.mapWrites && x.r.IntN(2) == 0 {
			f, by = x.writer, " by a handle that only writes"
		}
		if _, err = f.WriteAt(p, int64(off)); err == nil {
			x.size(max(len(x.want), off+len(p)))
			copy(x.want[off:], p)
		}
		return fmt.Sprintf("write %d at %d%s", len(p), off, by), err
	case 2, 3:
		off, n, ok := x.span()
		if ok {
			err = x.compare(off, n)
		}
		return fmt.Sprintf("read %d at %d", n, off), err
	case 4:
		n := x.r.IntN(fsxMost)
		if err = x.f.Truncate(int64(n)); err == nil {
			x.size(n)
		}
		return fmt.Sprint("truncate to ", n), err
	case 5:
		n := x.r.IntN(fsxMost)
		if err = unix.Fallocate(int(x.f.Fd()), 0, 0, int64(n)); err == nil {
			x.size(max(len(x.want), n))
		}
		return fmt.Sprint("allocate to ", n), err
	case 6:
		return "sync", x.f.Sync()
	case 7:
		if err = x.close(); err == nil {
			err = x.open()
		}
		return "close and open", err
	case 8:
		off, n, ok := x.span()
		if ok && x.mapWrites {
			p := x.bytes(n)
			err = x.mapped(unix.PROT_READ|unix.PROT_WRITE, func(m []byte) error {
				copy(m[off:], p)
				return unix.Msync(m, unix.MS_SYNC)
			})
			copy(x.want[off:], p)
		}
		return fmt.Sprintf("write %d at %d of the map", n, off), err
	}
	off, n, ok := x.span()
	if ok && x.mapWrites {
		err = x.mapped(unix.PROT_READ, func(m []byte) error { return x.same(m[off:off+n], off) })
	}
	return fmt.Sprintf("read %d at %d of the map", n, off), err
}

func (x *fsx) mapped(prot int, f func([]byte) error) error {
	m, err := unix.Mmap(int(x.f.Fd()), 0, len(x.want), prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	return f(m)
}

// compare reads a part of the file.
func (x *fsx) compare(off, n int) error {
	info, err := x.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(len(x.want)) {
		return fmt.Errorf("it has %d bytes, want %d", info.Size(), len(x.want))
	}
	p := make([]byte, n)
	if _, err := x.f.ReadAt(p, int64(off)); err != nil {
		return err
	}
	return x.same(p, off)
}

func (x *fsx) same(p []byte, off int) error {
	want := x.want[off : off+len(p)]
	if bytes.Equal(p, want) {
		return nil
	}
	for i := range p {
		if p[i] != want[i] {
			return fmt.Errorf("byte %d is %d, want %d", off+i, p[i], want[i])
		}
	}
	return nil
}
