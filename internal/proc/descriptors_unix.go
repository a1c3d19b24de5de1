//go:build unix

package proc

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseOnExec keeps the files that this process inherited from whoever started it,
// beside its standard streams, from the programs that it starts.
func CloseOnExec() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd" // also where there is no /dev/fd
	}
	open, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
