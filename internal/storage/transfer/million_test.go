package transfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// countless is a bucket of n objects that are made as they are listed, a page at a time. It
// notes the most memory that was in use when a page was asked for.
type countless struct {
	storage.Bucket
	n int

	mu      sync.Mutex
	removed []bool
	pages   int
	most    uint64
}

func newCountless(t *testing.T, n int) *countless {
	return &countless{Bucket: newBucket(t, &memory.Store{}, "b"), n: n, removed: make([]bool, n)}
}

func countlessKey(i int) string { return fmt.Sprintf("d%03d/%07d", i/1000, i) }

func (c *countless) object(i int) storage.Object {
	return storage.Object{Key: countlessKey(i), Size: 7, ETag: "e" + strconv.Itoa(i), MD5: binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i))}
}

func (c *countless) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	if o.Prefix != "" {
		return c.Bucket.List(ctx, o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages++; c.pages%20 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.most = max(c.most, m.HeapAlloc)
	}
	i, _ := strconv.Atoi(o.Token)
	var p storage.Page
	for ; i < c.n && len(p.Objects) < 1000; i++ {
		if !c.removed[i] {
			p.Objects = append(p.Objects, c.object(i))
		}
	}
	if i < c.n {
		p.Next = strconv.Itoa(i)
	}
	return p, nil
}

func (c *countless) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return c.List(ctx, o)
}

func (c *countless) Remove(_ context.Context, ids []storage.ID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		i, err := strconv.Atoi(id.Key[5:])
		if err != nil || c.removed[i] {
			return fmt.Errorf("%s is removed twice", id.Key)
		}
		c.removed[i] = true
	}
	return nil
}

// A bucket of a million objects is listed, compared and emptied a page at a time.
func TestAMillionObjects(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	const most = 96 << 20 // the objects as such would take several times as much
	from, to := newCountless(t, n), newCountless(t, n)
	r, err := Copy(t.Context(), from, "", to, "", Options{})
	if err != nil || r.Same != int64(n) || r.Files != 0 {
		t.Errorf("comparing: %+v, %v", r, err)
	}
	dir := t.TempDir()
	for i := range fewFiles + 100 { // so many that the bucket is listed
		path := filepath.Join(dir, fmt.Sprintf("d%03d", i*3), "zz")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Upload(t.Context(), source(t, dir), to, "", Options{}); err != nil || r.Files != fewFiles+100 {
		t.Errorf("uploading among them: %+v, %v", r, err)
	}
	if r, err := Delete(t.Context(), to, "", Options{}); err != nil || r.Files != int64(n) {
		t.Errorf("deleting: %+v, %v", r, err)
	}
	for i, gone := range to.removed {
		if !gone {
			t.Fatalf("%s is left", countlessKey(i))
		}
	}
	if m := max(from.most, to.most); m > most || m == 0 {
		t.Errorf("%d MB were in use", m>>20)
	}
	t.Logf("%d MB were in use at most", max(from.most, to.most)>>20)
}
