package simulate

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
)

var bound = policy.Bound{Factor: 1.25, Slack: 2} // the defaults

func both(c Config) (least, aware Result) {
	c.Policy = LeastLoad
	least = Run(c)
	c.Policy = PrefixAware(bound)
	return least, Run(c)
}

// Conversations with shared system prompts find their prefixes at least twice as
// often as by load alone, and nobody waits longer for it.
func TestPrefixAwareBeatsLeastLoad(t *testing.T) {
	for seed := range uint64(2) {
		c := Default(seed)
		c.Conversations = 700
		least, aware := both(c)
		t.Logf("seed %d: least_load hits %.2f, p99 %v; prefix_aware hits %.2f, p99 %v", seed, least.HitRate, least.P99, aware.HitRate, aware.P99)
		if aware.HitRate < 2*least.HitRate || aware.P99 > least.P99 {
			t.Errorf("seed %d: least_load %+v, prefix_aware %+v", seed, least, aware)
		}
	}
}

// A single system prompt does not send everybody to one replica.
func TestOnePrefixDoesNotOverload(t *testing.T) {
	c := Default(1)
	c.Conversations, c.Systems, c.Turns, c.SystemBlocks = 700, 2, 1, 100
	if least, aware := both(c); aware.P99 > least.P99+100*time.Millisecond {
		t.Errorf("least_load %+v, prefix_aware %+v", least, aware)
	}
}

func BenchmarkPolicies(b *testing.B) {
	for range b.N {
		least, aware := both(Default(1))
		b.ReportMetric(least.HitRate, "hits-least")
		b.ReportMetric(aware.HitRate, "hits-prefix")
		b.ReportMetric(least.P99.Seconds(), "p99-least-s")
		b.ReportMetric(aware.P99.Seconds(), "p99-prefix-s")
	}
}
