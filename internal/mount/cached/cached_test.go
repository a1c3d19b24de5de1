//go:build linux

package cached

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/direct"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mounttest"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

func bucket(t testing.TB) *memory.Bucket {
	t.Helper()
	b := (&memory.Store{}).Bucket("bucket")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// plain is a store that knows no conditions.
type plain struct{ storage.Bucket }

func (p plain) Unwrap() storage.Bucket { return p.Bucket }

func (p plain) Caps() storage.Caps {
	c := p.Bucket.Caps()
	c.Conditional, c.ConditionalParts, c.CopyPart = false, false, false
	return c
}

func everyone(string) bool { return true }

func opened(t testing.TB, b storage.Bucket, o Options) *Volume {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Config.WriteBack == 0 {
		o.Config.WriteBack = time.Millisecond
	}
	if o.Retry == 0 {
		o.Retry = time.Millisecond
	}
	o.Owner = func(int) string { return "job" }
	o.Node = "node"
	v, err := Open(b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func TestRandomCallsDoWhatTheyDoToFiles(t *testing.T) {
	for seed := range number("SKY_MOUNT_SEEDS", 4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			var b storage.Bucket = bucket(t)
			if seed%2 == 1 {
				b = plain{b}
			}
			dir := t.TempDir()
			o := Options{Dir: dir, Config: mountapi.Config{CacheMaxSize: 3 << 20}}
			if seed%3 == 0 {
				o.Config.WriteBack = time.Hour // all is in the cache
			}
			v := opened(t, b, o)
			m := mounttest.New(v, mounttest.Options{Seed: uint64(seed), Steps: number("SKY_MOUNT_STEPS", 250), Perms: true, OpenRename: true})
			m.Run(t)
			v.Close()
			// The next process has the same.
			v = opened(t, b, o)
			if err := m.Compare(t.Context(), v); err != nil {
				t.Fatal("opened again: ", err)
			}
			if _, err := v.Flush(t.Context(), everyone); err != nil {
				t.Fatal(err)
			}
			if !v.Settled() {
				t.Error("after a flush something is not in the bucket")
			}
			if err := m.Compare(t.Context(), v); err != nil {
				t.Fatal("after a flush: ", err)
			}
			// So has another mount, from the bucket.
			if err := m.Compare(t.Context(), direct.New(b, direct.Options{})); err != nil {
				t.Error("the bucket: ", err)
			}
			if len(v.conflicts) > 0 {
				t.Errorf("%d conflicts with nobody: %+v", len(v.conflicts), v.conflicts)
			}
		})
	}
}
