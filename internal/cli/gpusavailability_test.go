package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// What a cloud says of its stock is shown with its age.
func TestStockIsShownWithItsAge(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for want, v := range map[string]api.Availability{
		"high, 5s ago": {Now: "available", Stock: "high", NowAt: now.Unix() - 5}, "available, 2m ago": {Now: "available", NowAt: now.Unix() - 120},
		"none, 0s ago": {Now: "none", NowAt: now.Unix()}, "unknown, 5s ago": {Now: "unknown", NowAt: now.Unix() - 5}, " -  ": {},
	} {
		v.Cloud, v.InstanceType, v.LastTry = "runpod", "1x_H100_SECURE", now.Add(-time.Hour).Unix()
		if text := availabilityText(plainTerm(), []api.Availability{v}, now); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
