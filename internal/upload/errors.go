package upload

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/filesync"
)

// Error says to the author of a task what is wrong with a file that it names.
func Error(src filesync.Source, err error) error {
	if e, ok := errors.AsType[*filesync.OutsideError](err); ok {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%s cannot be used: it leads out of the uploaded files.", src), Err: e}
	}
	if e, ok := errors.AsType[*filesync.StateError](err); ok {
		return &api.Error{Type: api.ErrValue, Message: e.Error() + ".", Err: e}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &api.Error{Type: api.ErrFileNotFound, Message: fmt.Sprintf("%s does not exist.", src), Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("%s cannot be read: %v. Change its permissions, or leave it out with a line in .skyignore.", src, err), Err: err}
	}
	return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Copying %s failed: %v", src, err), Err: err}
}
