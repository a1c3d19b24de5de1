//go:build !linux

package transfer

// bootID names this run of the system; "": it has no name.
func bootID() string { return "" }
