//go:build !unix

package upstream

import "net"

// alive reports whether an unused connection is still open; here few know it.
func alive(c net.Conn) bool {
	knows, ok := c.(interface{ Alive() bool })
	return !ok || knows.Alive()
}
