package server

import (
	"archive/zip"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// withLimits is a server with limits on uploads.
func withLimits(t *testing.T, l UploadLimits) *testEnv {
	return newTestEnv(t, func(d *Deps) { d.Uploads = &Uploads{Home: d.Home, Store: d.Store, Limits: l} })
}

// left is what there is of uploads.
func (env *testEnv) left() string {
	env.t.Helper()
	var names []string
	_ = filepath.WalkDir(filepath.Join(env.home, clientsDir), func(p string, d os.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || strings.Contains(d.Name(), "parts") || strings.HasPrefix(d.Name(), unpackingPrefix)) {
			names = append(names, p)
		}
		return nil
	})
	return strings.Join(names, " ")
}

func TestAnUploadThatIsTooMuchLeavesNothing(t *testing.T) {
	zeros := func(n int) []byte {
		return hostileZip(t, zip.FileHeader{Name: "zeros", Comment: "", Method: zip.Deflate},
			zip.FileHeader{Name: "z", Method: zip.Deflate, Comment: strings.Repeat("\x00", min(n, 60_000))})
	}
	many := make([]zip.FileHeader, 40)
	for i := range many {
		many[i] = zipFileOf(fmt.Sprint("f", i))
	}
	for _, c := range []struct {
		name   string
		limits UploadLimits
		data   []byte
		want   int
	}{
		{"of one user", UploadLimits{User: 20_000}, zeros(60_000), http.StatusRequestEntityTooLarge},
		{"of one upload, unpacked", UploadLimits{One: 20_000}, zeros(60_000), http.StatusRequestEntityTooLarge},
		{"of one upload, packed", UploadLimits{One: 100}, zeros(60_000), http.StatusRequestEntityTooLarge},
		{"of all users", UploadLimits{All: 20_000}, zeros(60_000), http.StatusInsufficientStorage},
		{"for the disk", UploadLimits{KeepFree: math.MaxInt64 / 8}, zeros(60_000), http.StatusInsufficientStorage},
		{"in number", UploadLimits{Entries: 39}, hostileZip(t, many...), http.StatusRequestEntityTooLarge},
		{"in depth", UploadLimits{}, hostileZip(t, zip.FileHeader{Name: strings.Repeat("n/", 300)}), http.StatusBadRequest},
		{"in the length of a name", UploadLimits{}, hostileZip(t, zip.FileHeader{Name: strings.Repeat("n", 5000)}), http.StatusBadRequest},
	} {
		env := withLimits(t, c.limits)
		if r := env.chunk(0, 1, c.data); r.status != c.want || len(r.body) < 40 {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
		if left := env.left(); left != "" {
			t.Errorf("%s: left behind: %s", c.name, left)
		}
		env.server.Uploads.Limits = UploadLimits{}
		if r := env.chunk(0, 1, c.data); c.want != http.StatusBadRequest && !strings.Contains(r.body, "completed") {
			t.Errorf("%s: without the limit: %d %s", c.name, r.status, r.body)
		}
	}
}

func TestAnUploadThatIsThereIsNotAskedForRoom(t *testing.T) {
	env := withLimits(t, UploadLimits{})
	data := hostileZip(t, zipFileOf("a"))
	if r := env.chunk(0, 1, data); !strings.Contains(r.body, "completed") {
		t.Fatal(r.body)
	}
	env.server.Uploads.Limits = UploadLimits{All: 1, User: 1}
	if r := env.chunk(0, 1, data); !strings.Contains(r.body, "completed") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAnArchiveThatGrowsTooMuchIsRefusedByItsDirectory(t *testing.T) {
	big := zip.FileHeader{Name: "z", Method: zip.Store}
	data := hostileZip(t, big)
	_, err := readArchive(strings.NewReader(string(data)), int64(len(data)), UploadLimits{}.filled())
	if err != nil {
		t.Error(err)
	}
	// The directory says 3 GiB, as that of a real bomb of 3 MB does.
	at := strings.LastIndex(string(data), "PK\x01\x02")
	copy(data[at+24:], []byte{0, 0, 0, 0xc0})
	_, err = readArchive(strings.NewReader(string(data)), int64(len(data)), UploadLimits{}.filled())
	if e, ok := err.(*refusedUpload); !ok || e.status != http.StatusRequestEntityTooLarge {
		t.Error(err)
	}
}

func TestWhatACrashLeftOfUploadsIsRemovedAtTheStart(t *testing.T) {
	env := newTestEnv(t)
	env.file(BlobDir("ab12", unpackingPrefix+"123/files/x"), "")
	env.file(clientsDir+"/ab12/uploads/"+unpackingPrefix+"1/files/x", "")
	env.file(BlobDir("ab12", testBlob+".parts/part0.0f0f"), "")
	env.file(BlobDir("ab12", testBlob+".parts/part1"), "")
	env.file(BlobDir("ab12", strings.Repeat("a", 64)+"/a.b"), "")
	if err := env.server.Uploads.Clean(); err != nil {
		t.Error(err)
	}
	if left := env.left(); strings.Count(left, ab) != 3 || strings.Contains(left, unpackingPrefix) || strings.Contains(left, "0f0f") {
		t.Errorf("left: %s", left)
	}
}

const ab = "/ab12/"

func TestPartsAreReadAsOneFile(t *testing.T) {
	dir := t.TempDir()
	u := unpacking{dir: filepath.Join(dir, "x"), total: 3}
	whole := "0123456789"
	if err := os.Mkdir(u.parts(), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, part := range []string{"012", "", "3456789"} {
		if err := os.WriteFile(u.part(i), []byte(part), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := u.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for from := range len(whole) + 1 {
		for n := range len(whole) + 2 {
			got := make([]byte, n)
			m, err := r.ReadAt(got, int64(from))
			if want := whole[from:min(len(whole), from+n)]; string(got[:m]) != want || (err != nil) != (m < n) {
				t.Errorf("%d at %d: %q %v", n, from, got[:m], err)
			}
		}
	}
}

func TestABrokenChunkLeavesNothing(t *testing.T) {
	env := newTestEnv(t)
	u := env.server.Uploads.at("ab12", testBlob, 1)
	if err := u.receive(0, -1, iotest.TimeoutReader(strings.NewReader("some bytes"))); err == nil {
		t.Error("a chunk that broke off is taken")
	}
	if found, _ := filepath.Glob(u.parts() + "/*"); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
}
