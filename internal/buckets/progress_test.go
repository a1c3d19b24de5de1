package buckets

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage/transfer"
)

func TestProgressInWords(t *testing.T) {
	for want, p := range map[string]transfer.Progress{
		"0 objects":                             {},
		"1 object":                              {Files: 1, TotalFiles: 5},
		"2000 objects, 4800/s":                  {Files: 2000, TotalFiles: 9000, FileRate: 4800.4},
		"2000 of 9000 objects, 1000/s, 7s left": {Files: 2000, TotalFiles: 9000, Counted: true, FileRate: 1000, Left: 7 * time.Second},
		"9000 objects, 1000/s":                  {Files: 9000, TotalFiles: 9000, Counted: true, FileRate: 1000},
	} {
		if got := howManyGone(p); got != want {
			t.Errorf("%q in place of %q", got, want)
		}
	}
	moved := transfer.Progress{Files: 2, Bytes: 1 << 20, TotalBytes: 4 << 20, Counted: true, Rate: 1 << 20, Left: 3 * time.Second}
	if got := howFar(moved); got != "2 files, 1 MB of 4 MB, 1 MB/s, 3s left" {
		t.Errorf("%q", got)
	}
}
