package daemon

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/api"
)

// The administrator's policy knows which client asks.
func TestAPolicyKnowsTheVersionsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, `admin_policy: {cel: [{expr: 'request.client_api_version >= 53 && request.client_version.startsWith("0.")', message: Upgrade.}]}`+"\n")
		for _, c := range []struct {
			api     int
			version string
			refused bool
		}{{53, "0.12.0", false}, {52, "0.11.0", true}, {53, "1.0", true}} {
			body := api.DagBody{Dag: "run: x\nresources: {infra: fluffycloud}\n"}
			body.ClientAPIVersion, body.ClientVersion = &c.api, &c.version
			if err := b.do("sky.optimize", "", body, nil); (err != nil && strings.Contains(err.Error(), "Upgrade.")) != c.refused || !c.refused && err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}

// No way of writing a task hides it from the administrator's policy.
func TestAPolicySeesEveryTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, `admin_policy: {cel: [{expr: '!has(task.run) || task.run != "evil"', message: Not here.}]}`+"\n")
		for name, dag := range map[string]string{
			"as clients send it":        "name: x\n---\nrun: evil\n",
			"without a header":          "run: evil\n",
			"a task first":              "run: evil\n---\nrun: good\n",
			"after a space":             "name: x\n--- \nrun: evil\n",
			"after a tab":               "name: x\n---\t\nrun: evil\n",
			"after a comment":           "name: x\n--- # a comment\nrun: evil\n",
			"on the line of the dashes": "name: x\n--- {run: evil}\n",
			"after the end of another":  "name: x\n...\n---\nrun: evil\n",
			"in JSON":                   `{"run": "evil"}`,
			"by an anchor":              "name: x\n---\nname: &a evil\nrun: *a\n",
		} {
			for verb, body := range map[string]any{
				"sky.optimize": api.DagBody{Dag: dag}, "sky.launch": api.LaunchBody{Task: dag, ClusterName: "c", Dryrun: true}, "sky.jobs.launch": api.JobsLaunchBody{Task: dag},
			} {
				if err := b.do(verb, "", body, nil); err == nil || !strings.Contains(err.Error(), "Not here.") {
					t.Errorf("%s, %s: %v", verb, name, err)
				}
			}
		}
	})
}
