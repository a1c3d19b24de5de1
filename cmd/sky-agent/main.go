// Command sky-agent is the node agent alone: a small static binary to upload to
// nodes. It takes the same flags as "sky agent", with or without that word.
package main

import (
	"os"

	"github.com/skypilot-go/sky/internal/remote/nodeagent"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "agent" {
		args = args[1:]
	}
	os.Exit(nodeagent.Main(args))
}
