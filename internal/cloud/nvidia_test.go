package cloud

import "testing"

func TestAcceleratorNames(t *testing.T) {
	for _, tt := range []struct {
		driver string
		gib    float64
		want   string
	}{
		{"NVIDIA H200", 140, "H200"},
		{"NVIDIA H100 80GB HBM3", 80, "H100"},
		{"NVIDIA H100 PCIe", 80, "H100"},
		{"NVIDIA A100-SXM4-40GB", 40, "A100"},
		{"NVIDIA A100-SXM4-80GB", 80, "A100-80GB"},
		{"NVIDIA A100 80GB PCIe", 80, "A100-80GB"},
		{"Tesla V100-SXM2-16GB", 16, "V100"},
		{"Tesla V100-SXM2-32GB", 32, "V100-32GB"},
		{"Tesla T4", 15, "T4"},
		{"NVIDIA L4", 23, "L4"},
		{"NVIDIA GeForce RTX 4090", 24, "RTX4090"},
		{"NVIDIA RTX A6000", 48, "RTXA6000"},
	} {
		if got := nvidiaName(tt.driver, tt.gib); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.driver, got, tt.want)
		}
	}
}
