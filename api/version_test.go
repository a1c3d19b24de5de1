package api

import (
	"runtime/debug"
	"testing"
)

func TestTheCommitOfABuild(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":      {{Key: "vcs.modified", Value: "true"}},
		"0123abc":      {{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "false"}},
		"0123ab-dirty": {{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123ab"}},
	} {
		if got := commitOf(&debug.BuildInfo{Settings: settings}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
