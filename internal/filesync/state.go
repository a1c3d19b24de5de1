package filesync

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
)

// A StateError means that a source is, or lies in, a folder in which sky keeps
// its own state.
type StateError struct{ Name string }

func (e *StateError) Error() string {
	return fmt.Sprintf("%s is part of sky's own state (keys, tokens, its database, the homes of local nodes), which is never copied: copy what the task needs to another folder first", e.Name)
}

const (
	stateFolder  = ".sky"
	serverFolder = "api_server"
	agentFolder  = "agent"
	localFolder  = "local"
	database     = "sky.db"
)

// ownState are the folders and files of sky's state on this machine, by device
// and inode: however a tree names them, they are recognised. A sync must not even
// open the database: closing it again would drop the locks that a server in this
// process holds on it.
type ownState struct {
	inodes map[uint64]bool // of infos
	infos  []fs.FileInfo
	nodes  []fs.FileInfo // those of infos that hold local nodes
}

// findState finds the state below the home folders that this process may have.
func findState() *ownState {
	s := &ownState{inodes: map[uint64]bool{}}
	for _, home := range homes() {
		top := filepath.Join(home, stateFolder)
		s.add(top)
		names, _ := os.ReadDir(top) // none if there is no such folder
		for _, n := range names {
			if info, err := os.Stat(filepath.Join(top, n.Name())); err == nil && info.IsDir() {
				s.addInfo(info)
				if n.Name() == localFolder {
					s.nodes = append(s.nodes, info)
				}
			}
		}
		for _, name := range []string{database, database + "-wal", database + "-shm"} { // may have other names by hard links
			s.add(filepath.Join(top, serverFolder, name))
		}
	}
	return s
}

// homes are the home folder that the environment names and that of the account.
func homes() (list []string) {
	if home, err := os.UserHomeDir(); err == nil {
		list = append(list, home)
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		list = append(list, u.HomeDir)
	}
	return list
}

func (s *ownState) add(path string) {
	if info, err := os.Stat(path); err == nil {
		s.addInfo(info)
	}
}

func (s *ownState) addInfo(info fs.FileInfo) {
	s.inodes[inodeOf(info)] = true
	s.infos = append(s.infos, info)
}

// has reports whether info is that of a folder or file of the state.
func (s *ownState) has(info fs.FileInfo) bool {
	if !s.inodes[inodeOf(info)] {
		return false
	}
	for _, own := range s.infos {
		if os.SameFile(own, info) {
			return true
		}
	}
	return false
}

// isState reports whether the folder or file at an absolute path is state: of this
// process's homes, or of another installation, which is known by what is in it.
func (s *ownState) isState(path string, info fs.FileInfo) bool {
	return s.has(info) || info.IsDir() && looksLikeState(info.Name(), func(below string) bool {
		_, err := os.Lstat(filepath.Join(path, below))
		return err == nil
	})
}

// looksLikeState reports whether a folder is the state of any installation.
func looksLikeState(name string, has func(below string) bool) bool {
	switch name {
	case stateFolder:
		return has(serverFolder) || has(agentFolder)
	case serverFolder:
		return has(database)
	}
	return false
}

// IsOwnState returns what reports whether something in a folder, with that name, is sky's own
// state: for who reads a tree of files without this package.
func IsOwnState() func(dir *os.Root, name string, info fs.FileInfo) bool {
	s := findState()
	return func(dir *os.Root, name string, info fs.FileInfo) bool {
		return s.has(info) || info.IsDir() && looksLikeState(name, func(below string) bool {
			_, err := dir.Lstat(filepath.Join(name, below))
			return err == nil
		})
	}
}

// refuse returns a *StateError if the source at an absolute path, whose symlinks
// are resolved, is state or lies in it. What lies in the home of a local node is
// not the state of the installation that runs the node.
func (s *ownState) refuse(name, at string) error {
	for path := at; ; {
		info, err := os.Lstat(path)
		if err == nil && s.isState(path, info) {
			if s.inNode(path, info, at) {
				return nil
			}
			return &StateError{name}
		}
		up := filepath.Dir(path)
		if up == path {
			return nil
		}
		path = up
	}
}

// inNode reports whether at is the home of a local node, or in it; state is the
// folder above it that was recognised.
func (s *ownState) inNode(state string, info fs.FileInfo, at string) bool {
	nodes := filepath.Join(state, localFolder)
	for _, own := range s.nodes {
		if os.SameFile(own, info) {
			nodes = state
		}
	}
	rel, err := filepath.Rel(nodes, at)
	return err == nil && filepath.IsLocal(rel) && parts(rel) > 2 // cluster, node, home
}

// parts is how many names a relative path has.
func parts(rel string) int {
	n := 1
	for _, c := range rel {
		if c == filepath.Separator {
			n++
		}
	}
	return n
}
