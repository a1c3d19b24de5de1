package cli

import (
	"fmt"
	"slices"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestSpansThatOverlapAreOnThreadsOfTheirOwn(t *testing.T) {
	span := func(name string, from, to float64) api.Span {
		return api.Span{Name: name, Start: from, Took: to - from}
	}
	file := traceFile([]lane{
		{"sky", []api.Span{span("sky launch", 0, 10)}},
		{"request r", []api.Span{ // as they end
			span("attempt 1", 2, 4), span("attempt 2", 3, 5), span("machines", 2, 6), span("attempt 3", 5, 6), {Name: "launch", Start: 1, Took: 8, Failed: "*api.Error", About: map[string]string{"sky.user": "ann"}},
		}},
	})
	var got []string
	for _, e := range file.Events {
		if e.Phase == "X" {
			got = append(got, fmt.Sprintf("%d.%d %s %d+%d", e.Process, e.Thread, e.Name, e.Time/1e6, *e.Duration/1e6))
		}
	}
	want := []string{"1.1 sky launch 0+10", "2.1 launch 1+8", "2.1 machines 2+4", "2.1 attempt 1 2+2", "2.2 attempt 2 3+2", "2.1 attempt 3 5+1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if args := file.Events[3].Args; args["user"] != "ann" || args["failed"] != "*api.Error" {
		t.Errorf("%v", args)
	}
}
