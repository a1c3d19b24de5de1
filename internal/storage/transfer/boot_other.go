//go:build !linux

package transfer

import "io/fs"

// bootID names this run of the system; "": it has no name.
func bootID() string { return "" }

// beforeBoot reports whether a file was last touched in an earlier run of the system.
func beforeBoot(fs.FileInfo) bool { return false }
