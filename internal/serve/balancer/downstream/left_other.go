//go:build !unix

package downstream

import "net"

// supported reports whether connections can be watched here.
const supported = false

func left(*net.TCPConn) bool { return false }
