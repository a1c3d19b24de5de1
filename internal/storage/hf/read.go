package hf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Head describes the bucket.
func (b *Bucket) Head(ctx context.Context) (storage.BucketInfo, error) {
	var out struct{ CreatedAt time.Time }
	path := b.api
	if b.At.Revision != "" {
		path += "/revision/" + url.PathEscape(b.At.Revision)
	}
	err := b.JSON(ctx, rest.Call{Method: http.MethodGet, Path: path}, nil, &out)
	return storage.BucketInfo{Created: out.CreatedAt}, err
}

// An entry is what the Hub says of a file or a folder.
type entry struct {
	Type, Path string
	Size       int64
	OID        string // of git
	LFS        *struct {
		OID  string // SHA-256
		Size int64
	}
	XetHash           string
	Mtime, UploadedAt time.Time
}

func (e *entry) object() storage.Object {
	o := storage.Object{Key: e.Path, Size: e.Size, ETag: e.OID, Modified: e.Mtime, Metadata: map[string]string{}}
	switch {
	case e.LFS != nil:
		o.ETag, o.Digest, o.Size = e.LFS.OID, "sha256:"+e.LFS.OID, e.LFS.Size
	case e.XetHash != "":
		o.ETag = e.XetHash
	case e.OID != "":
		o.Digest = "git:" + e.OID
	}
	if o.Modified.IsZero() {
		o.Modified = e.UploadedAt
	}
	return o
}

// List lists files. The Hub lists folders: a prefix that ends within a name is looked
// for in its folder.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	c := rest.Call{Method: http.MethodGet, Path: b.tree, Query: url.Values{"recursive": {strconv.FormatBool(o.Delimiter == "")}}}
	if i := strings.LastIndexByte(o.Prefix, '/'); i > 0 {
		c.Path += "/" + rest.Escaped(o.Prefix[:i])
		c.Key = o.Prefix
	}
	if o.Max > 0 {
		c.Query.Set("limit", strconv.Itoa(o.Max))
	}
	if o.Token != "" {
		q, err := url.ParseQuery(o.Token)
		if err != nil {
			return storage.Page{}, &storage.InvalidError{Bucket: b.At, Err: err}
		}
		c.Query = q
	}
	answer, err := b.Send(ctx, c)
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
		return storage.Page{}, nil // there is no such folder
	}
	if err != nil {
		return storage.Page{}, err
	}
	defer answer.Body.Close()
	var entries []entry
	if err := json.NewDecoder(bounded.Reader(answer.Body, rest.MaxAnswer, "a list of files")).Decode(&entries); err != nil {
		return storage.Page{}, b.Broken(ctx, fmt.Errorf("reading the answer: %w", err))
	}
	var page storage.Page
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Type == "directory" && o.Delimiter != "" && strings.HasPrefix(e.Path+"/", o.Prefix) && e.Path+"/" != o.Prefix:
			page.Prefixes = append(page.Prefixes, e.Path+"/")
		case e.Type == "file" && strings.HasPrefix(e.Path, o.Prefix):
			page.Objects = append(page.Objects, e.object())
		}
	}
	page.Next, err = b.next(answer)
	return page, err
}

var nextLink = lazyregexp.New(`<([^>]+)>;\s*rel="?next"?`)

// next is the query of the page that an answer links to. Only that is taken of the link:
// the token is sent to nobody but the Hub.
func (b *Bucket) next(answer *http.Response) (string, error) {
	for _, link := range answer.Header.Values("Link") {
		if m := nextLink.FindStringSubmatch(link); m != nil {
			u, err := url.Parse(m[1])
			if err != nil {
				return "", &storage.UnavailableError{Bucket: b.At, Err: err}
			}
			return u.RawQuery, nil
		}
	}
	return "", nil
}

// Versions lists files: there are no versions.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return b.List(ctx, o)
}

// Stat describes a file.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	if key == "" {
		return storage.Object{}, &storage.InvalidError{Bucket: b.At, Err: errors.New("a key is not empty")}
	}
	var out []entry
	path := strings.Replace(b.tree, b.api+"/tree", b.api+"/paths-info", 1)
	err := b.JSON(ctx, rest.Call{Method: http.MethodPost, Path: path, Key: key}, map[string]any{"paths": []string{key}}, &out)
	if err != nil {
		return storage.Object{}, err
	}
	for i := range out {
		if out[i].Path == key && out[i].Type == "file" {
			return out[i].object(), nil
		}
	}
	return storage.Object{}, &storage.NotFoundError{Bucket: b.At, Key: key}
}

// maxHops is how often a request is sent elsewhere.
const maxHops = 5

// Get reads a file, from where the Hub says that its content is.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (storage.Reader, error) {
	if key == "" {
		return storage.Reader{}, &storage.InvalidError{Bucket: b.At, Err: errors.New("a key is not empty")}
	}
	// The Hub compresses what is asked for so.
	h := http.Header{"Accept-Encoding": {"identity"}}
	if r := rest.Range(g); r != "" {
		h.Set("Range", r)
	}
	o := storage.Object{Key: key, Metadata: map[string]string{}}
	c := rest.Call{Method: http.MethodGet, Path: b.files + "/" + rest.Escaped(key), Header: h, Key: key, Redirects: true}
	client := &b.Client
	for hop := 0; ; hop++ {
		answer, err := client.Send(ctx, c)
		if err != nil {
			return storage.Reader{}, err
		}
		if client == &b.Client {
			take(&o, answer.Header)
		}
		if answer.StatusCode < 300 {
			if g.IfMatch != "" && o.ETag != "" && o.ETag != g.IfMatch {
				answer.Body.Close()
				return storage.Reader{}, &storage.ConflictError{Bucket: b.At, Key: key}
			}
			if o.Size, err = client.Size(ctx, key, answer, g); err != nil {
				return storage.Reader{}, err
			}
			return storage.Reader{ReadCloser: client.Content(ctx, key, answer), Object: o}, nil
		}
		io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
		answer.Body.Close()
		if hop == maxHops {
			return storage.Reader{}, b.Broken(ctx, fmt.Errorf("%q is moved on and on", key))
		}
		if client, c, err = b.follow(client, c, answer.Header.Get("Location")); err != nil {
			return storage.Reader{}, err
		}
	}
}

// take notes what the Hub says of a file. The content may come from somewhere else, which
// names it differently.
func take(o *storage.Object, h http.Header) {
	for _, name := range []string{"X-Linked-Etag", "X-Xet-Hash", "Etag"} {
		if etag := strings.Trim(strings.TrimPrefix(h.Get(name), "W/"), `"`); etag != "" && o.ETag == "" {
			o.ETag = etag
		}
	}
}

// follow goes where an answer points to: with the token within the Hub, and without it,
// and never unencrypted where the Hub is not, elsewhere.
func (b *Bucket) follow(from *rest.Client, c rest.Call, location string) (*rest.Client, rest.Call, error) {
	base, err := url.Parse(from.Endpoint + c.Path)
	if err != nil {
		return nil, c, &storage.UnavailableError{Bucket: b.At, Err: err}
	}
	to, err := base.Parse(location)
	if err == nil && location == "" {
		err = errors.New("it is moved, and not said where")
	}
	if err == nil && to.Scheme != "https" && to.Scheme != base.Scheme {
		err = fmt.Errorf("it is moved to %s, which is not encrypted", to.Host)
	}
	if err != nil {
		return nil, c, &storage.UnavailableError{Bucket: b.At, Err: err}
	}
	c.Path, c.Query = to.EscapedPath(), to.Query()
	if endpoint := to.Scheme + "://" + to.Host; endpoint != b.Endpoint {
		return &rest.Client{At: b.At, Endpoint: endpoint, Transport: b.Transport, Refused: b.elsewhere}, c, nil
	}
	return &b.Client, c, nil
}

// elsewhere makes an error of an answer of a server that keeps content: what it denies is
// an address that has run out, for which there will be a new one.
func (b *Bucket) elsewhere(c rest.Call, r rest.Refusal) error {
	switch r.Status {
	case http.StatusRequestedRangeNotSatisfiable:
		return &storage.InvalidError{Bucket: b.At, Key: c.Key, Err: r}
	case http.StatusTooManyRequests:
		return &storage.ThrottledError{Bucket: b.At, After: r.After(), Err: r}
	}
	return &storage.UnavailableError{Bucket: b.At, Err: r}
}
