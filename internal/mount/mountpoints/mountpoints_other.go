//go:build !linux

// Package mountpoints reads which file systems are mounted where, and takes away the mounts
// that sky-mount left below a folder.
package mountpoints

// Abort ends the service of mounts. There are none on this system.
func Abort(func(path string) bool) error { return nil }

// DetachBelow takes away all mounts of sky-mount in a folder. There are none on this system.
func DetachBelow(string) error { return nil }
