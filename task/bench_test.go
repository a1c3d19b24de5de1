package task

import (
	"os"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"hello", "multi-node", "service-autoscaling", "pipeline"} {
		b.Run(name, func(b *testing.B) {
			data, err := os.ReadFile("../examples/" + name + ".yaml")
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(name, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkYAML(b *testing.B) {
	d, err := Load("../examples/multi-node.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.YAML(); err != nil {
			b.Fatal(err)
		}
	}
}
