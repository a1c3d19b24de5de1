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

// FuzzUnzip: whatever bytes call themselves a zip, nothing appears outside of
// the folder, no link leads out of it, and the only errors are the client's.
func FuzzUnzip(f *testing.F) {
	add := func(entries ...zip.FileHeader) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, h := range entries {
			w, err := z.CreateHeader(&h)
			if err != nil {
				f.Fatal(err)
			}
			w.Write([]byte(h.Comment)) // the content, or a link's target
		}
		if err := z.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	link := func(name, target string) zip.FileHeader {
		h := zip.FileHeader{Name: name, Comment: target}
		h.SetMode(fs.ModeSymlink | 0o777)
		return h
	}
	file := func(name string) zip.FileHeader {
		return zip.FileHeader{Name: name, Comment: "text", Method: zip.Deflate}
	}
	add(file("a/b.txt"), file("c/"))
	add(file("../out"), file("/out"), file("a/../../out"), file(`..\out`))
	add(link("l", "a"), file("l/x"))
	add(link("l", ".."), link("m/n", "../../out"), link("abs", "/tmp"))
	add(link("a", "b"), link("b", "a"), file("a/x"))
	add(link("d", "."), link("d/e", "../.."), file("d/e/out"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		source := filepath.Join(top, "zip")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(source, archive, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, replace := range []bool{false, true} {
			if err := unzip(source, dir, replace); err != nil && !errors.As(err, new(*badZip)) {
				t.Errorf("replace %v: %v", replace, err)
			}
		}
		beside, err := os.ReadDir(top)
		if err != nil || len(beside) != 2 {
			t.Errorf("outside of the folder: %v %v", beside, err)
		}
		err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink == 0 {
				return err
			}
			if real, err := filepath.EvalSymlinks(p); err == nil && real != dir && !strings.HasPrefix(real, dir+string(filepath.Separator)) {
				t.Errorf("the link %s leads to %s", p, real)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
