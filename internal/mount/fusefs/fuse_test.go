//go:build linux

package fusefs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/cached"
	"github.com/skypilot-go/sky/internal/mount/direct"
	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/s3"
)

// served is a bucket behind a server that speaks the API of S3.
func served(t testing.TB) storage.Bucket {
	t.Helper()
	store := &memory.Store{MinPart: 5 << 20}
	if err := store.Bucket("bucket").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(store.ServeS3("key"))
	t.Cleanup(server.Close)
	keys := func(context.Context) (s3.Keys, error) {
		return s3.Keys{AccessKey: "key", SecretKey: "secret"}, nil
	}
	b, err := s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: "bucket"}, s3.Options{Endpoint: server.URL, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return storage.Retry(b, storage.Retries{})
}

// mounted is a volume of the mode MOUNT at a folder.
func mounted(t testing.TB, b storage.Bucket, o fusefs.Options) (string, *fusefs.Mount) {
	t.Helper()
	if err := fusefs.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	o.Name, o.Kind, o.DirectWrites = b.Location().String(), "sky", true
	o.UID, o.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	return mountedVolume(t, direct.New(b, direct.Options{}), dir, o)
}

// mountedCached is a volume of the mode MOUNT_CACHED at a folder.
func mountedCached(t testing.TB, b storage.Bucket) string {
	t.Helper()
	if err := fusefs.Available(); err != nil {
		t.Skip(err)
	}
	v, err := cached.Open(b, cached.Options{Dir: t.TempDir(), Config: mountapi.Config{WriteBack: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	dir, _ := mountedVolume(t, v, t.TempDir(), fusefs.Options{Name: "x", Kind: "sky", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	return dir
}

func mountedVolume(t testing.TB, v vfs.Volume, dir string, o fusefs.Options) (string, *fusefs.Mount) {
	t.Helper()
	m, err := fusefs.New(v, dir, o)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this process may not mount: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	// This process calls into its own mount, which others never do. Go's runtime polls each
	// file that it opens, on a thread that serving may need: so the kernel learns first, by a
	// file that the library has for it, that nothing is polled here.
	fd, err := unix.Open(filepath.Join(dir, ".go-fuse-epoll-hack"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	_ = unix.Close(fd)
	t.Cleanup(func() {
		_ = m.Unmount(true) // the test may have done so
		<-m.Ended()
	})
	return dir, m
}

func TestTheKernelSeesWhatFilesAre(t *testing.T) {
	dir, m := mounted(t, served(t), fusefs.Options{})
	path := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error, want syscall.Errno) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check(os.Mkdir(path("d"), 0o755))
	refused("mkdir again", os.Mkdir(path("d"), 0o755), syscall.EEXIST)
	check(os.WriteFile(path("d/x"), []byte("hello"), 0o644))
	got, err := os.ReadFile(path("d/x"))
	check(err)
	if string(got) != "hello" {
		t.Errorf("it reads %q", got)
	}
	refused("rmdir", os.Remove(path("d/")), syscall.ENOTEMPTY)
	check(os.Rename(path("d/x"), path("d/y")))
	_, err = os.Stat(path("d/x"))
	refused("the old name", err, syscall.ENOENT)
	check(os.Rename(path("d"), path("e")))
	f, err := os.OpenFile(path("e/y"), os.O_APPEND|os.O_WRONLY, 0)
	check(err)
	_, err = f.WriteString(" world")
	check(err)
	check(f.Close())
	got, err = os.ReadFile(path("e/y"))
	check(err)
	if string(got) != "hello world" {
		t.Errorf("after an append it reads %q", got)
	}
	_, err = os.OpenFile(path("e/y"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	refused("O_EXCL", err, syscall.EEXIST)
	check(os.Symlink("e/y", path("link")))
	target, err := os.Readlink(path("link"))
	check(err)
	if target != "e/y" {
		t.Errorf("the link goes to %q", target)
	}
	if got, err = os.ReadFile(path("link")); err != nil || string(got) != "hello world" {
		t.Errorf("by the link it reads %q, %v", got, err)
	}
	refused("a hard link", os.Link(path("e/y"), path("hard")), syscall.ENOTSUP)
	refused("a pipe", unix.Mkfifo(path("pipe"), 0o644), syscall.EPERM)
	refused("chown", os.Chown(path("e/y"), 12345, 12345), syscall.EPERM)
	check(os.Chmod(path("e/y"), 0o755))
	when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	check(os.Chtimes(path("e/y"), when, when))
	info, err := os.Stat(path("e/y"))
	check(err)
	if info.Mode() != 0o755 || !info.ModTime().Equal(when) || info.Size() != 11 {
		t.Errorf("it is %v of %v with %d bytes", info.Mode(), info.ModTime(), info.Size())
	}
	check(os.Truncate(path("e/y"), 4))
	if got, err = os.ReadFile(path("e/y")); err != nil || string(got) != "hell" {
		t.Errorf("cut off it reads %q, %v", got, err)
	}
	// A shell's redirection closes a duplicate first.
	f, err = os.Create(path("dup"))
	check(err)
	fd, err := unix.Dup(int(f.Fd()))
	check(err)
	check(unix.Close(fd))
	_, err = f.WriteString("after")
	check(err)
	check(f.Close())
	if got, err = os.ReadFile(path("dup")); err != nil || string(got) != "after" {
		t.Errorf("written after a duplicate was closed it reads %q, %v", got, err)
	}
	entries, err := os.ReadDir(dir)
	check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"dup", "e", "link"}; !slices.Equal(names, want) {
		t.Errorf("it lists %q, want %q", names, want)
	}
	// While a file is open the mount stays.
	f, err = os.Open(path("e/y"))
	check(err)
	if err := m.Unmount(false); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("unmounting what is in use: %v", err)
	}
	check(f.Close())
	check(unmount(m))
	<-m.Ended()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("after unmounting: %d entries, %v", len(entries), err)
	}
}

// unmount waits for the kernel, which may release a closed file a moment later.
func unmount(m *fusefs.Mount) (err error) {
	for range 600 {
		if err = m.Unmount(false); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func TestReadOnlyMountsRefuseWrites(t *testing.T) {
	b := served(t)
	if _, err := b.Put(t.Context(), "x", strings.NewReader("x"), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	dir, _ := mounted(t, b, fusefs.Options{ReadOnly: true})
	if err := os.WriteFile(filepath.Join(dir, "y"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "x")); !errors.Is(err, syscall.EROFS) {
		t.Errorf("removing: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(got) != "x" {
		t.Errorf("reading: %q, %v", got, err)
	}
}

func TestLargeFilesGoThroughTheKernel(t *testing.T) {
	dir, _ := mounted(t, served(t), fusefs.Options{})
	data := make([]byte, 20<<20+77)
	rand.NewChaCha8([32]byte{}).Read(data)
	path := filepath.Join(dir, "large")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from the kernel's pages
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(data), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	for _, at := range []int{19 << 20, 3, 10 << 20} {
		if mapped[at] != data[at] {
			t.Errorf("mapped, byte %d is another one", at)
		}
	}
}

// seeds is how many histories are tried.
func seeds() int {
	if n, err := strconv.Atoi(os.Getenv("SKY_MOUNT_SEEDS")); err == nil {
		return n
	}
	return 3
}

// The same calls on a mount and on a plain folder have the same results.
func TestAMountDoesWhatAFolderDoes(t *testing.T) {
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			a, _ := mounted(t, served(t), fusefs.Options{})
			compareWithFolder(t, a, t.TempDir(), seed, 150)
		})
	}
}

func TestACachedMountDoesWhatAFolderDoes(t *testing.T) {
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			compareWithFolder(t, mountedCached(t, served(t)), t.TempDir(), seed, 150)
		})
	}
}

// What POSIX says of names holds in both modes.
func TestNamesAreRefusedAsPOSIXSays(t *testing.T) {
	plain, _ := mounted(t, served(t), fusefs.Options{})
	for mode, dir := range map[string]string{"MOUNT": plain, "MOUNT_CACHED": mountedCached(t, served(t)), "a folder": t.TempDir()} {
		in := func(name string) string { return filepath.Join(dir, name) }
		if err := errors.Join(os.Mkdir(in("dir"), 0o755), os.Mkdir(in("full"), 0o755), os.WriteFile(in("full/x"), nil, 0o644), os.WriteFile(in("file"), []byte("text"), 0o644), os.Symlink("file", in("link")), os.Symlink("loop", in("loop"))); err != nil {
			t.Fatal(mode, err)
		}
		open := func(name string, flags int) error {
			f, err := os.OpenFile(in(name), flags, 0o644)
			if err == nil {
				f.Close()
			}
			return err
		}
		for _, tt := range []struct {
			what string
			err  error
			want syscall.Errno
		}{
			{"mkdir over a file", os.Mkdir(in("file"), 0o755), syscall.EEXIST},
			{"mkdir over a link", os.Mkdir(in("link"), 0o755), syscall.EEXIST},
			{"mkdir below a file", os.Mkdir(in("file/x"), 0o755), syscall.ENOTDIR},
			{"mkdir below nothing", os.Mkdir(in("none/x"), 0o755), syscall.ENOENT},
			{"mkdir with a long name", os.Mkdir(in(strings.Repeat("x", 256)), 0o755), syscall.ENAMETOOLONG},
			{"rmdir of a file", unix.Rmdir(in("file")), syscall.ENOTDIR},
			{"rmdir of a full folder", unix.Rmdir(in("full")), syscall.ENOTEMPTY},
			{"rmdir of nothing", unix.Rmdir(in("none")), syscall.ENOENT},
			{"unlink of a folder", unix.Unlink(in("dir")), syscall.EISDIR},
			{"unlink of nothing", unix.Unlink(in("none")), syscall.ENOENT},
			{"rename of nothing", unix.Rename(in("none"), in("new")), syscall.ENOENT},
			{"rename of a folder over a file", unix.Rename(in("dir"), in("file")), syscall.ENOTDIR},
			{"rename of a file over a folder", unix.Rename(in("file"), in("dir")), syscall.EISDIR},
			{"rename over a full folder", unix.Rename(in("dir"), in("full")), syscall.ENOTEMPTY},
			{"rename into itself", unix.Rename(in("dir"), in("dir/x")), syscall.EINVAL},
			{"rename that keeps", unix.Renameat2(unix.AT_FDCWD, in("file"), unix.AT_FDCWD, in("link"), unix.RENAME_NOREPLACE), syscall.EEXIST},
			{"symlink over a file", os.Symlink("x", in("file")), syscall.EEXIST},
			{"open of a folder for writing", open("dir", os.O_WRONLY), syscall.EISDIR},
			{"open of nothing", open("none", os.O_RDWR), syscall.ENOENT},
			{"O_EXCL over a link", open("link", os.O_CREATE|os.O_EXCL|os.O_WRONLY), syscall.EEXIST},
			{"a link to itself", open("loop", os.O_RDONLY), syscall.ELOOP},
			{"truncate of a folder", os.Truncate(in("dir"), 0), syscall.EISDIR},
			{"truncate to less than nothing", unix.Truncate(in("file"), -1), syscall.EINVAL},
			{"readlink of a file", func() error { _, err := os.Readlink(in("file")); return err }(), syscall.EINVAL},
			{"rename over an empty folder", unix.Rename(in("full"), in("dir")), 0},
			{"what was in it", open("dir/x", os.O_RDONLY), 0},
			{"rename over a link", unix.Rename(in("file"), in("link")), 0},
			{"what the link is now", open("link", os.O_RDONLY|unix.O_NOFOLLOW), 0},
			{"the old name", open("file", os.O_RDONLY), syscall.ENOENT},
		} {
			if number(tt.err) != tt.want {
				t.Errorf("%s: %s: %v, want %v", mode, tt.what, tt.err, tt.want)
			}
		}
	}
}

func compareWithFolder(t *testing.T, a, b string, seed uint64, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	name := func() string {
		parts := []string{"a", "b", "c"}[:1+r.IntN(3)]
		out := ""
		for range 1 + r.IntN(3) {
			out = filepath.Join(out, parts[r.IntN(len(parts))])
		}
		return out
	}
	for step := range steps {
		x, y, n, k := name(), name(), r.IntN(50_000), r.IntN(10)
		seedOf := r.Uint64()
		call := func(dir string) (string, error) {
			p := filepath.Join(dir, x)
			switch k {
			case 0, 1:
				return "mkdir " + x, os.Mkdir(p, 0o755)
			case 2, 3:
				return "write " + x, os.WriteFile(p, content(n, seedOf), 0o644)
			case 4:
				return "remove " + x, os.Remove(p)
			case 5:
				return "rename " + x + " " + y, os.Rename(p, filepath.Join(dir, y))
			case 6:
				return "append " + x, change(p, os.O_WRONLY|os.O_APPEND, content(n, seedOf), 0)
			case 7:
				return "overwrite " + x, change(p, os.O_RDWR, content(n/2, seedOf), int64(n))
			case 8:
				return "truncate " + x, os.Truncate(p, int64(n))
			}
			return "symlink " + x, os.Symlink("nowhere", p)
		}
		what, err1 := call(a)
		_, err2 := call(b)
		if number(err1) != number(err2) {
			t.Fatalf("step %d, %s: %v, in a folder %v", step, what, err1, err2)
		}
	}
	if one, two := tree(t, a), tree(t, b); one != two {
		t.Fatalf("the mount has\n%s\nthe folder\n%s", one, two)
	}
}

func number(err error) syscall.Errno {
	n, _ := errors.AsType[syscall.Errno](err)
	return n
}

func content(n int, seed uint64) []byte {
	p := make([]byte, n)
	for i := range p {
		seed = seed*6364136223846793005 + 1442695040888963407
		p[i] = byte(seed >> 56)
	}
	return p
}

func change(path string, flags int, data []byte, off int64) error {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	if flags&os.O_APPEND != 0 {
		_, err = f.Write(data)
	} else {
		_, err = f.WriteAt(data, off)
	}
	return errors.Join(err, f.Close())
}

// tree describes all that is in a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", rel, info.Mode().Type())
		if info.Mode().IsRegular() {
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			data, err := io.ReadAll(f)
			if err != nil {
				return err
			}
			sum := uint64(14695981039346656037)
			for _, c := range data {
				sum = (sum ^ uint64(c)) * 1099511628211
			}
			fmt.Fprintf(&b, " %d %x", len(data), sum)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
