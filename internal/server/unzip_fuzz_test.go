package server

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostileZip is an archive; the comment of an entry is its content, or where a
// link leads.
func hostileZip(t testing.TB, entries ...zip.FileHeader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, h := range entries {
		w, err := z.CreateHeader(&h)
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(h.Comment))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipLink(name, target string) zip.FileHeader {
	return zipSpecial(name, target, fs.ModeSymlink)
}

func zipSpecial(name, content string, mode fs.FileMode) zip.FileHeader {
	h := zip.FileHeader{Name: name, Comment: content}
	h.SetMode(mode | 0o777)
	return h
}

func zipFileOf(name string) zip.FileHeader {
	return zip.FileHeader{Name: name, Comment: "text", Method: zip.Deflate}
}

// FuzzUnzip: whatever bytes call themselves a zip, nothing appears outside of
// the folder, no more is written than was announced and allowed, and the only
// errors are the client's.
func FuzzUnzip(f *testing.F) {
	add := func(entries ...zip.FileHeader) { f.Add(hostileZip(f, entries...)) }
	file, link := zipFileOf, zipLink
	add(file("a/b.txt"), file("c/"))
	add(file("../out"), file("/out"), file("a/../../out"), file(`..\out`))
	add(link("l", "a"), file("l/x"))
	add(link("l", ".."), link("m/n", "../../out"), link("abs", "/tmp"))
	add(link("a", "b"), link("b", "a"), file("a/x"))
	add(link("d", "."), link("d/e", "../.."), file("d/e/out"))
	add(file("d/e/f"), link("d/e/L", "../.."), link("e", "d/e/L/../.."))
	add(file("d/e/f"), link("d/e/L", "../.."), link("e", "d/e/L/x/../../.."))
	add(link("x", "y"), link("y", "z/.."), file("z/f"), link("q", "x/../.."))
	add(file("f"), file("f"))
	add(file("F"), file("f"))
	add(zipSpecial("dev", "", fs.ModeDevice), zipSpecial("pipe", "", fs.ModeNamedPipe), zipSpecial("sock", "", fs.ModeSocket))
	add(zipSpecial("suid", "x", fs.ModeSetuid))
	add(zip.FileHeader{Name: "zeros", Comment: strings.Repeat("\x00", 60_000), Method: zip.Deflate})
	limits := UploadLimits{Entries: 50, One: 1 << 20}.filled()
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		a, err := readArchive(bytes.NewReader(data), int64(len(data)), limits)
		if err == nil {
			if a.size > limits.One || len(a.files)+len(a.links)+len(a.folders) > limits.Entries {
				t.Errorf("%d bytes in %d files are allowed", a.size, len(a.files))
			}
			err = a.unpack(dir)
		}
		if err != nil && !errors.As(err, new(*refusedUpload)) {
			t.Error(err)
		}
		good := err == nil
		beside, rerr := os.ReadDir(top)
		if rerr != nil || len(beside) != 1 {
			t.Errorf("outside of the folder: %v %v", beside, rerr)
		}
		if a != nil && sizeOf(dir) > a.size {
			t.Errorf("%d bytes were written, %d announced", sizeOf(dir), a.size)
		}
		if !good {
			return
		}
		err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
				t.Errorf("%s is special: %v", p, d.Type())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
