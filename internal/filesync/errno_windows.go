package filesync

// isNotFolder tells that a file stands where a path wants a folder. Windows
// calls that "does not exist".
func isNotFolder(error) bool { return false }

func isLoop(error) bool { return false }
