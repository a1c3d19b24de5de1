package mountapi

import (
	"fmt"
	"os"
	"path/filepath"
)

// Socket is the path of the socket in the folder of the mounts.
func Socket(dir string) string { return filepath.Join(dir, "socket") }

// longest is the longest path that a socket's address takes on every system.
const longest = 100

// Address is an address by which the socket at a path can be listened on or dialled until
// done is called, however long the path is: the kernel takes 107 bytes.
func Address(socket string) (address string, done func(), err error) {
	if len(socket) <= longest {
		return socket, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)), func() { dir.Close() }, nil
}
