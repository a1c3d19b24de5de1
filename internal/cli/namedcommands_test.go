package cli

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/test/commands"
)

// TestNamedCommandsExist: no hint, error or help text names a command or an option
// that does not exist, wherever in the sources it is written.
func TestNamedCommandsExist(t *testing.T) {
	count := 0
	err := commands.EachText("../..", func(at, text string) {
		for _, line := range strings.Split(text, "\n") {
			for _, c := range commands.Named(line) {
				count++
				if problem := notUnderstood(c, false); problem != "" && !strings.HasPrefix(problem, "flag needs an argument") {
					t.Errorf("%s: sky %s: %s", at, strings.Join(c, " "), problem)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Reference() {
		for line := range strings.Lines(d.Short + "\n" + d.Long) {
			for _, c := range commands.Named(line) {
				count++
				if problem := notUnderstood(c, false); problem != "" {
					t.Errorf("help of %s: sky %s: %s", d.Path, strings.Join(c, " "), problem)
				}
			}
		}
	}
	if count < 200 {
		t.Errorf("only %d commands were found in the sources", count)
	}
}
