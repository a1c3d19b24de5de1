//go:build attack && linux

package attack

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// An entry is one of an archive.
type entry struct {
	name, text string
	mode       fs.FileMode
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o600)
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zeros is an archive of files of zeros: small here, large there. Each says that
// it has says bytes, and has each: a multiple of 1 MiB.
func zeros(t *testing.T, files int, each, says int64) []byte {
	t.Helper()
	// A MiB of zeros that refers to nothing before it can be repeated as it is.
	var mib, last, b bytes.Buffer
	block := make([]byte, 1<<20)
	d, err := flate.NewWriter(&mib, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	d.Write(block)
	d.Flush()
	d.Reset(&last)
	d.Close()
	sum := uint32(0)
	for left := each; left > 0; left -= int64(len(block)) {
		sum = crc32.Update(sum, crc32.IEEETable, block)
	}
	data := append(bytes.Repeat(mib.Bytes(), int(each>>20)), last.Bytes()...)
	z := zip.NewWriter(&b)
	for n := range files {
		w, err := z.CreateRaw(&zip.FileHeader{Name: fmt.Sprint("zeros", n), Method: zip.Deflate, CRC32: sum, CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(says)})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	z.Close()
	return b.Bytes()
}

// many is an archive of empty files.
func many(t *testing.T, files int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for n := range files {
		if _, err := z.CreateRaw(&zip.FileHeader{Name: fmt.Sprint("d/", n), Method: zip.Store, CRC32: crc32.ChecksumIEEE(nil)}); err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	return b.Bytes()
}

func blobID() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// upload sends an archive as one chunk and returns the upload's id.
func (c *caller) upload(zip []byte) (string, answer) {
	id := blobID()
	q := url.Values{"user_hash": {c.s.ids[c.name]}, "upload_id": {id}, "chunk_index": {"0"}, "total_chunks": {"1"}}
	return id, c.within(2*time.Minute, "POST", "/upload_v2?"+q.Encode(), bytes.NewReader(zip), "application/octet-stream")
}

// files are all files below a folder, with their sizes.
func files(dir string) (names map[string]bool, size int64) {
	names = map[string]bool{}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names[path] = true
			if i, err := d.Info(); err == nil {
				size += i.Size()
			}
		}
		return nil
	})
	return names, size
}

// TestHostileArchives uploads archives that want to write or read elsewhere, or to
// fill the disk. Each is refused or harmless, and a refused one leaves nothing.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, false)
	uma := s.as("uma")
	link := fs.ModeSymlink
	deep := strings.Repeat("d/", 3)
	good := archive(t, entry{name: "a", text: "x"})
	plain := []struct {
		name string
		zip  []byte
		may  bool // be accepted: links as they are, which nothing follows
	}{
		{"a name above", archive(t, entry{name: "../../../../../outside", text: "x"}), false},
		{"a name above, inside", archive(t, entry{name: "a/../../../outside", text: "x"}), false},
		{"an absolute name", archive(t, entry{name: "/tmp/sky-attack-outside", text: "x"}), false},
		{"a backslash", archive(t, entry{name: `..\..\outside`, text: "x"}), true},
		{"a NUL", archive(t, entry{name: "a\x00b", text: "x"}), false},
		{"a drive", archive(t, entry{name: `C:\outside`, text: "x"}), true},
		{"an empty name", archive(t, entry{name: "", text: "x"}), false},
		{"a link outside", archive(t, entry{name: "l", text: "/etc", mode: link}), true},
		{"a link above", archive(t, entry{name: "l", text: "../../..", mode: link}), true},
		{"a file through a link outside", archive(t, entry{name: "l", text: "/tmp", mode: link}, entry{name: "l/sky-attack-outside", text: "x"}), false},
		{"a chain of links out of the folder", archive(t, entry{name: deep + "L", text: "../../..", mode: link}, entry{name: "e", text: deep + "L/../..", mode: link}), true},
		{"a file through a chain of links", archive(t, entry{name: deep + "L", text: "../../..", mode: link}, entry{name: "e", text: deep + "L/../../..", mode: link}, entry{name: "e/outside", text: "x"}), false},
		{"a chain whose ends come first", archive(t, entry{name: "e", text: deep + "L/../..", mode: link}, entry{name: deep + "L", text: "../../..", mode: link}), true},
		{"a link to itself", archive(t, entry{name: "l", text: "l", mode: link}, entry{name: "l/x", text: "x"}), false},
		{"links in a circle", archive(t, entry{name: "a", text: "b", mode: link}, entry{name: "b", text: "a", mode: link}), true},
		{"a link that a folder replaces", archive(t, entry{name: "l", text: "..", mode: link}, entry{name: "l/", mode: fs.ModeDir}, entry{name: "l/outside", text: "x"}), false},
		{"twice the same name", archive(t, entry{name: "a", text: "x"}, entry{name: "a", text: "y"}), false},
		{"a file, then a link of its name", archive(t, entry{name: "a", text: "x"}, entry{name: "a", text: "/etc/passwd", mode: link}), false},
		{"a file as a folder", archive(t, entry{name: "a", text: "x"}, entry{name: "a/b", text: "y"}), false},
		{"a huge name", archive(t, entry{name: strings.Repeat("n", 60_000), text: "x"}), false},
		{"a deep name", archive(t, entry{name: strings.Repeat("n/", 20_000) + "x", text: "x"}), true},
		{"a device", archive(t, entry{name: "dev", mode: fs.ModeDevice | fs.ModeCharDevice}), true},
		{"a pipe", archive(t, entry{name: "pipe", mode: fs.ModeNamedPipe}), true},
		{"a setuid program", archive(t, entry{name: "su", text: "x", mode: fs.ModeSetuid | 0o777}), true},
		{"truncated", good[:len(good)-8], false},
		{"no zip", []byte("no zip at all"), false},
		{"nothing", nil, false},
		{"a bomb by ratio", zeros(t, 1, 3<<30, 3<<30), false},
		{"a bomb of many files of zeros", zeros(t, 12, 256<<20, 256<<20), false},
		{"a bomb that says that it is small", zeros(t, 1, 3<<30, 1<<20), false},
		{"a bomb by count", many(t, 600_000), false},
	}
	before, size := files(s.w.Home)
	for _, a := range plain {
		c.add("archives", 1)
		began := time.Now()
		id, got := uma.upload(a.zip)
		took := time.Since(began)
		exists := uma.get("/upload_v2/blob?user_hash=" + s.ids["uma"] + "&blob_id=" + id)
		switch {
		case got.err != nil:
			t.Errorf("%s: %v", a.name, got.err)
		case got.status >= 500 && got.status != 507:
			c.add("5xx", 1)
			t.Errorf("%s: %s", a.name, got)
		case got.status < 400 && !a.may:
			c.add("accepted", 1)
			t.Errorf("%s was accepted: %s", a.name, got)
		}
		if got.status >= 400 && strings.Contains(string(exists.body), "true") {
			t.Errorf("%s was refused, and is there: %s", a.name, exists)
		}
		if took > time.Minute {
			t.Errorf("%s took %v", a.name, took)
		}
		after, now := files(s.w.Home)
		for name := range after {
			inside := strings.Contains(name, "/clients/"+s.ids["uma"]+"/file_mounts/blobs/"+id+"/")
			if !before[name] && !inside && !strings.Contains(name, "/api_server/") && !strings.Contains(name, "/clients/"+s.ids["uma"]+"/ssh/") {
				c.add("files outside", 1)
				t.Errorf("%s left %s", a.name, name)
			}
		}
		if now-size > 64<<20 {
			c.add("disk filled", 1)
			t.Errorf("%s left %d MiB on the disk", a.name, (now-size)>>20)
		}
		if outside, _ := filepath.Glob("/tmp/sky-attack-outside*"); len(outside) > 0 {
			c.add("files outside", 1)
			t.Errorf("%s wrote %v", a.name, outside)
		}
		before, size = after, now
	}
	for _, zip := range [][]byte{good, zeros(t, 2, 1<<20, 1<<20)} {
		if _, ok := uma.upload(zip); ok.status != 200 {
			t.Errorf("a good upload after all of them: %s", ok)
		}
	}
	s.noFaults(c)
}

// TestUploadsOfManyPeopleAtOnce sends bombs from many connections at once: the disk
// holds, and the space is free again.
func TestUploadsOfManyPeopleAtOnce(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, false)
	// One that the directory gives away, and one that is only noticed while it is
	// unpacked.
	bombs := [][]byte{zeros(t, 4, 1<<30, 1<<30), zeros(t, 4, 1<<30, 50<<20)}
	done := make(chan answer)
	for n := range 8 {
		go func() {
			_, a := s.as([]string{"uma", "otto"}[n%2]).upload(bombs[n/2%2])
			done <- a
		}()
	}
	for range 8 {
		if a := <-done; a.err != nil || a.status < 400 || a.status >= 500 && a.status != 503 && a.status != 507 {
			t.Errorf("a bomb of 4 GiB: %s", a)
		}
		c.add("bombs", 1)
	}
	if !harness.Within(time.Minute, func() bool { _, size := files(s.w.Home + "/.sky/clients"); return size < 64<<20 }) {
		t.Error("what the bombs unpacked to is still there")
	}
}
