package filesync

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiskFull syncs to a disk of 1 MiB.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a small disk: ", err)
	}
	t.Cleanup(func() { unix.Unmount(disk, 0) })
	conn := serve(t, t.TempDir())
	small := map[string]string{}
	for i := range 100 {
		small[fmt.Sprint(i)] = noise(20_000)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
	}{
		{"small files", small},
		{"a large file", map[string]string{"big": noise(2 << 20), "a": "1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := t.TempDir()
			write(t, src, c.files)
			dst := filepath.Join(disk, strings.ReplaceAll(c.name, " ", "-"))
			_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: dst})
			full, ok := errors.AsType[*NoSpaceError](err)
			if !ok || !strings.HasPrefix(full.Path, dst) {
				t.Fatalf("%v", err)
			}
			want := snapshot(t, src)
			for path, text := range snapshot(t, dst) {
				if strings.HasPrefix(text, "-") && text != want[path] {
					t.Errorf("%q is not what the source has", path)
				}
			}
			if left := unfinished(t, disk); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
			must(t, os.RemoveAll(dst))
			write(t, src, map[string]string{"fits": "1"})
			for name := range c.files {
				must(t, os.Remove(filepath.Join(src, name)))
			}
			_, err = Send(t.Context(), conn, Options{Src: Local(src), Dst: dst})
			must(t, err)
			equal(t, src, dst)
		})
	}
}
