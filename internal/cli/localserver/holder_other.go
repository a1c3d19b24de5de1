//go:build !linux

package localserver

// portHolder names the process that listens on a TCP port; "" means that this
// system does not tell.
func portHolder(string) string { return "" }
