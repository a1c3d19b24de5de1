package fetch

import "testing"

func TestVerdaGPUs(t *testing.T) {
	for in, want := range map[string]string{
		"1V100.6V": "V100", "8H100.80S.176V": "H100", "1A100.40S.22V": "A100", "8A100.80S.176V": "A100-80GB", "1A100.22V": "A100-80GB", "2RTX6000ADA.20V": "RTX6000-Ada", "1A6000.10V": "RTXA6000",
		"1L40S.20V": "L40S", "8B200.240V": "B200", "1RTXPRO6000.30V": "RTXPRO6000", "CPU.4V.16G": "",
	} {
		if got := verdaGPU(in); got != want {
			t.Errorf("%s has %q, not %q", in, got, want)
		}
	}
}
