//go:build stores && linux

package stores

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
)

// A bucket that is deleted under a mount: the flush fails and names what is not stored, which
// is there when the bucket is.
func TestABucketIsDeletedUnderAMount(t *testing.T) {
	b, err := openS3(t.Context(), s3Server(t), "under")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	m := startMounts(t)
	cached := m.mount(b, mountapi.Cached)
	direct := m.mount(b, mountapi.Direct)
	open := func(dir string) *os.File {
		f, err := os.Create(filepath.Join(dir, "checkpoint"))
		if err == nil {
			_, err = f.WriteString("text")
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f, g := open(direct), open(cached)
	if err := b.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err == nil {
		t.Error("MOUNT: close has not failed")
	}
	if err := g.Close(); err != nil {
		t.Errorf("MOUNT_CACHED: %v", err)
	}
	if err := os.WriteFile(filepath.Join(cached, "another"), nil, 0o644); err == nil {
		t.Error("a file was made in a bucket that is not there")
	}
	_, err = m.client.Flush(t.Context(), mountapi.FlushRequest{Path: cached})
	said, _ := errors.AsType[*mountapi.Error](err)
	if said == nil || said.Code != mountapi.NotStored || len(said.Files) != 1 || said.Files[0].Path != "checkpoint" {
		t.Errorf("MOUNT_CACHED: %+v", err)
	}
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.client.Flush(t.Context(), mountapi.FlushRequest{Path: cached}); err != nil {
		t.Fatal(err)
	}
	if o, err := b.Stat(t.Context(), "checkpoint"); err != nil || o.Size != 4 {
		t.Errorf("the bucket has %+v, %v", o, err)
	}
	m.unmount(cached)
	m.unmount(direct)
}

// Two mounts write one file: with MOUNT the second one to close it is told, and with
// MOUNT_CACHED both versions are kept.
func TestTwoMountsWriteOneFile(t *testing.T) {
	b, err := openS3(t.Context(), s3Server(t), "shared")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	one, two := startMounts(t), startMounts(t)
	open := func(dir string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "both"), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("by " + dir); err != nil {
			t.Fatal(err)
		}
		return f
	}
	x, y := one.mount(b, mountapi.Direct), two.mount(b, mountapi.Direct)
	f, g := open(x), open(y)
	if err := f.Close(); err != nil {
		t.Errorf("the first one: %v", err)
	}
	if err := g.Close(); err == nil {
		t.Error("MOUNT: the second one has not heard of it")
	}
	one.unmount(x)
	two.unmount(y)

	x, y = one.mount(b, mountapi.Cached), two.mount(b, mountapi.Cached)
	for _, dir := range []string{x, y} {
		if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for dir, m := range map[string]*mounts{x: one, y: two} {
		if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("by "+dir), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := m.client.Flush(t.Context(), mountapi.FlushRequest{Path: dir}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := b.List(t.Context(), storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, o := range page.Objects {
		if !strings.Contains(o.Key, "kept") {
			continue
		}
		r, err := b.Get(t.Context(), o.Key, storage.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, o.Size)
		_, err = io.ReadFull(r, text)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		found[string(text)] = true
	}
	if !found["by "+x] || !found["by "+y] {
		t.Errorf("MOUNT_CACHED: the bucket has %v", found)
	}
	one.unmount(x)
	two.unmount(y)
}
