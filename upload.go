package sky

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	chunkSize      = 95_000_000
	chunksAtOnce   = 4
	uploadRounds   = 3
	symlinkAttr    = 0xA1ED0000
	uploadPatience = 250 * time.Millisecond
)

// UploadFile is one thing to bring to a server: a file, a folder or a link.
type UploadFile struct {
	Name   string // in the archive: an absolute path with slashes, without the first one
	Path   string // of a file's content on this machine; with Open only for messages
	Mode   fs.FileMode
	Target string    // of a link
	Time   time.Time // of the last change; zero: unknown
	// Open opens the content of a file; nil: that at Path.
	Open func() (io.ReadCloser, error)
}

func (f UploadFile) open() (io.ReadCloser, error) {
	if f.Open != nil {
		return f.Open()
	}
	return os.Open(f.Path)
}

// Upload brings files to the server, unless it has the same ones already, and
// returns the id for the FileMountsBlobID of a call. progress, if not nil, hears
// how many bytes of how many were sent.
func (c *Client) Upload(ctx context.Context, files []UploadFile, progress func(sent, total int64)) (id string, err error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b UploadFile) int { return cmp.Compare(a.Name, b.Name) })
	files = slices.CompactFunc(files, func(a, b UploadFile) bool { return a.Name == b.Name })
	tmp, err := os.CreateTemp("", "sky-upload-*.zip")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if id, err = archive(ctx, tmp, files); err != nil {
		return "", err
	}
	known, err := callJSON[struct {
		Exists bool `json:"exists"`
	}](ctx, c, http.MethodGet, "/upload_v2/blob", url.Values{"user_hash": {c.user.ID}, "blob_id": {id}}, nil)
	if err != nil || known.Exists {
		return id, err
	}
	size, err := tmp.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	up := &upload{c: c, file: tmp, id: id, size: size, progress: progress}
	return id, up.run(ctx)
}

// archive writes the zip file and returns the id of its content: of names, kinds,
// modes, contents and where links lead.
func archive(ctx context.Context, w io.Writer, files []UploadFile) (string, error) {
	z := zip.NewWriter(w)
	all := sha256.New()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		sum := sha256.New()
		if err := addFile(z, f, sum); err != nil {
			return "", fmt.Errorf("packing %s: %w", cmp.Or(f.Path, f.Name), err)
		}
		fmt.Fprintf(all, "%q %o %q %x\n", f.Name, f.Mode&(fs.ModeType|fs.ModePerm), f.Target, sum.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), z.Close()
}

func addFile(z *zip.Writer, f UploadFile, sum io.Writer) error {
	h := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: f.Time}
	h.SetMode(f.Mode)
	switch {
	case f.Mode.IsDir():
		h.Name, h.Method = strings.TrimSuffix(f.Name, "/")+"/", zip.Store
		_, err := z.CreateHeader(h)
		return err
	case f.Mode&fs.ModeSymlink != 0:
		h.CreatorVersion, h.ExternalAttrs, h.Method = 3<<8, symlinkAttr, zip.Store
		out, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, f.Target)
		return err
	}
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	return err
}

// upload is an archive on its way.
type upload struct {
	c        *Client
	file     io.ReaderAt
	id       string
	size     int64
	sent     atomic.Int64
	progress func(sent, total int64)
}

func (u *upload) chunks() int { return int(max(1, (u.size+chunkSize-1)/chunkSize)) }

// run sends all chunks, in any order, until the server has the whole archive.
func (u *upload) run(ctx context.Context) error {
	missing := make([]int, u.chunks())
	for i := range missing {
		missing[i] = i
	}
	for range uploadRounds {
		var done atomic.Bool
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(chunksAtOnce)
		for _, i := range missing {
			g.Go(func() error {
				completed, err := u.sendChunk(gctx, i)
				if completed {
					done.Store(true)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("uploading files: %w", err)
		}
		if done.Load() {
			return nil
		}
		if err := sleep(ctx, uploadPatience); err != nil {
			return err
		}
	}
	return errors.New("uploading files: the API server got all parts but does not put them together; try again")
}

// sendChunk sends one part; completed means that the server has everything.
func (u *upload) sendChunk(ctx context.Context, i int) (completed bool, err error) {
	from := int64(i) * chunkSize
	var counted *countingReader
	k := call{
		method: http.MethodPost, path: "/upload_v2", form: "application/octet-stream", idempotent: true,
		query: url.Values{
			"user_hash": {u.c.user.ID}, "upload_id": {u.id},
			"chunk_index": {strconv.Itoa(i)}, "total_chunks": {strconv.Itoa(u.chunks())},
		},
		stream: func() (io.Reader, error) {
			if counted != nil { // sent for nothing
				u.sent.Add(-counted.n.Swap(0))
			}
			counted = &countingReader{u: u, r: io.NewSectionReader(u.file, from, min(chunkSize, u.size-from))}
			return counted, nil
		},
	}
	answer, err := exchangeJSON[struct {
		Status string `json:"status"`
	}](ctx, u.c, k, nil)
	return answer.Status == "completed", err
}

// countingReader reports progress.
type countingReader struct {
	u *upload
	r io.Reader
	n atomic.Int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.n.Add(int64(n))
	if sent := r.u.sent.Add(int64(n)); r.u.progress != nil && n > 0 {
		r.u.progress(min(sent, r.u.size), r.u.size)
	}
	return n, err
}
