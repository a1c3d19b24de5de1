package nodestorage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/destination"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/granted"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

// errNoInput is the cause of a context whose program's starter is gone.
var errNoInput = errors.New("the server is gone")

// copyMain is sky-mount copy.
func copyMain(ctx context.Context, in io.Reader, out io.Writer, home string) int {
	e := &emitter{w: json.NewEncoder(out)}
	dec := json.NewDecoder(in)
	var spec CopySpec
	if err := dec.Decode(&spec); err != nil {
		e.emit(Event{Mark: Failed, Fault: FaultOther, Error: fmt.Sprintf("reading what to copy: %v", err)})
		return 1
	}
	holders := make([]*granted.Holder, len(spec.Grants))
	for i, g := range spec.Grants {
		holders[i] = granted.Hold(g)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			var r Renewal
			if err := dec.Decode(&r); err != nil {
				cancel(errNoInput)
				return
			}
			for i, g := range r.Grants {
				if i < len(holders) {
					holders[i].Renew(g)
				}
			}
		}
	}()
	for i, c := range spec.Copies {
		if err := e.copy(ctx, i, c, holders, home); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			e.emit(Event{Mark: Failed, Copy: i, Error: err.Error(), Fault: faultOf(err)})
			return 1
		}
	}
	return 0
}

// An emitter writes events.
type emitter struct {
	mu sync.Mutex
	w  *json.Encoder
}

func (e *emitter) emit(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.w.Encode(ev) // a reader that is gone is seen at the input
}

func (e *emitter) copy(ctx context.Context, i int, c Copy, holders []*granted.Holder, home string) error {
	if c.Grant < 0 || c.Grant >= len(holders) {
		return fmt.Errorf("copy %d has no grant", i)
	}
	dst, err := destination.Path(c.Dst, home)
	if err != nil {
		return err
	}
	b, err := granted.Open(ctx, holders[c.Grant], nil)
	if err != nil {
		return err
	}
	key := c.Key
	if c.Folder && key != "" && !strings.HasSuffix(key, "/") {
		key += "/"
	}
	o := transfer.Options{Progress: func(p transfer.Progress) {
		e.emit(Event{Mark: Progress, Copy: i, Files: p.Files, Bytes: p.Bytes, TotalFiles: p.TotalFiles, TotalBytes: p.TotalBytes,
			Counted: p.Counted, Rate: p.Rate, Left: p.Left.Seconds()})
	}}
	if c.AsRoot {
		o.Place = destination.New(home).Prepare
	}
	isFolder, report, err := transfer.Download(ctx, b, key, dst, o)
	if err != nil {
		return err
	}
	notes := report.Notes
	if isFolder && key != "" && !strings.HasSuffix(key, "/") {
		// The name of the object that lies beside the folder, if there is one.
		if _, err := storage.Retry(b, storage.Retries{}).Stat(ctx, key); err == nil {
			notes = append(notes, fmt.Sprintf("%s is a folder and an object at the same time: the folder was copied, and not the object", b.Location().At(key)))
		}
	}
	e.emit(Event{Mark: Done, Copy: i, Files: report.Files, Bytes: report.Bytes, Same: report.Same, Folder: isFolder, Notes: notes})
	return nil
}

// faultOf says what kind of failure an error is.
func faultOf(err error) Fault {
	is := func(ok bool, f Fault) Fault {
		if ok {
			return f
		}
		return ""
	}
	return cmp.Or(
		is(diskspace.Full(err), FaultSpace),
		is(has[*storage.CredentialsError](err), FaultCredentials),
		is(has[*storage.DeniedError](err), FaultDenied),
		is(has[*storage.NotFoundError](err), FaultMissing),
		is(storage.Temporary(err), FaultStore),
		is(has[*transfer.FilesError](err), FaultFiles),
		FaultOther)
}

func has[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
