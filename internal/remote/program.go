package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is a whole sky of this release for a platform ("linux/amd64"), server
// and all: a copy of the running one, or for another platform sky-<os>-<arch>
// next to it. build is its id.
func (r *Connector) Program(platform string) (path, build string, err error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	if goos == runtime.GOOS && goarch == runtime.GOARCH {
		path, err := r.install()
		return path, r.o.BuildID, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(filepath.Dir(self), "sky-"+goos+"-"+goarch)
	build, err = usable(path, goos, goarch)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("the machine is %s, this server is %s/%s, and there is no sky for it: put the sky of the same release for %[1]s into %s as %s, or ask for a machine of the other kind",
			platform, runtime.GOOS, runtime.GOARCH, filepath.Dir(path), filepath.Base(path))
	}
	if err != nil {
		return "", "", fmt.Errorf("%s cannot be used on %s: %w", path, platform, err)
	}
	return path, build, nil
}
