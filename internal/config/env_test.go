package config

import (
	"maps"
	"testing"
)

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

func TestRequestVariables(t *testing.T) {
	environ := []string{
		"SKYPILOT_USER=ann", "SKYPILOT_USER_ID=1", "SKYPILOT_DEBUG=1", "SKYPILOT_X==a=b", "SKYPILOT_SERVER_PLUGINS_CONFIG=x",
		"SKYPILOT_GLOBAL_CONFIG=x", "SKYPILOT_PROJECT_CONFIG=x", "SKYPILOT_CONFIG=x", "SKYPILOT_DB_CONNECTION_URI=x",
		"AWS_PROFILE=p", "AWS_REGION=r", "KUBECONFIG=k", "HOME=/h", "broken",
	}
	want := map[string]string{"SKYPILOT_USER": "ann", "SKYPILOT_USER_ID": "1", "SKYPILOT_DEBUG": "1", "SKYPILOT_X": "=a=b"}
	if got := RequestVariables(environ, false); !maps.Equal(got, want) {
		t.Error("to a remote server:", got)
	}
	want["AWS_PROFILE"], want["KUBECONFIG"] = "p", "k"
	if got := RequestVariables(environ, true); !maps.Equal(got, want) {
		t.Error("to a local server:", got)
	}
}
