//go:build !linux

package nodestorage

import (
	"context"
	"fmt"
	"os"
)

func mountMain(context.Context, string, bool) int {
	fmt.Fprintln(os.Stderr, "sky-mount: buckets are mounted on Linux only; use mode: COPY")
	return 1
}

func brokerMain(context.Context, string) int {
	fmt.Fprintln(os.Stderr, "sky-mount: a broker of mounts runs on Linux only")
	return 1
}

func privilegedMain(string) int { return 2 }
