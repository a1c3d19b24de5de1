package config

import (
	"strings"
	"testing"
)

// With these no launch works, so a check that says "no mistakes" is wrong.
func TestCheckFindsValuesWithWhichNothingIsLaunched(t *testing.T) {
	for text, want := range map[string]string{
		"admin_policy: my.module.Policy":                       `f:1:15: admin_policy: "my.module.Policy" names a Python class`,
		"admin_policy: https://policy.example.com":             "",
		"allowed_clouds: []":                                   "f:1:17: allowed_clouds: is empty",
		"allowed_clouds: [aws]":                                "",
		"active_workspace: Bad Name":                           `f:1:19: active_workspace: "Bad Name" cannot name a workspace`,
		"active_workspace: team-a":                             "",
		`api_server: {endpoint: "http://127.0.0.1:99999"}`:     "api_server.endpoint: has the port 99999",
		`api_server: {endpoint: "http://"}`:                    "api_server.endpoint: names no host",
		`api_server: {endpoint: "https://u:p@sky.example/x/"}`: "",
		`api_server: {endpoint: "http://[::1]:46580"}`:         "",
	} {
		_, err := Check(Client, []byte(text), "f")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
