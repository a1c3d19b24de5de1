// Command fluffycloud is a cloud on one's own machine, to try sky without an
// account and to test it against everything that clouds do.
package main

import (
	"os"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/serve"
)

func main() { os.Exit(serve.Main(os.Args[1:], os.Stdout, os.Stderr)) }
