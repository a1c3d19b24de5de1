//go:build linux

package fusefs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
)

// Where a mount is no folder: what MOUNT has not read yet is gone with its object.
var otherwise = map[string]string{
	"MOUNT, unlink of what is open, step 1":   "okstale file handle",
	"MOUNT, rename over what is open, step 2": "okstale file handle",
}

// What calls return and leave behind on a mount is what it is in a plain folder, but for what
// docs/storage.md says: no hard links, no owners, no special files, in large files of MOUNT
// no writing at any place, and what else is above. Each case has a folder of its own.
func TestCallsDoWhatTheyDoInAFolder(t *testing.T) {
	direct, _ := mounted(t, served(t), fusefs.Options{})
	mounts := map[string]string{"MOUNT": direct, "MOUNT_CACHED": mountedCached(t, served(t))}
	plain := t.TempDir()
	long := strings.Repeat("x", 255)
	number := func(err error) string {
		if err == nil {
			return "ok"
		}
		return fmt.Sprintf("%v", number(err))
	}
	write := func(path, text string) string { return number(os.WriteFile(path, []byte(text), 0o644)) }
	read := func(path string) string {
		text, err := os.ReadFile(path)
		return fmt.Sprintf("%q %s", text, number(err))
	}
	open := func(path string, flags int, perm uint32, use func(fd int) string) string {
		fd, err := unix.Open(path, flags, perm)
		if err != nil {
			return number(err)
		}
		defer unix.Close(fd)
		if use == nil {
			return "ok"
		}
		return use(fd)
	}
	list := func(dir string) string {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, fmt.Sprint(e))
		}
		slices.Sort(names)
		return fmt.Sprint(names, number(err))
	}
	stat := func(path string) string {
		info, err := os.Lstat(path)
		if err != nil {
			return number(err)
		}
		if info.IsDir() {
			return info.Mode().Type().String()
		}
		return fmt.Sprint(info.Mode(), info.Size())
	}
	for name, do := range map[string]func(in func(string) string) []string{
		"create with a mode": func(in func(string) string) []string {
			return []string{open(in("f"), unix.O_CREAT|unix.O_WRONLY, 0o600, nil), stat(in("f")), open(in("g"), unix.O_CREAT|unix.O_WRONLY, 0o755, nil), stat(in("g"))}
		},
		"create where there is something": func(in func(string) string) []string {
			return []string{write(in("f"), "text"), open(in("f"), unix.O_CREAT|unix.O_WRONLY, 0o600, nil), read(in("f")), stat(in("f")), open(in("f"), unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o600, nil), read(in("f"))}
		},
		"the longest name": func(in func(string) string) []string {
			return []string{write(in(long), "text"), read(in(long)), number(os.Rename(in(long), in("f"))), number(os.Mkdir(in(long), 0o755)), number(os.Remove(in(long))), number(os.Symlink("f", in(long))), read(in(long))}
		},
		"names that are too long": func(in func(string) string) []string {
			return []string{write(in(long+"x"), ""), stat(in(long + "x")), number(os.Symlink("f", in(long+"x"))), number(unix.Unlink(in(long + "x"))), write(in("f"), ""), number(unix.Rename(in("f"), in(long+"x")))}
		},
		"names with signs": func(in func(string) string) []string {
			var out []string
			for _, name := range []string{" ", "a b", "ä", "日本", "x\ty", "%41", "a+b", "a\\b", "?", "#", "&", "'", "\"", "~", "..."} {
				out = append(out, write(in(name), name), read(in(name)))
			}
			return append(out, list(in("")))
		},
		"a file in place of a folder": func(in func(string) string) []string {
			return []string{write(in("f"), ""), write(in("f/x"), ""), number(os.Mkdir(in("f/x"), 0o755)), number(unix.Unlink(in("f/x"))), stat(in("f/x")), number(os.Symlink("a", in("f/x"))), number(unix.Rename(in("f/x"), in("g"))), number(unix.Rename(in("f"), in("f/x"))),
				number(unix.Truncate(in("f/x"), 0)), number(unix.Chmod(in("f/x"), 0o600)), open(in("f"), unix.O_RDONLY|unix.O_DIRECTORY, 0, nil)}
		},
		"descriptors and what they are for": func(in func(string) string) []string {
			return []string{write(in("f"), "text"),
				open(in("f"), unix.O_RDONLY, 0, func(fd int) string { _, err := unix.Write(fd, []byte("x")); return number(err) }),
				open(in("f"), unix.O_WRONLY, 0, func(fd int) string { _, err := unix.Read(fd, make([]byte, 1)); return number(err) }),
				open(in("f"), unix.O_RDONLY, 0, func(fd int) string { return number(unix.Ftruncate(fd, 0)) }),
				open(in(""), unix.O_RDONLY, 0, func(fd int) string { _, err := unix.Read(fd, make([]byte, 1)); return number(err) }),
				open(in("f"), unix.O_RDWR, 0, func(fd int) string { _, err := unix.Pread(fd, make([]byte, 1), -1); return number(err) }), read(in("f"))}
		},
		"append": func(in func(string) string) []string {
			return []string{write(in("f"), "one "), open(in("f"), unix.O_WRONLY|unix.O_APPEND, 0, func(fd int) string {
				unix.Seek(fd, 0, 0)
				a, err := unix.Write(fd, []byte("two "))
				b, err2 := unix.Write(fd, []byte("three"))
				at, _ := unix.Seek(fd, 0, 1)
				return fmt.Sprint(a, number(err), b, number(err2), at)
			}), read(in("f"))}
		},
		"truncate": func(in func(string) string) []string {
			return []string{write(in("f"), "0123456789"), number(unix.Truncate(in("f"), 4)), read(in("f")), number(unix.Truncate(in("f"), 8)), read(in("f")), number(unix.Truncate(in("none"), 0)), number(unix.Truncate(in("f"), 0)), read(in("f")),
				open(in("f"), unix.O_RDWR, 0, func(fd int) string {
					unix.Write(fd, []byte("abc"))
					return number(unix.Ftruncate(fd, 6))
				}), read(in("f"))}
		},
		"a hole": func(in func(string) string) []string {
			return []string{open(in("f"), unix.O_CREAT|unix.O_RDWR, 0o644, func(fd int) string {
				_, err := unix.Pwrite(fd, []byte("end"), 5000)
				return number(err)
			}), stat(in("f")), read(in("f"))}
		},
		"unlink of what is open": func(in func(string) string) []string {
			return []string{write(in("f"), "text"), open(in("f"), unix.O_RDONLY, 0, func(fd int) string {
				err := unix.Unlink(in("f"))
				p := make([]byte, 10)
				n, err2 := unix.Pread(fd, p, 0)
				return number(err) + number(err2) + string(p[:max(0, n)])
			}), stat(in("f")), list(in(""))}
		},
		"rename over what is open": func(in func(string) string) []string {
			return []string{write(in("f"), "old"), write(in("g"), "new"), open(in("f"), unix.O_RDONLY, 0, func(fd int) string {
				err := unix.Rename(in("g"), in("f"))
				p := make([]byte, 10)
				n, err2 := unix.Pread(fd, p, 0)
				return number(err) + number(err2) + string(p[:max(0, n)])
			}), read(in("f")), list(in(""))}
		},
		"rename to itself": func(in func(string) string) []string {
			return []string{write(in("f"), "text"), number(unix.Rename(in("f"), in("f"))), read(in("f")), number(os.Mkdir(in("d"), 0o755)), number(unix.Rename(in("d"), in("d"))), list(in(""))}
		},
		"rename of a folder with something in it": func(in func(string) string) []string {
			return []string{number(os.MkdirAll(in("a/b/c"), 0o755)), write(in("a/b/f"), "text"), number(unix.Rename(in("a"), in("z"))), stat(in("a")), read(in("z/b/f")), list(in("z")), list(in("z/b")), number(unix.Rename(in("z/b"), in("b"))), read(in("b/f")), list(in("z"))}
		},
		"rename into what is below": func(in func(string) string) []string {
			return []string{number(os.MkdirAll(in("a/b"), 0o755)), number(unix.Rename(in("a"), in("a/b/c"))), number(unix.Rename(in("a/b"), in("a"))), list(in("a"))}
		},
		"exchange": func(in func(string) string) []string {
			return []string{write(in("f"), "f"), write(in("g"), "g"), number(unix.Renameat2(unix.AT_FDCWD, in("f"), unix.AT_FDCWD, in("h"), unix.RENAME_NOREPLACE)), number(unix.Renameat2(unix.AT_FDCWD, in("h"), unix.AT_FDCWD, in("g"), unix.RENAME_NOREPLACE)), list(in(""))}
		},
		"rmdir": func(in func(string) string) []string {
			return []string{number(os.MkdirAll(in("a/b"), 0o755)), number(unix.Rmdir(in("a"))), number(unix.Rmdir(in("a/b/."))), number(unix.Rmdir(in("a/b/.."))), number(unix.Rmdir(in("a/b"))), number(unix.Rmdir(in("a/b"))), list(in("a")), number(unix.Rmdir(in("a"))), stat(in("a"))}
		},
		"unlink of folders, rmdir of files": func(in func(string) string) []string {
			return []string{number(os.Mkdir(in("d"), 0o755)), write(in("f"), ""), number(os.Symlink("d", in("l"))), number(unix.Unlink(in("d"))), number(unix.Rmdir(in("f"))), number(unix.Rmdir(in("l"))), number(unix.Unlink(in("l"))), list(in(""))}
		},
		"symbolic links": func(in func(string) string) []string {
			target := func(p string) string { s, err := os.Readlink(p); return s + number(err) }
			return []string{number(os.Mkdir(in("d"), 0o755)), number(os.Symlink("d", in("l"))), write(in("l/x"), "text"), read(in("d/x")), target(in("l")), target(in("d")), number(os.Symlink("../gone", in("broken"))), read(in("broken")), stat(in("broken")), target(in("broken")),
				write(in("d/y"), "1"), number(os.Symlink("d/y", in("file"))), write(in("file"), "2"), read(in("d/y")), open(in("file"), unix.O_RDONLY|unix.O_NOFOLLOW, 0, nil), number(unix.Rename(in("file"), in("moved"))), target(in("moved")), number(unix.Unlink(in("moved"))), read(in("d/y")),
				number(os.Symlink("two", in("one"))), number(os.Symlink("one", in("two"))), read(in("one")), number(os.Mkdir(in("one/x"), 0o755)), number(os.Symlink("", in("empty")))}
		},
		"chmod": func(in func(string) string) []string {
			return []string{write(in("f"), "text"), number(unix.Chmod(in("f"), 0o755)), stat(in("f")), number(unix.Chmod(in("f"), 0o400)), stat(in("f")), read(in("f")), number(unix.Chmod(in("none"), 0o600)), open(in("f"), unix.O_RDONLY, 0, func(fd int) string { return number(unix.Fchmod(fd, 0o640)) }), stat(in("f"))}
		},
		"times": func(in func(string) string) []string {
			at := []unix.Timespec{{Sec: 1_000_000_000}, {Sec: 1_500_000_000, Nsec: 123_000_000}}
			err := unix.UtimesNanoAt(unix.AT_FDCWD, in("none"), at, 0)
			out := []string{number(err), write(in("f"), "text"), number(unix.UtimesNanoAt(unix.AT_FDCWD, in("f"), at, 0))}
			info, err := os.Stat(in("f"))
			if err == nil {
				out = append(out, info.ModTime().UTC().String())
			}
			return append(out, read(in("f")))
		},
		"space in advance": func(in func(string) string) []string {
			return []string{write(in("f"), "text"), open(in("f"), unix.O_RDWR, 0, func(fd int) string {
				_, err := unix.Seek(fd, -1, 0)
				n, err2 := unix.Seek(fd, 0, 2)
				return fmt.Sprint(number(err), n, number(err2))
			})}
		},
		"two descriptors": func(in func(string) string) []string {
			return []string{write(in("f"), "0123456789"), open(in("f"), unix.O_RDWR, 0, func(a int) string {
				return open(in("f"), unix.O_RDWR, 0, func(b int) string {
					unix.Pwrite(a, []byte("AA"), 0)
					unix.Pwrite(b, []byte("BB"), 8)
					p := make([]byte, 20)
					n, err := unix.Pread(b, p, 0)
					return string(p[:max(0, n)]) + number(err)
				})
			}), read(in("f"))}
		},
		"locks": func(in func(string) string) []string {
			return []string{write(in("f"), ""), open(in("f"), unix.O_RDWR, 0, func(a int) string {
				one := unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB)
				return open(in("f"), unix.O_RDWR, 0, func(b int) string {
					two := unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB)
					free := unix.Flock(a, unix.LOCK_UN)
					three := unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB)
					return number(one) + number(two) + number(free) + number(three)
				})
			})}
		},
		"a list while it changes": func(in func(string) string) []string {
			var out []string
			for i := range 20 {
				out = append(out, write(in(fmt.Sprint("f", i)), ""))
			}
			for i := range 10 {
				out = append(out, number(os.Remove(in(fmt.Sprint("f", 2*i)))))
			}
			return append(out, list(in("")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outcome := func(top string) []string {
				dir := filepath.Join(top, strings.ReplaceAll(name, " ", "-"))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				return do(func(name string) string { return dir + "/" + name })
			}
			want := outcome(plain)
			for mode, top := range mounts {
				got := outcome(top)
				for i, want := range want {
					if other := otherwise[fmt.Sprintf("%s, %s, step %d", mode, name, i)]; other != "" {
						want = other
					}
					if got[i] != want {
						t.Errorf("%s, step %d: %s, want %s", mode, i, got[i], want)
					}
				}
			}
		})
	}
}
