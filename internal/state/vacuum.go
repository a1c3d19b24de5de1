package state

import (
	"context"
	"database/sql"
	"os"

	"github.com/skypilot-go/sky/internal/diskspace"
)

const (
	// incrementalUpTo is the size of a file that is made incremental at a start: so
	// much is copied in a few seconds. Larger ones are by a backup and its restore.
	incrementalUpTo = 256 << 20
	// vacuumSpare stays free on the disk beside the two copies that it takes.
	vacuumSpare = 256 << 20
	incremental = 2 // of PRAGMA auto_vacuum
)

// makeIncremental rewrites a file of an earlier sky so that its free pages can be
// given back to the file system one by one, if it is not too large and the disk
// has room. A crash in between leaves the file as it was. It is done again at the
// next start if it fails.
func makeIncremental(ctx context.Context, db *sql.DB, path string, upTo int64) {
	c, err := db.Conn(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	var mode int
	if err := c.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err != nil || mode == incremental {
		return
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > upTo {
		return
	}
	if free, err := diskspace.Free(path); err != nil || free < 2*info.Size()+vacuumSpare {
		return
	}
	for _, step := range []string{"PRAGMA auto_vacuum = INCREMENTAL", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := c.ExecContext(ctx, step); err != nil {
			return
		}
	}
}
