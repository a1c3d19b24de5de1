//go:build unix

package serve_test

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// A program that ends because of a full disk is told from one that crashes.
func TestAReplicaWhoseDiskIsFull(t *testing.T) {
	for says, want := range map[string]string{
		"open /data/x: no space left on device": "its disk is full",
		"panic: boom":                           "its program ended",
	} {
		bubble(t, func(i *installation) {
			i.answer(func(string) int { return 0 })
			i.up(strings.Replace(service, "  sleep 10000h\n", "  echo "+says+"\n  sleep 1s\n  exit 1\n", 1))
			s := i.until("failed", func(s *api.Service) bool {
				return s != nil && len(s.Replicas) > 0 && s.Replicas[0].Status == string(api.ReplicaFailed)
			})
			if why := s.Replicas[0].Reason; !strings.Contains(why, want) || !strings.Contains(why, "exit code 1") {
				t.Errorf("%s: %s", says, why)
			}
		})
	}
}
