// Package destination finds where on a node the files of a task are written. Most
// destinations are the user's own. One that only root may write, such as /data/model or
// /etc/motd.txt, is prepared with sudo where that asks for no password.
//
// It serves copies of local files, copies of buckets, and mounts of buckets.
package destination

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Path is the absolute path of a task's destination: an absolute path, or one below the
// home folder ("~/x" or "x").
func Path(dst, home string) (string, error) {
	path := dst
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", fmt.Errorf("the destination %q names another user's home: use an absolute path", dst)
		}
		path = strings.TrimLeft(rest, "/")
	}
	if !filepath.IsAbs(path) {
		if path = filepath.Clean(path); !filepath.IsLocal(path) {
			return "", fmt.Errorf("the destination %q leads out of the home folder: use an absolute path", dst)
		}
		path = filepath.Join(home, path)
	}
	return filepath.Clean(path), nil
}

// An Error says why a destination cannot be written.
type Error struct {
	Path string
	Why  string
	Hint string // what to do instead
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s cannot be written: %s", e.Path, e.Why)
	if e.Hint != "" {
		s += ". " + e.Hint
	}
	return s
}

// linksDir is where files lie, below the home folder, that a link in another folder
// leads to.
const linksDir = ".sky/file_mounts"

// An action is how a destination becomes writable.
type action int

const (
	asIs   action = iota // write there; if that fails, the error is clear by itself
	create               // make a folder for the user, as root
	adopt                // give the user an empty folder that is there
	link                 // make a link to a file below the home folder, as root
	refuse
)

// state is what was found at a destination.
type state struct {
	path, target string // target: where a link would lead
	folder       bool   // a folder is to be written, not a file

	exists   bool   // something is at path, or at the end of the link there
	isFolder bool   // that is a folder
	writable bool   // a folder at path can be written
	empty    bool   // a folder at path holds nothing
	linked   string // path is a symbolic link to this

	above         string // the nearest folder above that exists
	aboveWritable bool
	stranger      string // "", or a folder on the way that somebody else than root and the user can change
}

// decide says how a destination becomes writable, and the folder that an action is about.
func decide(s state) (act action, folder string, why *Error) {
	no := func(format string, args ...any) (action, string, *Error) {
		return refuse, "", &Error{Path: s.path, Why: fmt.Sprintf(format, args...), Hint: "Choose a path below ~/"}
	}
	parent := filepath.Dir(s.path)
	ours := strings.HasSuffix(s.linked, "/"+linksDir+s.path)
	switch {
	case s.folder && s.exists && (!s.isFolder || s.writable):
		return asIs, "", nil
	case s.folder && s.exists && s.stranger != "":
		return no("%s belongs to another user", s.stranger)
	case s.folder && s.exists && s.empty:
		return adopt, s.path, nil
	case s.folder && s.exists:
		_, _, e := no("the folder belongs to another user and is not empty, so it is left as it is")
		e.Hint = fmt.Sprintf("Choose a new folder below it, such as %s, or a path below ~/", filepath.Join(s.path, "task"))
		return refuse, "", e
	case !s.folder && s.exists && s.isFolder, s.aboveWritable && s.linked == "":
		return asIs, "", nil
	case s.stranger != "":
		return no("%s belongs to another user", s.stranger)
	case s.folder:
		return create, s.path, nil
	case ours:
		return link, "", nil
	case s.exists || s.linked != "":
		_, _, e := no("it exists, in a folder of another user, and is not replaced")
		e.Hint = "Copy to a path below ~/, and put it there in setup with sudo"
		return refuse, "", e
	case s.above != parent:
		return create, parent, nil
	}
	return link, "", nil
}
