package buildid

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"unsafe"
)

// "go run" links without debug information, and without the state of the
// repository: the same source then has another [ID] than with "go build". Code
// recognizes it.
//
// Code is "full-" or "bare-" (with and without debug information) and a digest of
// what both have in common: the functions, with their files, lines and sizes, and
// the texts. "" means that it cannot be read from this kind of executable.
var Code = sync.OnceValue(func() string {
	code, err := codeOf(Self())
	if err != nil {
		return ""
	}
	return code
})

// Same reports whether two builds, each given by its ID and its Code, are of the
// same source. The digest in a Code misses a changed number, so it counts only
// where the IDs cannot agree: between a full build and a bare one.
func Same(id, code, otherID, otherCode string) bool {
	if id == otherID {
		return true
	}
	kind, digest, _ := strings.Cut(code, "-")
	otherKind, otherDigest, _ := strings.Cut(otherCode, "-")
	return kind != otherKind && digest != "" && digest == otherDigest
}

// image is what codeOf needs of an executable.
type image struct {
	functions []byte // the Go function table
	full      bool   // has debug information
}

func codeOf(path string) (string, error) {
	m, err := readELF(path)
	if err != nil {
		if m, err = readMachO(path); err != nil {
			return "", err
		}
	}
	stable, err := stablePart(m.functions)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(stable)
	h.Write(texts())
	kind := "bare-"
	if m.full {
		kind = "full-"
	}
	return kind + hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func readELF(path string) (image, error) {
	f, err := elf.Open(path)
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	s := f.Section(".gopclntab")
	if s == nil {
		return image{}, errors.New(path + " has no function table")
	}
	functions, err := s.Data()
	return image{functions, f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil}, err
}

func readMachO(path string) (image, error) {
	f, err := macho.Open(path)
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	s := f.Section("__gopclntab")
	if s == nil {
		return image{}, errors.New(path + " has no function table")
	}
	functions, err := s.Data()
	return image{functions, f.Section("__debug_info") != nil || f.Section("__zdebug_info") != nil}, err
}

// stablePart is the part of a function table that does not depend on where the
// linker put other data: names, files, lines, and where each function starts.
// The header is that of Go 1.20 and later: magic, sizes, two counts, and offsets.
func stablePart(table []byte) ([]byte, error) {
	const words = 8
	if len(table) < 8+words*8 || !bytes.Equal(table[:6], []byte{0xf1, 0xff, 0xff, 0xff, 0, 0}) || table[7] != 8 {
		return nil, errors.New("the function table is of an unknown kind")
	}
	word := func(n int) uint64 { return binary.LittleEndian.Uint64(table[8+n*8:]) }
	const entry = 8 // start and offset of one function
	functions, end := word(0), word(7)
	from, size := word(3), uint64(len(table))
	if functions > size/entry || end > size || from > end || end+functions*entry > size {
		return nil, errors.New("the function table is damaged")
	}
	return table[from : end+functions*entry], nil
}

// The linker puts all text constants in one place, sorted by length, so what lies
// between two of them is text too.
const (
	shortText = "buildid: first"
	longText  = "buildid: the last of the texts that count for the digest. Longer ones are rare, and most messages and formats of a program are shorter than this sentence, which is here for its length and its place alone."
)

// texts are the text constants of this program between shortText and longText,
// whatever other data the linker put before and after them.
func texts() []byte {
	short, long := unsafe.StringData(shortText), unsafe.StringData(longText)
	const most = 64 << 20
	from, to := uintptr(unsafe.Pointer(short)), uintptr(unsafe.Pointer(long))
	if to < from || to-from > most {
		return nil
	}
	return unsafe.Slice(short, to-from)
}
