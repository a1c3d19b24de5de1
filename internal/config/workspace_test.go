package config

import "testing"

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
