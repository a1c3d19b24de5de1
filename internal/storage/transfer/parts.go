package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// large is an object that is written in parts.
type large struct {
	e    *engine
	j    *journal
	dst  storage.Bucket
	key  string
	size int64
	part int64
	o    storage.PutOptions
	// what names the content: an upload goes on only with the same.
	what string
	// put uploads one part.
	put func(ctx context.Context, u storage.Upload, n int, offset, length int64) (storage.Part, error)
	// memory is what one part holds meanwhile.
	memory int64
	// check, if it is not nil, has the last word before the object is made. again says
	// that some parts were uploaded by an earlier process.
	check func(again bool) error
}

// write writes the object, going on with what an earlier process has uploaded.
func (l *large) write() error {
	for try := 0; ; try++ {
		err := l.once()
		// Somebody has aborted the upload, or a rule of the bucket.
		if ended, ok := errors.AsType[*storage.NotFoundError](err); ok && ended.Upload != "" && try < 2 && l.e.ended() == nil {
			continue
		}
		return err
	}
}

func (l *large) once() error {
	u, have, done, err := l.begin()
	if err != nil || done {
		return err
	}
	parts, err := l.upload(u, have)
	if err == nil && l.check != nil {
		if err = l.check(len(have) > 0); err != nil {
			l.abort(u)
			return errors.Join(err, l.j.write(record{Bucket: l.dst.Location().String(), Key: l.key, Ended: true}))
		}
	}
	if err == nil {
		_, err = l.dst.Complete(l.e.ctx, u, parts, l.o)
	}
	ended, ok := errors.AsType[*storage.NotFoundError](err)
	if err != nil && !(ok && ended.Upload != "") {
		if l.j.path == "" { // nobody could go on with it
			l.abort(u)
		}
		return err
	}
	// An error of the journal is none of the object.
	return errors.Join(err, l.j.write(record{Bucket: l.dst.Location().String(), Key: l.key, Ended: true}))
}

// abortWithin is the time that there is to give up an upload when the transfer is over.
const abortWithin = 10 * time.Second

func (l *large) abort(u storage.Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.e.ctx), abortWithin)
	defer cancel()
	if err := storage.Driver(l.dst).Abort(ctx, u); err != nil {
		l.e.note("an unfinished upload is left in the bucket", l.key+": "+err.Error(), false)
	}
}

// begin gives an upload and the parts that it has already. done: the object is there.
func (l *large) begin() (u storage.Upload, have map[int]storage.Part, done bool, err error) {
	ctx := l.e.ctx
	r, known := l.j.find(l.dst, l.key)
	if known && r.ID == "" {
		if err := l.abortUnknown(r); err != nil {
			return u, nil, false, err
		}
	}
	if known && r.ID != "" {
		u = storage.Upload{Key: l.key, ID: r.ID}
		if r.What != l.what || r.Size != l.size || r.Part != l.part {
			if err := l.dst.Abort(ctx, u); err != nil {
				return u, nil, false, err
			}
		} else {
			parts, err := l.dst.Parts(ctx, u)
			if err == nil {
				have = map[int]storage.Part{}
				for _, p := range parts {
					have[p.Number] = p
				}
				return u, have, false, nil
			}
			if ended, ok := errors.AsType[*storage.NotFoundError](err); !ok || ended.Upload == "" {
				return u, nil, false, err
			}
			if l.completed() {
				return u, nil, true, l.j.write(record{Bucket: r.Bucket, Key: r.Key, Ended: true})
			}
		}
	}
	r = record{Bucket: l.dst.Location().String(), Key: l.key, At: time.Now().UTC(), What: l.what, Size: l.size, Part: l.part}
	if err := l.j.write(r); err != nil {
		return u, nil, false, err
	}
	if u, err = l.dst.Start(ctx, l.key, l.o); err != nil {
		return u, nil, false, err
	}
	r.ID = u.ID
	return u, nil, false, l.j.write(r)
}

// completed reports whether the upload that has ended became the object.
func (l *large) completed() bool {
	_, ok := storage.Completed(l.e.ctx, l.dst, storage.Upload{Key: l.key}, []storage.Part{{Size: l.size}}, l.o)
	return ok && storage.AttributesOf(l.o.Metadata).Hash != ""
}

// clocks is how far the store's clock may be from ours.
const clocks = 5 * time.Minute

// abortUnknown ends the uploads of a key that began when a process died that was about
// to begin one.
func (l *large) abortUnknown(r record) error {
	if !l.dst.Caps().Uploads {
		return nil
	}
	o := storage.ListOptions{Prefix: l.key}
	for {
		page, err := l.dst.Uploads(l.e.ctx, o)
		if err != nil {
			if _, ok := errors.AsType[*storage.DeniedError](err); ok {
				l.e.note("unfinished uploads cannot be listed", err.Error(), false)
				return nil
			}
			return err
		}
		for _, u := range page.Uploads {
			if u.Key == l.key && !u.Started.Before(r.At.Add(-clocks)) {
				if err := l.dst.Abort(l.e.ctx, u); err != nil {
					return err
				}
			}
		}
		if page.Next == "" || page.Next == o.Token {
			return nil
		}
		o.Token = page.Next
	}
}

// upload uploads the parts that are missing.
func (l *large) upload(u storage.Upload, have map[int]storage.Part) ([]storage.Part, error) {
	parts := make([]storage.Part, (l.size+l.part-1)/l.part)
	g := l.e.group()
	for i := range parts {
		offset := int64(i) * l.part
		length := min(l.part, l.size-offset)
		if p, ok := have[i+1]; ok && p.Size == length {
			parts[i] = p
			l.e.meter.bytes(length)
			continue
		}
		if !g.run(min(l.memory, length), length, func(ctx context.Context) error {
			p, err := l.put(ctx, u, i+1, offset, length)
			if err != nil {
				return fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
			}
			parts[i] = p
			l.e.meter.bytes(length)
			return nil
		}) {
			break
		}
	}
	return parts, g.wait()
}

// putBytes uploads a part from memory.
func (l *large) putBytes(ctx context.Context, u storage.Upload, n int, p []byte) (storage.Part, error) {
	return l.dst.PutPart(ctx, u, n, bytes.NewReader(p))
}

// sweep gives up the uploads that nobody will go on with: of files that an earlier
// transfer had begun with and that this one, which has come to its end, did not meet.
func (e *engine) sweep(j *journal, dst storage.Bucket) {
	if e.ended() != nil {
		return
	}
	for _, r := range j.left() {
		if r.Bucket != dst.Location().String() {
			continue
		}
		l := &large{e: e, j: j, dst: dst, key: r.Key}
		var err error
		if r.ID == "" {
			err = l.abortUnknown(r)
		} else {
			err = dst.Abort(e.ctx, storage.Upload{Key: r.Key, ID: r.ID})
		}
		if err == nil {
			r.Ended = true
			err = j.write(r)
		}
		if err != nil {
			e.note("an unfinished upload is left in the bucket", r.Key+": "+err.Error(), false)
		}
	}
}
