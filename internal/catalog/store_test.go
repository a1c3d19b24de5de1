package catalog

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/wholefile"
)

const tinyList = "InstanceType,vCPUs,MemoryGiB,Price,Region\nbox,8,32,%v,home\n"

// host serves price lists; price is what they say, status what it answers.
type host struct {
	price  atomic.Int64
	status atomic.Int64
	hits   atomic.Int64
	url    string
}

func newHost(t *testing.T) *host {
	h := &host{}
	h.price.Store(1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.hits.Add(1)
		if code := h.status.Load(); code != 0 {
			w.WriteHeader(int(code))
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/lambda/vms.csv") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, tinyList, h.price.Load())
	}))
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h
}

func price(t *testing.T, s *Store) float64 {
	t.Helper()
	table, err := s.Table(t.Context(), "lambda")
	if err != nil {
		t.Fatal(err)
	}
	return table.Find(Query{InstanceType: "box"})[0].HourlyPrice
}

func TestDownloadAndRefresh(t *testing.T) {
	main, mirror := newHost(t), newHost(t)
	mirror.price.Store(7)
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: main.url, MirrorURL: mirror.url})
	if got := price(t, s); got != 1 {
		t.Fatalf("first download says %v", got)
	}
	if price(t, s); main.hits.Load() != 1 {
		t.Errorf("a list that is here was asked for again")
	}
	now := time.Now()
	main.price.Store(2)
	s.RefreshDue(t.Context(), now.Add(6*time.Hour))
	if got := price(t, s); got != 1 {
		t.Errorf("refreshed before its time")
	}
	s.RefreshDue(t.Context(), now.Add(8*time.Hour))
	if got := price(t, s); got != 2 {
		t.Errorf("not refreshed after its time: %v", got)
	}
	main.status.Store(http.StatusTooManyRequests)
	s.RefreshDue(t.Context(), now.Add(16*time.Hour))
	if got := price(t, s); got != 7 {
		t.Errorf("the mirror was not asked: %v", got)
	}
	mirror.status.Store(http.StatusInternalServerError)
	later := now.Add(24 * time.Hour)
	s.RefreshDue(t.Context(), later)
	hits := main.hits.Load()
	s.RefreshDue(t.Context(), later.Add(time.Minute))
	if got := price(t, s); got != 7 || main.hits.Load() != hits {
		t.Errorf("offline: price %v, asked again at once: %v", got, main.hits.Load() != hits)
	}
	if i := s.Info("lambda", later); !i.Overdue || i.Edited {
		t.Errorf("age is not told: %+v", i)
	}
}

func TestEditedFilesStay(t *testing.T) {
	h := newHost(t)
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: h.url, MirrorURL: h.url})
	price(t, s)
	file := filepath.Join(s.o.Dir, "lambda/vms.csv")
	edit := fmt.Appendf(nil, tinyList, 5)
	if err := os.WriteFile(file, edit, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context(), "lambda"); err != nil {
		t.Fatal(err)
	}
	if got := price(t, s); got != 5 {
		t.Errorf("an edited file was overwritten: %v", got)
	}
	if !s.Info("lambda", time.Now()).Edited {
		t.Error("the edit goes unnoticed")
	}
}

// A process that dies between writing the list and its digest leaves a list
// that is still known to be downloaded.
func TestDigestSurvivesACrash(t *testing.T) {
	h := newHost(t)
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: h.url, MirrorURL: h.url})
	price(t, s)
	digest := filepath.Join(s.o.Dir, ".meta/lambda/vms.csv.md5")
	if err := os.Rename(digest, digest+".next"); err != nil {
		t.Fatal(err)
	}
	if s.Info("lambda", time.Now()).Edited {
		t.Error("taken for edited")
	}
}

func TestHotReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lambda/vms.csv")
	write := func(text string, age time.Duration) {
		t.Helper()
		if err := wholefile.Write(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(tinyList, 1), time.Hour)
	s := NewStore(StoreOptions{Dir: dir, Offline: true})
	first, _ := s.Table(t.Context(), "lambda")
	if again, _ := s.Table(t.Context(), "LAMBDA"); again != first {
		t.Error("loaded twice without a change")
	}
	write(fmt.Sprintf(tinyList, 2), time.Minute)
	if got := price(t, s); got != 2 {
		t.Errorf("a changed file is not noticed: %v", got)
	}
	write("garbage\n", time.Second)
	if got := price(t, s); got != 2 {
		t.Errorf("a broken file replaced the last good list: %v", got)
	}
}

func TestOverrides(t *testing.T) {
	dir := t.TempDir()
	if err := wholefile.Write(filepath.Join(dir, "lambda/vms.csv"), fmt.Appendf(nil, tinyList, 4), 0o644); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own.csv")
	if err := wholefile.Write(own, []byte("InstanceType,vCPUs,MemoryGiB,Price,Region\nspecial,16,64,2,home\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := NewStore(StoreOptions{Dir: dir, Offline: true, Overrides: map[string]Override{"lambda": {File: own, Discount: 0.25}}})
	if got := price(t, s); got != 3 {
		t.Errorf("discount: %v", got)
	}
	table, _ := s.Table(t.Context(), "lambda")
	if got := table.Find(Query{InstanceType: "special"}); len(got) != 1 || got[0].HourlyPrice != 1.5 {
		t.Errorf("own machine: %v", got)
	}
}

func TestNoList(t *testing.T) {
	h := newHost(t)
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: h.url, MirrorURL: h.url})
	for _, bad := range []string{"aws", "../etc", "", "."} {
		if _, err := s.Table(t.Context(), bad); err == nil {
			t.Errorf("%q has a price list", bad)
		}
	}
	tables, err := s.Tables(t.Context(), []string{"lambda", "aws"})
	if len(tables) != 1 || err == nil || !strings.Contains(err.Error(), "aws") {
		t.Errorf("%d tables, error %v", len(tables), err)
	}
}

func TestConcurrentReaders(t *testing.T) {
	h := newHost(t)
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: h.url, MirrorURL: h.url})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := s.Table(t.Context(), "lambda"); err != nil {
					t.Error(err)
				}
				if i == 0 {
					s.Refresh(t.Context(), "lambda")
				}
			}
		})
	}
	wg.Wait()
	if h.hits.Load() > 30 {
		t.Errorf("%d downloads", h.hits.Load())
	}
}
