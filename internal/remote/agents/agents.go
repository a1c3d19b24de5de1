// Package agents holds the node agents that a release of sky carries: small
// programs for the usual kinds of machines, compressed. A build without the tag
// "agents" carries none, and its whole binary goes onto nodes instead.
//
//	go run ./internal/remote/agents/pack && go build -tags agents ./cmd/sky
package agents

// For returns the agent for a kind of machine, compressed with zstd, if this
// build carries one.
func For(goos, goarch string) (packed []byte, ok bool) {
	packed, err := carried.ReadFile(goos + "-" + goarch + ".zst")
	return packed, err == nil
}
