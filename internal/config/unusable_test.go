package config

import (
	"strings"
	"testing"
)

// With these no launch works, so a check that says "no mistakes" is wrong.
func TestCheckFindsValuesWithWhichNothingIsLaunched(t *testing.T) {
	for text, want := range map[string]string{
		"admin_policy: my.module.Policy":                                  `f:1:15: admin_policy: "my.module.Policy" names a Python class`,
		"admin_policy: https://policy.example.com":                        "",
		"allowed_clouds: []":                                              "f:1:17: allowed_clouds: is empty",
		"allowed_clouds: [aws]":                                           "",
		"active_workspace: Bad Name":                                      `f:1:19: active_workspace: "Bad Name" cannot name a workspace`,
		"active_workspace: team-a":                                        "",
		`api_server: {endpoint: "http://127.0.0.1:99999"}`:                "api_server.endpoint: has the port 99999",
		`api_server: {endpoint: "http://"}`:                               "api_server.endpoint: names no host",
		`api_server: {endpoint: "https://u:p@sky.example/x/"}`:            "",
		"jobs: {controller: {resources: {cpus: x}}}":                      "f:1:39: jobs.controller.resources.cpus: should be a number of vCPUs",
		"serve: {controller: {resources: {memory: lots, cpus: 4+}}}":      "f:1:42: serve.controller.resources.memory: ",
		"jobs: {controller: {resources: {accelerators: 'A100:x'}}}":       "jobs.controller.resources.accelerators",
		"jobs: {controller: {resources: {any_of: [{disk_size: big}]}}}":   "jobs.controller.resources.any_of[0].disk_size: ",
		"jobs: {controller: {resources: {infra: nowhere/else}}}":          "jobs.controller.resources.infra: ",
		"serve: {controller: {resources: {disk_tier: fast, cpus: 4+}}}":   "serve.controller.resources.disk_tier: ",
		"jobs: {controller: {resources: {cpus: 4+, memory: 4x}}}":         "",
		"jobs: {controller: {resources: {disk_size: 50}, autostop: 10m}}": "",
		"serve: {controller: {autostop: {idle_minutes: 5, down: true}}}":  "",
		`api_server: {endpoint: "http://[::1]:46580"}`:                    "",
	} {
		_, err := Check(Client, []byte(text), "f")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
