// Served is the program of a service's replicas in pods.
package main

import (
	"os"

	"github.com/skypilot-go/sky/test/harness/served"
)

func main() { os.Exit(served.Run(os.Args[1])) }
