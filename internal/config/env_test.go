package config

import "testing"

func TestSwitches(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "true": true, "True": true, "TRUE": true, "0": false, "": false, "yes": false, "on": false, " true": false, "false": false} {
		lookup := func(string) (string, bool) { return value, true }
		if Debug.On(lookup) != want || MinimizeLogging.On(lookup) != want {
			t.Errorf("%q is %v", value, !want)
		}
	}
	unset := func(string) (string, bool) { return "", false }
	if Debug.On(unset) || MinimizeLogging.On(unset) || !AllIncludesInCluster.On(unset) {
		t.Error("defaults")
	}
}
