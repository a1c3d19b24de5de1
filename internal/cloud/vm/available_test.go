package vm

import (
	"errors"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestBid(t *testing.T) {
	for _, tt := range []struct {
		most, now, wanted, units float64
		want                     float64 // 0: the task allows no such price
	}{
		{0, 1.2, 1.8, 100, 1.8}, {2, 1.2, 1.8, 100, 1.8}, {1.5, 1.2, 1.8, 100, 1.5}, {1.2, 1.2, 1.8, 100, 1.2}, {0.29, 0.2, 0.3, 100, 0.29},
		{1.239, 1.2, 1.8, 100, 1.23}, {1.239, 1.235, 1.8, 100, 0}, {1.239, 1.235, 1.8, 1e6, 1.239}, {1.1, 1.2, 1.8, 100, 0},
		{1, 1.2, 0.9, 100, 0.9}, // what a user bids is the user's affair as long as it is within the bound
	} {
		o := cloud.Offer{Place: cloud.Place{Cloud: "mithril", Region: "r"}, InstanceType: "a100", MaxHourlyCost: tt.most}
		got, err := Bid("Mithril", o, tt.now, tt.wanted, tt.units)
		e, dearer := errors.AsType[*cloud.PriceError](err)
		if got != tt.want || (err != nil) != (tt.want == 0) || err != nil && (!dearer || e.Now != tt.now || e.Place != o.Place) {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

// TestRose: an offer is too dear by its plan or by its task, whose prices are rounded.
func TestRose(t *testing.T) {
	for _, tt := range []struct {
		planned, most, now float64
		want               string
	}{
		{1, 0, 1.004, ""}, {0, 1, 1.004, ""}, {0, 0, 9, ""}, {1, 2, 1, ""}, {2, 1, 0.9, ""},
		{1, 2, 1.5, "dearer in x/r: the price rose: on X a100 costs $1.5 an hour now, and $1 was planned with"},
		{0, 1, 1.5, "dearer in x/r: on X a100 costs $1.5 an hour now"},
	} {
		err := RoseLive("X", cloud.Offer{Place: cloud.Place{Cloud: "x", Region: "r"}, InstanceType: "a100", HourlyPrice: tt.planned, MaxHourlyCost: tt.most}, tt.now)
		if (err != nil) != (tt.want != "") || err != nil && err.Error() != tt.want {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
