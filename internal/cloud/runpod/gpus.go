package runpod

import (
	"fmt"
	"strconv"
	"strings"
)

// gpus are RunPod's ids of GPUs, by the names that price lists have.
var gpus = map[string]string{
	"MI300X": "AMD Instinct MI300X OAM", "A100-80GB": "NVIDIA A100 80GB PCIe", "A100-80GB-SXM": "NVIDIA A100-SXM4-80GB",
	"A30": "NVIDIA A30", "A40": "NVIDIA A40", "B200": "NVIDIA B200", "L4": "NVIDIA L4", "L40": "NVIDIA L40", "L40S": "NVIDIA L40S",
	"H100": "NVIDIA H100 PCIe", "H100-SXM": "NVIDIA H100 80GB HBM3", "H100-NVL": "NVIDIA H100 NVL", "H200-SXM": "NVIDIA H200",
	"RTX4000-Ada-SFF": "NVIDIA RTX 4000 SFF Ada Generation", "RTXPRO4500": "NVIDIA RTX PRO 4500 Blackwell",
	"RTXPRO6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000-WK": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
	"V100-16GB-FHHL": "Tesla V100-FHHL-16GB", "V100-16GB-SXM2": "Tesla V100-SXM2-16GB", "V100-32GB-SXM2": "Tesla V100-SXM2-32GB", "V100-16GB-PCIe": "Tesla V100-PCIE-16GB",
}

// compute is what a type of machine is to RunPod: GPUs, as in "2x_RTX4090_SECURE", or
// CPUs, as in "cpu5c-4-8".
func compute(instanceType string) (gpu string, request map[string]any, err error) {
	if parts := strings.Split(instanceType, "-"); len(parts) == 3 && strings.HasPrefix(parts[0], "cpu") {
		n, err := strconv.Atoi(parts[1])
		return "", map[string]any{"cpu": map[string]any{"id": parts[0], "vcpuCount": n}, "cloud": "SECURE"}, err
	}
	gpu, count, tier, err := gpuOf(instanceType)
	return gpu, map[string]any{"gpu": map[string]any{"id": gpu, "count": count}, "cloud": tier}, err
}

func gpuOf(instanceType string) (id string, count int, tier string, err error) {
	parts := strings.Split(instanceType, "_")
	number, ok := strings.CutSuffix(parts[0], "x")
	count, nerr := strconv.Atoi(number)
	if len(parts) != 3 || !ok || nerr != nil || count < 1 || parts[2] != "SECURE" && parts[2] != "COMMUNITY" {
		return "", 0, "", fmt.Errorf("%q is no type of RunPod's pods, such as 1x_RTX4090_SECURE", instanceType)
	}
	name := parts[1]
	if id = gpus[name]; id != "" {
		return id, count, parts[2], nil
	}
	model, known := strings.CutPrefix(name, "RTX")
	switch {
	case !known:
		return "", 0, "", fmt.Errorf("RunPod has no GPU %q", name)
	case strings.HasSuffix(model, "-Ada"):
		id = "NVIDIA RTX " + strings.TrimSuffix(model, "-Ada") + " Ada Generation"
	case strings.HasPrefix(model, "A"):
		id = "NVIDIA RTX " + model
	default:
		model = strings.Replace(strings.Replace(model, "SUPER", " SUPER", 1), "Ti", " Ti", 1)
		id = "NVIDIA GeForce RTX " + model
	}
	return id, count, parts[2], nil
}

// region is the country of a data center: "CZ" of "EU-CZ-1", "US" of "US-KS-2".
func region(dataCenter string) string {
	parts := strings.Split(dataCenter, "-")
	if len(parts) == 3 && len(parts[1]) == 2 && parts[0] != "US" {
		return parts[1]
	}
	return parts[0]
}
