package transfer

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
)

// A partFile is a large file that is being downloaded. Beside it lies a list of the
// pieces that are there, a byte for each, which is written after the piece: a process
// that dies leaves nothing in it that is not true. After a power failure it may, as
// nothing is flushed meanwhile; so it begins with what names the run of the system, and
// another run does not believe it.
type partFile struct {
	d    *dest
	name string // of the part
	f    *os.File
	list *os.File
	head int64 // bytes before the list
	have []bool
}

// openPart opens the part of an object, with the pieces that an earlier process wrote.
func (d *dest) openPart(at string, o storage.Object) (*partFile, error) {
	d.others(at, o)
	p := &partFile{d: d, name: temp(at, o), have: make([]bool, pieces(o.Size))}
	err := p.open(o)
	if noSpace(err) {
		p.discard()
	}
	if err != nil {
		p.close()
		return nil, &localError{err}
	}
	return p, nil
}

func (p *partFile) listName() string { return strings.TrimSuffix(p.name, partSuffix) + doneSuffix }

func (p *partFile) open(o storage.Object) (err error) {
	if p.f, err = p.d.root.OpenFile(filepath.FromSlash(p.name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if p.list, err = p.d.root.OpenFile(filepath.FromSlash(p.listName()), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	head := []byte(bootID() + "\n")
	p.head = int64(len(head))
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	text := make([]byte, len(head)+len(p.have))
	n, _ := p.list.ReadAt(text, 0)
	if n == len(text) && bytes.HasPrefix(text, head) && len(head) > 1 && info.Size() == o.Size {
		for i, c := range text[len(head):] {
			p.have[i] = c == '1'
		}
		return nil
	}
	// Begin anew. The list is emptied first, so that it never tells of pieces of
	// another file.
	if err := p.list.Truncate(0); err != nil {
		return err
	}
	if err := allocate(p.f, o.Size); err != nil {
		return err
	}
	_, err = p.list.WriteAt(append(head, bytes.Repeat([]byte{'0'}, len(p.have))...), 0)
	return err
}

// done notes that a piece is there.
func (p *partFile) done(piece int) error {
	if _, err := p.list.WriteAt([]byte{'1'}, p.head+int64(piece)); err != nil {
		return &localError{err}
	}
	return nil
}

func (p *partFile) close() {
	if p.f != nil {
		p.f.Close()
	}
	if p.list != nil {
		p.list.Close()
	}
}

// discard removes the part.
func (p *partFile) discard() {
	p.close()
	p.d.root.Remove(filepath.FromSlash(p.listName()))
	p.d.root.Remove(filepath.FromSlash(p.name))
}

// finish gives the file its name.
func (p *partFile) finish(at string, o storage.Object) error {
	folder, name, leave, err := p.d.enter(at)
	if err != nil {
		return &localError{err}
	}
	defer leave()
	p.list.Close()
	if err := settle(folder, p.f, path.Base(p.name), name, storage.AttributesOf(o.Metadata), o.Modified); err != nil {
		return err
	}
	folder.Remove(path.Base(p.listName()))
	return nil
}
