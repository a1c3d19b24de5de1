// Command sky-mount works with buckets on a node: a small static program that is sent to
// nodes whose task needs buckets. The whole sky takes the same arguments after the word
// sky-mount.
package main

import (
	"os"

	"github.com/skypilot-go/sky/internal/nodestorage"
)

func main() { os.Exit(nodestorage.Main(os.Args[1:])) }
