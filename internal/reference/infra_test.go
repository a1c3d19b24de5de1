package reference

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cli"
	"github.com/skypilot-go/sky/internal/cloud/all"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// The examples of "sky check" name infrastructure that it can check.
func TestExamplesOfCheckNameWhatCanBeChecked(t *testing.T) {
	providers := all.Providers(all.Options{})
	checked := 0
	for _, d := range cli.Reference() {
		for line := range strings.Lines(d.Example) {
			words, ok := strings.CutPrefix(strings.TrimSpace(line), "sky check ")
			if !ok {
				continue
			}
			for _, w := range strings.Fields(words) {
				if strings.HasPrefix(w, "-") {
					continue
				}
				checked++
				if w == config.Compute || w == config.Storage {
					continue
				}
				in, err := task.ParseInfra(w)
				if _, ok := providers.Get(in.Cloud); err != nil || !ok {
					t.Errorf("%s: this version cannot rent from %s", strings.TrimSpace(line), w)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no example names infrastructure")
	}
}
