package transfer

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/storage"
)

// removers is how many deletions are made at once.
const removers = 16

// Delete deletes the object at a key and all that lies below it, with all versions
// and unfinished uploads; "" stands for everything in the bucket. The bucket itself
// stays. What is gone already is no error, and neither is a bucket that does not exist:
// after a crash the same call goes on.
func Delete(ctx context.Context, b storage.Bucket, key string, o Options) (Report, error) {
	o.Workers = min(max(o.Workers, 0), removers)
	if o.Workers == 0 {
		o.Workers = removers
	}
	e := newEngine(ctx, o)
	r := &remover{engine: e, b: e.wrap(b)}
	err := r.all(key)
	e.stop(err)
	report, err := e.finish()
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key == "" {
		return report, nil
	}
	return report, err
}

type remover struct {
	*engine
	b     storage.Bucket
	plain bool // versions cannot be listed
}

func (r *remover) all(key string) error {
	// Uploads first: one that were completed in between would be a new object.
	if err := r.uploads(key); err != nil {
		return err
	}
	if key != "" && folder(key) != key {
		if err := r.exactly(key); err != nil {
			return err
		}
	}
	err := pageAfterPage(r.ctx, r.list, storage.ListOptions{Prefix: folder(key)}, r.page)
	if err == nil {
		r.meter.counted.Store(true)
	}
	return err
}

// list lists versions, or only objects where versions may not be listed.
func (r *remover) list(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	if !r.plain {
		page, err := r.b.Versions(ctx, o)
		_, denied := errors.AsType[*storage.DeniedError](err)
		_, cannot := errors.AsType[*storage.UnsupportedError](err)
		if !denied && !cannot || o.Token != "" {
			return page, err
		}
		r.note("versions cannot be listed, so that old ones stay", err.Error(), false)
		r.plain = true
	}
	return r.b.List(ctx, o)
}

// page deletes what a page lists; false: the transfer is over.
func (r *remover) page(p storage.Page) bool {
	most := max(1, r.b.Caps().MaxRemove)
	for from := 0; from < len(p.Objects); from += most {
		objects := p.Objects[from:min(from+most, len(p.Objects))]
		ids := make([]storage.ID, len(objects))
		for i, o := range objects {
			ids[i] = storage.ID{Key: o.Key, Version: o.Version}
			r.meter.saw(0)
		}
		if !r.small(ids[0].Key, 0, func(ctx context.Context) error { return r.batch(ctx, ids) }) {
			return false
		}
	}
	return true
}

func (r *remover) batch(ctx context.Context, ids []storage.ID) error {
	err := r.b.Remove(ctx, ids)
	some, ok := errors.AsType[*storage.RemoveError](err)
	if err != nil && !ok {
		return err
	}
	left := 0
	if some != nil {
		if left = len(some.Failed); left == len(ids) {
			return some // nothing can be deleted
		}
		for _, f := range some.Failed {
			r.result(f.Key, &localError{f.Err})
		}
	}
	r.mu.Lock()
	r.report.Files += int64(len(ids) - left)
	r.mu.Unlock()
	r.meter.files.Add(int64(len(ids) - left))
	return nil
}

// exactly deletes the versions of one key, which come before those of longer ones.
func (r *remover) exactly(key string) error {
	return pageAfterPage(r.ctx, r.list, storage.ListOptions{Prefix: key}, func(p storage.Page) bool {
		own := storage.Page{}
		for _, o := range p.Objects {
			if o.Key == key {
				own.Objects = append(own.Objects, o)
			}
		}
		return r.page(own) && len(own.Objects) == len(p.Objects)
	})
}

// uploads aborts unfinished uploads.
func (r *remover) uploads(key string) error {
	if !r.b.Caps().Uploads {
		return nil
	}
	o := storage.ListOptions{Prefix: key}
	for {
		page, err := r.b.Uploads(r.ctx, o)
		if err != nil {
			_, denied := errors.AsType[*storage.DeniedError](err)
			_, cannot := errors.AsType[*storage.UnsupportedError](err)
			if denied || cannot {
				r.note("unfinished uploads cannot be listed", err.Error(), false)
				return nil
			}
			return err
		}
		for _, u := range page.Uploads {
			if key != "" && u.Key != key && !hasFolder(u.Key, key) {
				continue
			}
			if !r.small(u.Key, 0, func(ctx context.Context) error { return r.b.Abort(ctx, u) }) {
				return r.ended()
			}
		}
		if page.Next == "" || page.Next == o.Token {
			r.wg.Wait()
			return nil
		}
		o.Token = page.Next
	}
}

// hasFolder reports whether a key lies below a folder.
func hasFolder(key, prefix string) bool {
	f := folder(prefix)
	return len(key) >= len(f) && key[:len(f)] == f
}
