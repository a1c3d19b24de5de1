package filesync

import "io/fs"

// isNotFolder reports that a file stands where a path wants a folder. Windows
// calls that "does not exist".
func isNotFolder(error) bool { return false }

func isLoop(error) bool { return false }

// inodeOf is not known here: files are compared one by one.
func inodeOf(fs.FileInfo) uint64 { return 0 }
