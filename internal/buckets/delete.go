package buckets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

// Delete deletes a bucket with all that is in it, if sky made it, and forgets it.
func (m *Manager) Delete(ctx context.Context, call cluster.Call, name string) error {
	if _, err := m.get(ctx, call.Scope, name); err != nil {
		return err
	}
	call.Out.Spin("Waiting for other requests on bucket " + name)
	ctx, unlock, err := m.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.get(ctx, call.Scope, name)
	if err != nil {
		return err
	}
	if rec, err = m.begin(ctx, rec); err != nil {
		return err
	}
	if err := m.finishDelete(ctx, call.Out, m.configOf(call), rec); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return failed(api.ErrStorageDelete, fmt.Sprintf("Bucket %s could not be deleted yet", at(rec)), err)
	}
	return nil
}

// begin notes that a bucket is about to go.
func (m *Manager) begin(ctx context.Context, rec *state.Bucket) (*state.Bucket, error) {
	return m.Store.Buckets().Update(ctx, rec.Name, rec.Hash, func(rec *state.Bucket) error {
		if rec.Problem = ""; rec.Stage == state.BucketMaking || rec.Stage == state.BucketUndoing {
			rec.Stage = state.BucketUndoing
		} else {
			rec.Stage = state.BucketDeleting
		}
		return nil
	})
}

// emptied is how often a bucket is emptied that others write to meanwhile.
const emptied = 5

// finishDelete deletes a bucket whose end was begun, and forgets it.
func (m *Manager) finishDelete(ctx context.Context, out cluster.Output, c *config.Config, rec *state.Bucket) error {
	err := m.remove(ctx, out, c, rec)
	if err == nil {
		os.RemoveAll(m.journals(rec))
		return m.Store.Buckets().Delete(context.WithoutCancel(ctx), rec.Name, rec.Hash)
	}
	if handedOver(ctx) {
		return err
	}
	_, serr := m.Store.Buckets().Update(context.WithoutCancel(ctx), rec.Name, rec.Hash, func(rec *state.Bucket) error {
		rec.Problem = err.Error()
		return nil
	})
	if errors.Is(serr, state.ErrNotFound) {
		serr = nil
	}
	return errors.Join(err, serr)
}

// remove deletes what sky has made of a bucket.
func (m *Manager) remove(ctx context.Context, out cluster.Output, c *config.Config, rec *state.Bucket) error {
	where := at(rec)
	if rec.Intermediate() {
		return m.removeIntermediate(ctx, c, rec)
	}
	if !rec.Managed {
		out.StopSpin()
		fmt.Fprintf(out, "Bucket %s was not made by sky: it stays as it is, and is forgotten.\n", where)
		return nil
	}
	b, err := m.recorded(ctx, c, rec)
	if err != nil {
		return err
	}
	if _, err = b.Head(ctx); is[*storage.NotFoundError](err) {
		return nil
	} else if err != nil {
		return err
	}
	if b.Caps().Tags {
		tags, err := b.Tags(ctx)
		if err != nil {
			return err
		}
		if mark := tags[storage.MarkerTag]; mark != rec.Hash && (mark != "" || rec.Stage != state.BucketUndoing) {
			out.StopSpin()
			fmt.Fprintf(out, "Bucket %s is not the one that sky made, which others must have deleted: it is left alone, and the other one is forgotten.\n", where)
			return nil
		}
	}
	if rec.Stage == state.BucketUndoing {
		if err := b.Delete(ctx); err != nil && !is[*storage.NotFoundError](err) && !is[*storage.BucketNotEmptyError](err) {
			return err
		} // one that has something in it was never ours
		return nil
	}
	for try := 1; ; try++ {
		report, err := transfer.Delete(ctx, b, "", transfer.Options{Progress: func(p transfer.Progress) {
			out.Spin(fmt.Sprintf("Deleting bucket %s: %s", where, howManyGone(p)))
			tell(out, "delete", where.String(), p)
		}})
		if err != nil {
			return err
		}
		err = b.Delete(ctx)
		if is[*storage.BucketNotEmptyError](err) && try < emptied {
			continue // somebody still writes to it
		}
		if err != nil && !is[*storage.NotFoundError](err) {
			return err
		}
		out.StopSpin()
		fmt.Fprintf(out, "✓ Deleted bucket %s (%s)\n", where, plural(report.Files, "object"))
		return nil
	}
}

// removeIntermediate deletes a prefix with intermediate files. The bucket stays.
func (m *Manager) removeIntermediate(ctx context.Context, c *config.Config, rec *state.Bucket) error {
	if rec.SubPath == "" {
		return errors.New("its record names no prefix, so that nothing is deleted")
	}
	b, err := m.recorded(ctx, c, rec)
	if err != nil {
		return err
	}
	_, err = transfer.Delete(ctx, b, rec.SubPath+"/", transfer.Options{})
	return err
}

// Settle goes on with what was begun and is not over, and deletes buckets that were not to
// outlive those who needed them. What somebody works on just then is passed over.
func (m *Manager) Settle(ctx context.Context) error {
	list, err := m.Store.Buckets().List(ctx, state.BucketFilter{})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(8)
	errs := make([]error, len(list))
	for i, rec := range list {
		if rec.Persistent && rec.Stage == state.BucketThere {
			continue
		}
		g.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = m.settle(ctx, rec.Name)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(errs...)
}

func (m *Manager) settle(ctx context.Context, name string) error {
	ctx, unlock, ok, err := m.locks.TryLock(ctx, name)
	if err != nil || !ok {
		return err
	}
	defer unlock()
	rec, err := m.Store.Buckets().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	needed, err := m.Store.Buckets().Needed(ctx, rec.Hash)
	if err != nil {
		return err
	}
	switch {
	case rec.Stage == state.BucketDeleting, rec.Stage == state.BucketUndoing:
	case needed:
		return nil // a request goes on with it, or somebody still needs it
	case rec.Persistent && rec.Stage == state.BucketThere:
		return nil
	default: // of one that was being made, the request is over, and nobody has used it yet
		if rec, err = m.begin(ctx, rec); err != nil {
			return err
		}
	}
	if err := m.finishDelete(ctx, quiet{}, m.Config(), rec); err != nil {
		return fmt.Errorf("bucket %s: %w", rec.Name, err)
	}
	m.Log.InfoContext(ctx, "bucket deleted that nobody needs any more", "bucket", at(rec).At(rec.SubPath).String())
	return nil
}

// quiet is output that nobody reads.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (quiet) Spin(string)                 {}
func (quiet) StopSpin()                   {}

// interval is how often [Manager.Keep] settles.
const interval = time.Minute

// Soon makes [Manager.Keep] settle now: somebody may not need buckets any more.
func (m *Manager) Soon() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Keep settles, at once and again and again until ctx ends. once runs its argument unless
// some server of the installation did within the period.
func (m *Manager) Keep(ctx context.Context, once func(ctx context.Context, period time.Duration, name string, f func(context.Context))) {
	settle := func(ctx context.Context) {
		if err := m.Settle(ctx); err != nil && ctx.Err() == nil {
			m.Log.WarnContext(ctx, "not every bucket could be settled", "err", err)
		}
	}
	once(ctx, interval, "buckets", settle)
	for {
		t := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-m.kick:
			settle(ctx)
		case <-t.C:
			once(ctx, interval, "buckets", settle)
		}
		t.Stop()
	}
}
