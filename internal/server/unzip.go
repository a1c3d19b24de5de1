package server

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// refusedUpload is an upload that is not taken: an answer, and nothing of it
// stays.
type refusedUpload struct {
	status  int
	message string
}

func (e *refusedUpload) Error() string { return e.message }

// badZip means that what the client sent cannot be unpacked.
func badZip(format string, args ...any) *refusedUpload {
	return &refusedUpload{http.StatusBadRequest, "The uploaded files cannot be used: " + fmt.Sprintf(format, args...) + "."}
}

func tooMuch(format string, args ...any) *refusedUpload {
	return &refusedUpload{http.StatusRequestEntityTooLarge, fmt.Sprintf(format, args...)}
}

func noRoom(format string, args ...any) *refusedUpload {
	return &refusedUpload{http.StatusInsufficientStorage, fmt.Sprintf(format, args...)}
}

const (
	// directoryEntry is how many bytes of an archive's directory an entry may take on
	// average: entries are read into memory.
	directoryEntry = 160
	// ratioFrom is how large unpacked files must be for the ratio to be asked.
	ratioFrom  = 256 << 20
	linkTarget = 4096
	// What lies deeper could not even be removed.
	maxEntryPath  = 4095
	maxEntryDepth = 256
)

// A zipFile is an archive whose author is not trusted, with what its directory says
// checked.
type zipFile struct {
	folders, files, links []entry
	size                  int64 // of all files, unpacked, as the directory says; no more is written
}

// An entry is one thing in an archive, at a clean path inside.
type entry struct {
	*zip.File
	at string
}

// readArchive reads the directory of an archive and refuses what leads out, is
// neither file, folder nor link, comes twice, or is too much.
func readArchive(from io.ReaderAt, size int64, l UploadLimits) (*zipFile, error) {
	b := &bounded{from, int64(l.Entries)*directoryEntry + 1<<20}
	z, err := zip.NewReader(b, size)
	b.left = math.MaxInt64
	if errors.Is(err, errDirectory) || err == nil && len(z.File) > l.Entries {
		return nil, tooMuch("The uploaded files are too many: at most %d are taken at once. Leave out what the task does not need with a .skyignore file.", l.Entries)
	}
	if err != nil {
		return nil, badZip("they are no zip archive")
	}
	a, taken := new(zipFile), map[string]bool{}
	for _, f := range z.File {
		folder := strings.HasSuffix(f.Name, "/")
		at := path.Clean(strings.TrimSuffix(f.Name, "/"))
		if f.Name == "" || !filepath.IsLocal(filepath.FromSlash(at)) || strings.Contains(f.Name, "\x00") || runtime.GOOS == "windows" && strings.Contains(f.Name, `\`) {
			return nil, badZip("the entry %s leads out of the upload", quoted(f.Name))
		}
		if len(f.Name) > maxEntryPath || strings.Count(at, "/") >= maxEntryDepth {
			return nil, badZip("the path of the entry %s is too long", quoted(f.Name))
		}
		kind := f.Mode().Type()
		if folder {
			if kind != fs.ModeDir {
				return nil, badZip("the entry %s is neither a file nor a folder", quoted(f.Name))
			}
			a.folders = append(a.folders, entry{f, at})
			continue
		}
		if name := onDisk(at); at == "." || taken[name] {
			return nil, badZip("the entry %s comes twice", quoted(f.Name))
		} else {
			taken[name] = true
		}
		if f.UncompressedSize64 > math.MaxInt64/2 || a.size > math.MaxInt64/2 {
			return nil, tooMuch("The uploaded files are too large.")
		}
		a.size += int64(f.UncompressedSize64)
		switch kind {
		case 0:
			a.files = append(a.files, entry{f, at})
		case fs.ModeSymlink:
			a.links = append(a.links, entry{f, at})
		default:
			return nil, badZip("the entry %s is neither a file, a folder nor a link", quoted(f.Name))
		}
	}
	switch {
	case l.One > 0 && a.size > l.One:
		return nil, tooMuch("The uploaded files take %d MiB unpacked, and %d MiB is the limit for one upload; large data belongs in a bucket.", a.size>>20, l.One>>20)
	case a.size > ratioFrom && a.size/max(size, 1) >= l.Ratio:
		return nil, tooMuch("The uploaded files grow from %d MiB to %d MiB when they are unpacked, more than %d times.", size>>20, a.size>>20, l.Ratio)
	}
	return a, nil
}

// onDisk is what a name is to file systems that do not tell upper from lower
// case.
func onDisk(name string) string {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		return strings.ToLower(name)
	}
	return name
}

// errDirectory means that an archive's directory is too large.
var errDirectory = errors.New("the directory of the archive is too large")

// bounded lets only so many bytes be read.
type bounded struct {
	io.ReaderAt
	left int64
}

func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errDirectory
	}
	return b.ReaderAt.ReadAt(p, off)
}

// unpack writes an archive below dir, with the modes and times that it carries:
// nothing lands outside of it. Links may lead anywhere, as they are for the nodes;
// they come last, so that no file is written through one, and nothing on a server
// follows one that leads out of its upload.
func (a *zipFile) unpack(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range a.folders {
		if err := root.MkdirAll(f.at, folderMode); err != nil {
			return f.refused(err)
		}
	}
	for _, f := range a.files {
		if err := f.write(root); err != nil {
			return err
		}
	}
	// Before there are links, none can be followed.
	for _, f := range slices.Backward(slices.SortedFunc(slices.Values(a.folders), func(a, b entry) int { return strings.Compare(a.at, b.at) })) {
		if err := f.dress(root, f.perm(folderMode)|0o700); err != nil {
			return f.refused(err)
		}
	}
	for _, f := range a.links {
		if err := f.link(root); err != nil {
			return err
		}
	}
	return nil
}

// Modes of what an archive carries none for.
const (
	folderMode fs.FileMode = 0o755
	fileMode   fs.FileMode = 0o644
)

// perm is the mode that the archive gives an entry, or otherwise.
func (f entry) perm(otherwise fs.FileMode) fs.FileMode {
	const unix, darwin = 3, 19 // the systems that write modes
	if made := f.CreatorVersion >> 8; made != unix && made != darwin || f.ExternalAttrs>>16 == 0 {
		return otherwise
	}
	return f.Mode().Perm()
}

// modified is the time that the archive gives an entry in the extra field which
// knows the time zone; false if there is none.
func (f entry) modified() (time.Time, bool) {
	const timestamp = 0x5455
	for b := f.Extra; len(b) >= 4; {
		n := int(binary.LittleEndian.Uint16(b[2:]))
		if n > len(b)-4 {
			break
		}
		if binary.LittleEndian.Uint16(b) == timestamp {
			return f.Modified, !f.Modified.IsZero()
		}
		b = b[4+n:]
	}
	return time.Time{}, false
}

// dress gives what was unpacked its mode and time.
func (f entry) dress(root *os.Root, mode fs.FileMode) error {
	if err := root.Chmod(f.at, mode); err != nil {
		return err
	}
	if at, ok := f.modified(); ok {
		return root.Chtimes(f.at, at, at)
	}
	return nil
}

// open opens the content of an entry.
func (f entry) open() (io.ReadCloser, error) {
	r, err := f.File.Open()
	if err != nil {
		return nil, f.damaged()
	}
	return r, nil
}

func (f entry) damaged() error { return badZip("the entry %s is damaged", quoted(f.Name)) }

// refused is the error of a step that a hostile name or link, or a full disk, made
// fail.
func (f entry) refused(err error) error {
	if diskspace.Full(err) {
		return noRoom("The server's disk is full: the uploaded files do not fit.")
	}
	return badZip("the entry %s could not be unpacked: %v", quoted(f.Name), err)
}

func (f entry) write(root *os.Root) error {
	if err := root.MkdirAll(path.Dir(f.at), folderMode); err != nil {
		return f.refused(err)
	}
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(f.at, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return f.refused(err)
	}
	// No more is written than the directory says, which is what was allowed.
	n, err := io.Copy(out, io.LimitReader(in, int64(f.UncompressedSize64)))
	if err == nil {
		var more int
		if more, err = io.ReadFull(in, make([]byte, 1)); err == io.EOF {
			err = nil
		} else if more > 0 {
			err = zip.ErrFormat
		}
	}
	err = errors.Join(err, out.Close())
	if diskspace.Full(err) {
		return f.refused(err)
	}
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return fmt.Errorf("unpacking %s: %w", f.Name, err)
	}
	if err != nil || uint64(n) != f.UncompressedSize64 {
		return f.damaged()
	}
	if err := f.dress(root, f.perm(fileMode)|0o400); err != nil {
		return f.refused(err)
	}
	return nil
}

func (f entry) link(root *os.Root) error {
	if err := root.MkdirAll(path.Dir(f.at), folderMode); err != nil {
		return f.refused(err)
	}
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	target, err := io.ReadAll(io.LimitReader(in, linkTarget+1))
	if err != nil || len(target) == 0 || len(target) > linkTarget {
		return f.damaged()
	}
	if bytes.IndexByte(target, 0) >= 0 {
		return f.damaged()
	}
	if err := root.Symlink(string(target), f.at); err != nil {
		return f.refused(err)
	}
	return nil
}
