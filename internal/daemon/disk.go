package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
)

const (
	// diskReserve is kept beside the database, so that clusters can still be stopped
	// and ended when the disk is full.
	diskReserve = 8 << 20
	// diskNeeded is what must be free for requests that make something.
	diskNeeded = 16 << 20
	diskLook   = 5 * time.Second
)

// disk watches the disk that the server writes to.
type disk struct {
	dir     string
	log     *slog.Logger
	reserve *diskspace.Reserve
	low     atomic.Bool // too little is free
}

func newDisk(dir string, log *slog.Logger) *disk {
	return &disk{dir: dir, log: log, reserve: diskspace.OpenReserve(filepath.Join(dir, "sky.db.reserve"), diskReserve)}
}

// open makes room for a start on a full disk, from the reserve, or says that the
// disk is full.
func (d *disk) open() error {
	const start = 2 << 20 // for the log, the lock and the first writes
	for {
		free, err := diskspace.Free(d.dir)
		if err != nil || free >= start {
			return nil // what is wrong otherwise is said by whoever meets it
		}
		if !d.reserve.Release() {
			return fmt.Errorf("disk full: %s free in %s, %s needed to start; free space on that disk and try again", diskspace.Bytes(free), d.dir, diskspace.Bytes(start))
		}
	}
}

// keep looks at the disk now and then until ctx ends.
func (d *disk) keep(ctx context.Context) {
	t := time.NewTicker(diskLook)
	defer t.Stop()
	for {
		d.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (d *disk) look(ctx context.Context) {
	if err := d.reserve.Fill(diskNeeded); err != nil && !diskspace.Full(err) {
		d.log.WarnContext(ctx, "no room is kept for a full disk", "err", err)
	}
	trouble := d.trouble()
	switch was := d.low.Swap(trouble != ""); {
	case trouble != "" && !was:
		d.log.ErrorContext(ctx, "disk full: only what ends or shows something is accepted", "disk", trouble)
	case trouble == "" && was:
		d.log.InfoContext(ctx, "the disk has room again")
	}
}

// trouble says what is wrong with the disk; "" means nothing.
func (d *disk) trouble() string {
	free, err := diskspace.Free(d.dir)
	if err != nil || free >= diskNeeded {
		return ""
	}
	return fmt.Sprintf("disk full: %s free in %s, %s needed", diskspace.Bytes(free), d.dir, diskspace.Bytes(diskNeeded))
}

// makers are the requests that need room for what they make.
var makers = []string{
	"sky.launch", "sky.exec", "sky.start", "sky.jobs.launch", "sky.volume_apply", "sky.ssh_node_pools.up",
	"sky.download_logs", reqJobsDownload, reqServeDownload, reqServeUp, reqServeUpdate, "sky.debug.dump_create", "sky.local_up",
}

// admit refuses requests that need room when there is none.
func (d *disk) admit(name string) error {
	if !slices.Contains(makers, name) {
		return nil
	}
	if trouble := d.trouble(); trouble != "" {
		return &api.Error{Type: api.ErrRuntime, Message: trouble + ". Free space on that disk of the API server and try again; what exists can still be looked at, stopped and ended."}
	}
	return nil
}
