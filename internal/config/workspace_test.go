package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestWorkspaces(t *testing.T) {
	c := server(t, `
allowed_clouds: [AWS, lambda]
workspaces:
  zoo: {}
  art: {private: true, allowed_users: [ann, 0123abcd], lambda: {disabled: true}}
`)
	var names []string
	for _, w := range c.Workspaces() {
		names = append(names, w.Name)
	}
	if len(names) != 3 || names[0] != "default" || names[1] != "art" || names[2] != "zoo" {
		t.Error("default comes first, the rest by name:", names)
	}
	art, ok := c.Workspace("art")
	if !ok || !art.Private || !art.Allows("", "ann") || !art.Allows("0123abcd", "bob") || art.Allows("", "") || art.Allows("x", "bob") {
		t.Errorf("%+v", art)
	}
	if zoo, _ := c.Workspace("zoo"); !zoo.Allows("x", "y") {
		t.Error("a workspace that is not private is for all")
	}
	if _, ok := c.Workspace("nope"); ok {
		t.Error("nope exists")
	}
	if _, ok := server(t, "").Workspace("default"); !ok {
		t.Error("default always exists")
	}

	for _, test := range []struct {
		workspace, cloud string
		ok               bool
	}{{"zoo", "aws", true}, {"zoo", "lambda", true}, {"art", "lambda", false}, {"art", "aws", true}, {"zoo", "gcp", false}} {
		ok, why := c.CloudUse(test.workspace, test.cloud)
		if ok != test.ok || ok != (why == "") {
			t.Errorf("%s in %s: %v %q", test.cloud, test.workspace, ok, why)
		}
	}
	if ok, _ := server(t, "").CloudUse("default", "gcp"); !ok {
		t.Error("without allowed_clouds all are")
	}
}

func TestActiveWorkspace(t *testing.T) {
	c := server(t, "workspaces: {team: {}}")
	if c.ActiveWorkspace() != "default" || c.ActiveWorkspaceGiven() {
		t.Error("nobody asked", c.ActiveWorkspace())
	}
	team, err := c.InWorkspace("team")
	if err != nil || team.ActiveWorkspace() != "team" || c.ActiveWorkspace() != "default" {
		t.Error(err, team.ActiveWorkspace())
	}
	_, err = c.InWorkspace("taem")
	wantErr(t, err, `the workspace "taem" does not exist`, "did you mean \"team\"?", "sky check")
}

func TestWhatACloudIsUsedFor(t *testing.T) {
	c := server(t, "aws: {capabilities: [storage]}\ngcp: {capabilities: [compute]}\nworkspaces: {lab: {aws: {capabilities: [compute, storage]}, gcp: {disabled: true}}}")
	for _, test := range []struct {
		workspace, cloud, use string
		ok                    bool
	}{
		{"default", "aws", Compute, false}, {"default", "aws", Storage, true}, {"default", "gcp", Compute, true}, {"default", "gcp", Storage, false},
		{"lab", "aws", Compute, true}, {"lab", "gcp", Compute, false}, {"default", "lambda", Compute, true},
	} {
		ok, why := c.CloudUseFor(test.workspace, test.cloud, test.use)
		if ok != test.ok || ok != (why == "") || !ok && test.workspace == "default" && !strings.Contains(why, test.use+" is not in "+test.cloud+".capabilities (") {
			t.Errorf("%+v: %v %q", test, ok, why)
		}
	}
}

func TestTheQueueOfASection(t *testing.T) {
	c := server(t, "kubernetes: {kueue: {local_queue_name: q, admission_timeout: 7}, context_configs: {east: {quota: {queue: e}}}}")
	for region, want := range map[string]map[string]any{"": {"local_queue_name": "q", "admission_timeout": 7}, "east": {"local_queue_name": "e", "admission_timeout": 7}} {
		if got := c.For(Scope{Cloud: "kubernetes", Region: region}).Section()["kueue"]; !reflect.DeepEqual(got, any(want)) {
			t.Errorf("in %q: %v, want %v", region, got, want)
		}
	}
}
