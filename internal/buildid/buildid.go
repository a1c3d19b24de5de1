// Package buildid distinguishes builds of sky, cheaply: the client compares its own
// build with the server's on every command, and an agent is replaced when its id is
// not the server's.
package buildid

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
)

// ID is the id of the running binary: 16 hex digits that differ between any
// two builds with different content.
var ID = sync.OnceValue(func() string {
	id, err := Of(Self())
	if err != nil {
		return "unknown"
	}
	return id
})

// Self is a path that opens the running binary, even if its file has been
// removed meanwhile (as "go run" does).
func Self() string {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe"
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Of is the id of the binary at path. For ELF files it comes from the id that
// the Go linker notes down (a digest of the content), else from the content.
func Of(path string) (string, error) {
	if note, err := goNote(path); err == nil {
		return short(note), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func goNote(path string) ([]byte, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := f.Section(".note.go.buildid")
	if s == nil {
		return nil, fmt.Errorf("%s has no build id", path)
	}
	return s.Data()
}

func short(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:8])
}
