package execution

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/skypilot-go/sky/api"
)

func isFolder(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}

// fileError says what is wrong with a path on the user's side.
func fileError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &api.Error{Type: api.ErrFileNotFound, Message: fmt.Sprintf("%s does not exist.", path), Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("%s cannot be read: %v. Mend its permissions, or leave it out with a line in .skyignore.", path, err), Err: err}
	}
	return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Copying %s failed: %v", path, err), Err: err}
}
