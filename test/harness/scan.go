//go:build linux

package harness

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Leak is a place where a planted secret was found.
type Leak struct {
	Secret string // its name
	Where  string // a file, or a process's arguments
	Form   string // as it stands there
}

func (l Leak) String() string { return fmt.Sprintf("%s is in %s (%s)", l.Secret, l.Where, l.Form) }

// forms are the ways in which a text may be written down.
func forms(text string) map[string][]byte {
	all := map[string][]byte{"as it is": []byte(text), "hexadecimal": []byte(hex.EncodeToString([]byte(text)))}
	// What stands around it decides which of three ways base64 takes.
	for shift := range 3 {
		padded := append(make([]byte, shift), text...)
		code := base64.StdEncoding.EncodeToString(padded[:len(padded)/3*3])
		if from := []int{0, 2, 3}[shift]; len(code)-from > 12 {
			all[fmt.Sprint("base64, shifted by ", shift)] = []byte(code[from:])
		}
	}
	return all
}

// Scan looks for secrets, by name, in every file below the folders, gzipped ones
// as well, and in the names of files. Files that spare holds for are left out. A
// database is searched as the file that it is, with all that its pages still hold.
func Scan(secrets map[string]string, spare func(path string) bool, folders ...string) (leaks []Leak, err error) {
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				if os.IsNotExist(err) { // gone meanwhile
					return nil
				}
				return err
			case spare != nil && spare(path):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			leaks = append(leaks, find(secrets, "the name of "+path, []byte(d.Name()))...)
			if !d.Type().IsRegular() {
				return nil
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return nil // gone meanwhile
			}
			leaks = append(leaks, find(secrets, path, b)...)
			if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
				plain, _ := io.ReadAll(io.LimitReader(z, 256<<20))
				leaks = append(leaks, find(secrets, path+" (unpacked)", plain)...)
			}
			return nil
		})
		if err != nil {
			return leaks, err
		}
	}
	return leaks, nil
}

// ScanArguments looks for secrets in the arguments of every process of this
// machine, but this one and those that spare holds for.
func ScanArguments(secrets map[string]string, spare func(pid, arguments string) bool) (leaks []Leak) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		pid := filepath.Base(filepath.Dir(f))
		b, err := os.ReadFile(f)
		text := strings.ReplaceAll(string(b), "\x00", " ")
		if err != nil || pid == fmt.Sprint(os.Getpid()) || spare != nil && spare(pid, text) {
			continue
		}
		leaks = append(leaks, find(secrets, "the arguments of process "+pid+": "+text, b)...)
	}
	return leaks
}

func find(secrets map[string]string, where string, in []byte) (leaks []Leak) {
	for name, text := range secrets {
		for form, code := range forms(text) {
			if bytes.Contains(in, code) {
				leaks = append(leaks, Leak{name, where, form})
			}
		}
	}
	return leaks
}
