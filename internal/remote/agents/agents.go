// Package agents holds the programs for nodes that a release of sky carries, for the usual
// kinds of machines, compressed: the agent, and sky-mount for nodes whose task needs buckets.
// A build without the tag "agents" carries none, and its whole binary goes onto nodes instead.
//
//	go run ./internal/remote/agents/pack && go build -tags agents ./cmd/sky
package agents

// For returns the agent for a kind of machine, compressed with zstd, if this
// build carries one.
func For(goos, goarch string) (packed []byte, ok bool) {
	packed, err := carried.ReadFile(goos + "-" + goarch + ".zst")
	return packed, err == nil
}

// Mount returns sky-mount for a kind of machine, compressed with zstd, if this build
// carries one.
func Mount(goos, goarch string) (packed []byte, ok bool) {
	packed, err := carried.ReadFile("mount-" + goos + "-" + goarch + ".zst")
	return packed, err == nil
}
