package storage

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

// Retries say how often and how patiently [Retry] repeats. The zero value is good.
type Retries struct {
	Attempts int           // all in all; 0: 8
	First    time.Duration // the first wait, which is doubled each time; 0: 250 ms
	Max      time.Duration // the longest wait; 0: 20 s
	// On is told about each failure that is followed by another attempt; it may be
	// called concurrently.
	On func(err error, wait time.Duration)
}

// Retry is a bucket whose calls are repeated while their errors are temporary,
// and whose readers go on where a connection broke off. Where an answer was lost
// and the second attempt finds a condition broken or an upload ended, it looks
// whether that was the first attempt's doing.
//
// Start may leave an upload behind that nobody knows, if its answer is lost:
// Uploads finds it.
func Retry(b Bucket, o Retries) Bucket {
	if o.Attempts == 0 {
		o.Attempts = 8
	}
	if o.First == 0 {
		o.First = 250 * time.Millisecond
	}
	if o.Max == 0 {
		o.Max = 20 * time.Second
	}
	return &retried{b, o}
}

// Driver is what wrappers stand around.
func Driver(b Bucket) Bucket {
	for {
		w, ok := b.(interface{ Unwrap() Bucket })
		if !ok {
			return b
		}
		b = w.Unwrap()
	}
}

type retried struct {
	Bucket
	o Retries
}

func (r *retried) Unwrap() Bucket { return r.Bucket }

// wait waits before attempt n, from 1; false: there is none.
func (r *retried) wait(ctx context.Context, n int, err error) bool {
	if !Temporary(err) || n >= r.o.Attempts || ctx.Err() != nil {
		return false
	}
	d := min(r.o.First<<(n-1), r.o.Max)
	d = d/2 + rand.N(d/2+1)
	if t, ok := errors.AsType[*ThrottledError](err); ok && t.After > d {
		d = t.After
	}
	if r.o.On != nil {
		r.o.On(err, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// again repeats a call. lost reports that an attempt before may have had its effect.
func again[T any](ctx context.Context, r *retried, call func(lost bool) (T, error)) (T, error) {
	lost := false
	for n := 1; ; n++ {
		v, err := call(lost)
		if err == nil || !r.wait(ctx, n, err) {
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return v, err
		}
		if _, ok := errors.AsType[*UnavailableError](err); ok {
			lost = true
		}
	}
}

type none = struct{}

func (r *retried) do(ctx context.Context, call func() error) error {
	_, err := again(ctx, r, func(bool) (none, error) { return none{}, call() })
	return err
}

func (r *retried) Head(ctx context.Context) (BucketInfo, error) {
	return again(ctx, r, func(bool) (BucketInfo, error) { return r.Bucket.Head(ctx) })
}

func (r *retried) Create(ctx context.Context, tags map[string]string) error {
	return r.do(ctx, func() error { return r.Bucket.Create(ctx, tags) })
}

func (r *retried) Delete(ctx context.Context) error {
	return r.do(ctx, func() error { return r.Bucket.Delete(ctx) })
}

func (r *retried) Tags(ctx context.Context) (map[string]string, error) {
	return again(ctx, r, func(bool) (map[string]string, error) { return r.Bucket.Tags(ctx) })
}

func (r *retried) SetTags(ctx context.Context, tags map[string]string) error {
	return r.do(ctx, func() error { return r.Bucket.SetTags(ctx, tags) })
}

func (r *retried) List(ctx context.Context, o ListOptions) (Page, error) {
	return again(ctx, r, func(bool) (Page, error) { return r.Bucket.List(ctx, o) })
}

func (r *retried) Versions(ctx context.Context, o ListOptions) (Page, error) {
	return again(ctx, r, func(bool) (Page, error) { return r.Bucket.Versions(ctx, o) })
}

func (r *retried) Uploads(ctx context.Context, o ListOptions) (UploadPage, error) {
	return again(ctx, r, func(bool) (UploadPage, error) { return r.Bucket.Uploads(ctx, o) })
}

func (r *retried) Stat(ctx context.Context, key string) (Object, error) {
	return again(ctx, r, func(bool) (Object, error) { return r.Bucket.Stat(ctx, key) })
}

func (r *retried) Put(ctx context.Context, key string, body io.ReadSeeker, o PutOptions) (Object, error) {
	return again(ctx, r, func(lost bool) (Object, error) {
		x, err := r.Bucket.Put(ctx, key, body, o)
		if lost && conflict(err) {
			if mine, ok := r.written(ctx, key, body, o); ok {
				return mine, nil
			}
		}
		return x, err
	})
}

func conflict(err error) bool {
	_, ok := errors.AsType[*ConflictError](err)
	return ok
}

// written reports whether what is at key is what was to be put there.
func (r *retried) written(ctx context.Context, key string, body io.ReadSeeker, o PutOptions) (Object, bool) {
	x, err := r.Bucket.Stat(ctx, key)
	if err != nil || !sameMetadata(x, o) {
		return x, false
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return x, false
	}
	h := md5.New()
	n, err := io.Copy(h, body)
	return x, err == nil && n == x.Size && len(x.MD5) > 0 && bytes.Equal(x.MD5, h.Sum(nil))
}

// sameMetadata reports whether an object has the metadata that it was to have.
func sameMetadata(x Object, o PutOptions) bool {
	for k, v := range o.Metadata {
		if x.Metadata[k] != v {
			return false
		}
	}
	return true
}

func (r *retried) Copy(ctx context.Context, key string, from Source, o PutOptions) (Object, error) {
	return again(ctx, r, func(lost bool) (Object, error) {
		x, err := r.Bucket.Copy(ctx, key, from, o)
		if lost && conflict(err) && (o.IfAbsent || o.IfMatch != "") {
			mine, err1 := r.Bucket.Stat(ctx, key)
			src, err2 := from.Bucket.Stat(ctx, from.Key)
			if err1 == nil && err2 == nil && mine.Size == src.Size && len(mine.MD5) > 0 && bytes.Equal(mine.MD5, src.MD5) && sameMetadata(mine, o) {
				return mine, nil
			}
		}
		return x, err
	})
}

// Remove repeats what could not be deleted for the moment.
func (r *retried) Remove(ctx context.Context, ids []ID) error {
	lasting := &RemoveError{}
	err := r.do(ctx, func() error {
		err := r.Bucket.Remove(ctx, ids)
		some, ok := errors.AsType[*RemoveError](err)
		if !ok {
			return err
		}
		again := &RemoveError{}
		ids = nil
		for _, f := range some.Failed {
			if !Temporary(f.Err) {
				lasting.Failed = append(lasting.Failed, f)
				continue
			}
			again.Failed = append(again.Failed, f)
			ids = append(ids, f.ID)
		}
		if len(ids) == 0 {
			return nil
		}
		return again
	})
	if len(lasting.Failed) == 0 {
		return err
	}
	if some, ok := errors.AsType[*RemoveError](err); ok {
		lasting.Failed = append(lasting.Failed, some.Failed...)
	} else if err != nil {
		return errors.Join(lasting, err)
	}
	return lasting
}

func (r *retried) Start(ctx context.Context, key string, o PutOptions) (Upload, error) {
	return again(ctx, r, func(bool) (Upload, error) { return r.Bucket.Start(ctx, key, o) })
}

func (r *retried) PutPart(ctx context.Context, u Upload, n int, body io.ReadSeeker) (Part, error) {
	return again(ctx, r, func(bool) (Part, error) { return r.Bucket.PutPart(ctx, u, n, body) })
}

func (r *retried) CopyPart(ctx context.Context, u Upload, n int, from Source, offset, length int64) (Part, error) {
	return again(ctx, r, func(bool) (Part, error) { return r.Bucket.CopyPart(ctx, u, n, from, offset, length) })
}

func (r *retried) Parts(ctx context.Context, u Upload) ([]Part, error) {
	return again(ctx, r, func(bool) ([]Part, error) { return r.Bucket.Parts(ctx, u) })
}

func (r *retried) Complete(ctx context.Context, u Upload, parts []Part, o PutOptions) (Object, error) {
	return again(ctx, r, func(lost bool) (Object, error) {
		x, err := r.Bucket.Complete(ctx, u, parts, o)
		if ended, ok := errors.AsType[*NotFoundError](err); lost && (ok && ended.Upload != "" || conflict(err)) {
			if mine, ok := Completed(ctx, r.Bucket, u, parts, o); ok {
				return mine, nil
			}
		}
		return x, err
	})
}

// Completed reports whether an upload that has ended became the object at its key:
// one that has the size of its parts and the metadata, which should hold a hash.
func Completed(ctx context.Context, b Bucket, u Upload, parts []Part, o PutOptions) (Object, bool) {
	var size int64
	for _, p := range parts {
		size += p.Size
	}
	x, err := b.Stat(ctx, u.Key)
	return x, err == nil && x.Size == size && sameMetadata(x, o)
}

func (r *retried) Abort(ctx context.Context, u Upload) error {
	return r.do(ctx, func() error { return r.Bucket.Abort(ctx, u) })
}

func (r *retried) Get(ctx context.Context, key string, o GetOptions) (Reader, error) {
	got, err := again(ctx, r, func(bool) (Reader, error) { return r.Bucket.Get(ctx, key, o) })
	if err != nil {
		return got, err
	}
	end := got.Object.Size
	if o.Length > 0 {
		end = min(end, o.Offset+o.Length)
	}
	if o.Version == "" {
		o.IfMatch = got.Object.ETag
	}
	got.ReadCloser = &resuming{ctx: ctx, r: r, key: key, o: o, at: o.Offset, end: end, body: got.ReadCloser}
	return got, nil
}

// resuming reads on where a connection broke off, as long as the object is the
// same.
type resuming struct {
	ctx     context.Context // of the call that it belongs to
	r       *retried
	key     string
	o       GetOptions
	at, end int64
	body    io.ReadCloser // nil: to be opened
	failed  int           // attempts since something was read
}

func (c *resuming) Read(p []byte) (int, error) {
	for {
		if c.body == nil {
			if c.at >= c.end {
				return 0, io.EOF
			}
			o := c.o
			o.Offset, o.Length = c.at, c.end-c.at
			got, err := again(c.ctx, c.r, func(bool) (Reader, error) { return c.r.Bucket.Get(c.ctx, c.key, o) })
			if err != nil {
				return 0, err
			}
			c.body = got.ReadCloser
		}
		n, err := c.body.Read(p)
		c.at += int64(n)
		if n > 0 {
			c.failed = 0
		}
		if err == nil || err == io.EOF || !Temporary(err) {
			return n, err
		}
		c.body.Close()
		c.body = nil
		if n > 0 {
			return n, nil
		}
		if c.failed++; !c.r.wait(c.ctx, c.failed, err) {
			return 0, err
		}
	}
}

func (c *resuming) Close() error {
	if c.body == nil {
		return nil
	}
	return c.body.Close()
}
