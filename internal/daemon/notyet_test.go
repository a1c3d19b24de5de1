//go:build unix

package daemon

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
)

// What the server announces that it cannot do, it refuses; what it does is not
// announced.
func TestWhatIsAnnouncedAsMissingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		for name, body := range map[string]any{
			"jobs.pool_apply": api.PoolApplyBody{PoolName: "p"}, "kubernetes_label_gpus": api.LabelGPUsBody{}, "recipes.get": api.RecipeBody{RecipeName: "r"},
		} {
			wants(t, name, b.do(requestNameOf(name), "", body, nil), "does not support")
		}
		if len(notYet) != 3 {
			t.Errorf("announced: %v", notYet)
		}
	})
}

func requestNameOf(name string) string {
	if strings.HasPrefix(name, "sky.") {
		return name
	}
	return "sky." + name
}
