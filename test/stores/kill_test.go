//go:build stores

package stores

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/s3"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

// The test binary is its own victim: with these arguments it is a process that makes one
// transfer.
const victim = "SKY_STORES_VICTIM"

func TestMain(m *testing.M) {
	if what := os.Getenv(victim); what != "" {
		if err := transferOnce(what, os.Getenv("SKY_STORES_ENDPOINT"), os.Getenv("SKY_STORES_DIR"), os.Getenv("SKY_STORES_JOURNAL")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func openS3(ctx context.Context, endpoint, bucket string) (storage.Bucket, error) {
	return s3.Open(ctx, storage.Location{Store: storage.S3, Bucket: bucket}, s3Options(endpoint, storage.NewTransport()))
}

func transferOnce(what, endpoint, dir, journal string) error {
	ctx := context.Background()
	b, err := openS3(ctx, endpoint, "first")
	if err != nil {
		return err
	}
	o := transfer.Options{Journal: journal}
	switch what {
	case "upload":
		src, err := transfer.Local(dir)
		if err != nil {
			return err
		}
		_, err = transfer.Upload(ctx, src, b, "p", o)
		return err
	case "download":
		_, _, err = transfer.Download(ctx, b, "p/", dir, o)
	case "copy":
		var to storage.Bucket
		if to, err = openS3(ctx, endpoint, "second"); err == nil {
			_, err = transfer.Copy(ctx, b, "p/", to, "q", o)
		}
	case "delete":
		_, err = transfer.Delete(ctx, b, "p", o)
	}
	return err
}

func seed(t *testing.T) uint64 {
	if text := os.Getenv("SKY_STORES_SEED"); text != "" {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	n := rand.Uint64N(1e6)
	t.Logf("SKY_STORES_SEED=%d repeats the schedule", n)
	return n
}

// until runs a transfer that is killed again and again, later each time, until it comes
// to its end.
func until(t *testing.T, r *rand.Rand, what, endpoint, dir, journal string, look func()) (kills int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for life := 0; ; life++ {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), victim+"="+what, "SKY_STORES_ENDPOINT="+endpoint, "SKY_STORES_DIR="+dir, "SKY_STORES_JOURNAL="+journal)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var kill <-chan time.Time
		if life < 40 { // then it may end
			kill = time.After(time.Duration(20+10*life)*time.Millisecond + time.Duration(r.Int64N(int64(200*time.Millisecond))))
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: life %d: %v", what, life, err)
			}
			t.Logf("%s: %d kills", what, kills)
			return kills
		case <-kill:
			cmd.Process.Kill()
			<-ended
			kills++
			if look != nil {
				look()
			}
		}
	}
}

func TestTransfersSurviveKills(t *testing.T) {
	r := rand.New(rand.NewPCG(seed(t), 1))
	endpoint := s3Server(t)
	b, err := openS3(t.Context(), endpoint, "first")
	if err != nil {
		t.Fatal(err)
	}
	c, err := openS3(t.Context(), endpoint, "second")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []storage.Bucket{b, c} {
		if err := b.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	keepVersions(t, endpoint, b)
	src, dst, journal := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "journal")
	tree := map[string][]byte{}
	for i := range 3 {
		tree[fmt.Sprintf("large/%d", i)] = random(r, 20<<20+r.IntN(20<<20))
	}
	for i := range 600 {
		tree[fmt.Sprintf("many/%d/%d", i%7, i)] = random(r, r.IntN(8<<10))
	}
	for name, content := range tree {
		file := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	until(t, r, "upload", endpoint, src, journal, nil)
	wantObjects(t, b, "p/", tree)
	wantNoUploads(t, b)
	until(t, r, "copy", endpoint, "", journal, nil)
	wantObjects(t, c, "q/", tree)
	wantNoUploads(t, c)
	until(t, r, "download", endpoint, dst, "", func() {
		// What has its name is whole.
		wantTree(t, dst, tree, false)
	})
	wantTree(t, dst, tree, true)
	until(t, r, "delete", endpoint, "", "", nil)
	page, err := b.Versions(t.Context(), storage.ListOptions{})
	if err != nil || len(page.Objects) > 0 {
		t.Errorf("after the deletion: %d versions, %v", len(page.Objects), err)
	}
	wantNoUploads(t, b)
	if err := b.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

func random(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	source.Read(p)
	return p
}

func wantNoUploads(t *testing.T, b storage.Bucket) {
	t.Helper()
	page, err := b.Uploads(t.Context(), storage.ListOptions{})
	if err != nil || len(page.Uploads) > 0 {
		t.Errorf("unfinished uploads: %v, %v", page.Uploads, err)
	}
}

// wantObjects downloads what is below a prefix, in this process, and compares it.
func wantObjects(t *testing.T, b storage.Bucket, prefix string, want map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	if _, _, err := transfer.Download(t.Context(), b, prefix, dir, transfer.Options{}); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, want, true)
}

// wantTree compares the files of a folder; all: there must be all of them, and nothing
// else.
func wantTree(t *testing.T, dir string, want map[string][]byte, all bool) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, file)
		content, ok := want[filepath.ToSlash(name)]
		if !ok {
			if all {
				t.Errorf("%s is there", name)
			}
			return nil
		}
		seen++
		if have, err := os.ReadFile(file); err != nil || string(have) != string(content) {
			t.Errorf("%s has %d bytes, %v, want %d", name, len(have), err, len(content))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if all && seen != len(want) {
		t.Errorf("%d files, want %d", seen, len(want))
	}
}
