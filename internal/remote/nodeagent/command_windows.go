package nodeagent

import (
	"fmt"
	"os"
)

// Main says that Windows machines cannot be nodes.
func Main([]string) int {
	fmt.Fprintln(os.Stderr, "sky agent: nodes need Linux or macOS")
	return 1
}
