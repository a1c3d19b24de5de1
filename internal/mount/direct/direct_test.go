//go:build linux

package direct

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/skypilot-go/sky/internal/mount/mounttest"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// bucket is a bucket in memory.
func bucket(t testing.TB) *memory.Bucket {
	t.Helper()
	s := &memory.Store{}
	b := s.Bucket("bucket")
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

func TestRandomCallsDoWhatTheyDoToFiles(t *testing.T) {
	for seed := range number("SKY_MOUNT_SEEDS", 4) {
		for _, prefix := range []string{"", "some/where"} {
			t.Run(fmt.Sprintf("seed %d %q", seed, prefix), func(t *testing.T) {
				t.Parallel()
				var b storage.Bucket = bucket(t)
				if seed%2 == 1 {
					b = plain{b}
				}
				v := New(b, Options{Tree: remote.Options{Prefix: prefix}})
				m := mounttest.New(v, mounttest.Options{Seed: uint64(seed), Steps: number("SKY_MOUNT_STEPS", 250), Perms: true})
				m.Run(t)
				// Another mount sees the same.
				if err := m.Compare(t.Context(), New(b, Options{Tree: remote.Options{Prefix: prefix}})); err != nil {
					t.Error("another mount: ", err)
				}
			})
		}
	}
}
