package daemon

import (
	"fmt"
	"io"
	"os"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// shorten moves the content of the log that out writes to into path.1, over what
// was there, once it has grown beyond most bytes; 0: never. A log that is
// anything but the file path itself is somebody else's to keep short. A line that
// is written meanwhile may be lost.
func shorten(out *os.File, path string, most int64) error {
	writes, err := out.Stat()
	if err != nil || !writes.Mode().IsRegular() || most <= 0 || writes.Size() <= most {
		return err
	}
	named, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("keeping the server's log short: %w", err)
	}
	defer named.Close()
	if is, err := named.Stat(); err != nil || !os.SameFile(writes, is) {
		return err
	}
	if err := wholefile.Fill(path+".1", 0o600, func(f *os.File) error { _, err := io.Copy(f, named); return err }); err != nil {
		return fmt.Errorf("keeping the server's log short: %w", err)
	}
	return named.Truncate(0) // who writes appends
}
