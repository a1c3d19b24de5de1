package facts

import "testing"

func TestHostsOfTPUs(t *testing.T) {
	for name, hosts := range map[string]int{
		"tpu-v2-8": 1, "tpu-v3-32": 4, "tpu-v4-8": 1, "tpu-v4-32": 4, "tpu-v5litepod-1": 1, "tpu-v5litepod-8": 1, "tpu-v5litepod-16": 4, "tpu-v5p-8": 1, "tpu-v5p-128": 16,
		"tpu-v6e-8": 1, "tpu-v6e-256": 64, "tpu-v9-8": 0, "tpu-v4": 0, "tpu-v4-x": 0, "v4-8": 0, "A100": 0, "tpu-v6e-slice": 0,
	} {
		if got := TPUHosts(name); got != hosts {
			t.Errorf("%s has %d hosts, want %d", name, got, hosts)
		}
	}
}
