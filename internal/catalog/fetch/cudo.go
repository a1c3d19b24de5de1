package fetch

import (
	"context"
	"fmt"
	"strconv"
)

// Cudo fetches Cudo's machine types and prices a ladder of sizes of each.
type Cudo struct{ API }

var cudoNames = map[string]string{
	"H100 NVL": "H100", "H100 SXM": "H100-SXM", "L40S (compute mode)": "L40S", "L40S (graphics mode)": "L40S",
	"A40 (compute mode)": "A40", "A40 (graphics mode)": "A40", "RTX A4000": "RTXA4000", "RTX A4500": "RTXA4500", "RTX A5000": "RTXA5000", "RTX A6000": "RTXA6000",
	"A100 80GB PCIe": "A100", "A800 PCIe": "A800", "V100": "V100", "NVIDIA V100": "V100", "NVIDIA A40": "A40", "RTX 3080": "RTX3080",
}

var cudoMemoryGB = map[string]float64{"H100": 94, "H100-SXM": 80, "A100": 80, "A800": 80}

// cudoSizes are vCPUs, memory in GB and GPUs.
var cudoSizes = [][3]float64{{2, 4, 1}, {4, 8, 1}, {8, 16, 2}, {16, 32, 2}, {32, 64, 4}, {64, 128, 8}, {12, 24, 1}, {24, 48, 1}, {24, 48, 2}, {48, 96, 2}, {48, 96, 4}, {96, 192, 8}}

type cudoMoney struct{ Value string }

func (m cudoMoney) float() float64 {
	x, _ := strconv.ParseFloat(m.Value, 64)
	return x
}

// Rows asks GET /v1/vms/machine-types-2.
func (c Cudo) Rows(ctx context.Context) ([]Row, error) {
	var answer struct {
		MachineTypes []struct {
			DataCenter  string    `json:"dataCenterId"`
			MachineType string    `json:"machineType"`
			GPUModel    string    `json:"gpuModel"`
			VCPUPrice   cudoMoney `json:"vcpuPriceHr"`
			MemoryPrice cudoMoney `json:"memoryGibPriceHr"`
			GPUPrice    cudoMoney `json:"gpuPriceHr"`
			MinVCPUPer  float64   `json:"minVcpuPerGpu"`
			MaxVCPUPer  float64   `json:"maxVcpuPerGpu"`
		} `json:"machineTypes"`
	}
	if err := c.json(ctx, c.url("https://rest.compute.cudo.org", "/v1/vms/machine-types-2"), nil, &answer, c.bearer()...); err != nil {
		return nil, err
	}
	var rows []Row
	for _, m := range answer.MachineTypes {
		name := cudoNames[m.GPUModel]
		if m.GPUModel != "" && name == "" {
			name = m.GPUModel
		}
		for _, size := range cudoSizes {
			cpus, memory, gpus := size[0], size[1], size[2]
			if name == "" {
				gpus = 0
			} else if per := cpus / gpus; per < m.MinVCPUPer || m.MaxVCPUPer > 0 && per > m.MaxVCPUPer {
				continue
			}
			row := Row{InstanceType: fmt.Sprintf("%s_%vx%vv%vgb", m.MachineType, gpus, cpus, memory), Accelerator: name, Count: gpus, CPUs: cpus, MemoryGiB: memory,
				Price: m.VCPUPrice.float()*cpus + m.MemoryPrice.float()*memory + m.GPUPrice.float()*gpus, Spot: none, Region: m.DataCenter}
			row.DeviceMiB = cudoMemoryGB[name] * 1024
			if row.DeviceMiB == 0 {
				row.DeviceMiB = deviceMiB(name)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

var cudoSource = Source{"cudo", nil, func(env func(string) string) Fetcher {
	return Cudo{API{Token: env("CUDO_API_KEY")}}
}}
