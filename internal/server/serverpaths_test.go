package server

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/requests"
)

// A folder of price lists is read on the server's machine: its owner alone may
// name one.
func TestOnlyTheMachinesOwnerNamesAFolderOfIt(t *testing.T) {
	verbs := func(env *testEnv) {
		env.verbs()
		env.engine.HandleRead("sky.optimize", func(context.Context, *requests.Call) (any, error) { return nil, nil })
	}
	local := newTestEnvOf(t, verbs)
	team := newTestEnvOf(t, verbs, people(t, map[string]string{"ann": "admin", "uma": "user", "vic": "viewer"}))
	for _, c := range []struct {
		name string
		w    *testEnv
		as   string
		head []string
		may  bool
	}{
		{"the owner", local, "", nil, true},
		{"from elsewhere", local, "", []string{"X-Forwarded-For", "10.0.0.1"}, false},
		{"a user", team, "uma", nil, false},
		{"an administrator", team, "ann", nil, false},
	} {
		c.w.as = c.as
		for path, body := range map[string]string{
			"/launch": `"task":"run: x","cluster_name":"c","dryrun":true`, "/optimize": `"dag":"run: x"`, "/validate": `"dag":"run: x"`,
		} {
			for _, dir := range []string{`,"catalog_dir":"/etc"`, `,"CATALOG_DIR":"/etc"`, `,"catalog_dir":""`, ``} {
				want := 200
				if !c.may && strings.Contains(dir, "/etc") {
					want = 403
				}
				if r := c.w.call(post, path, "{"+body+dir+"}", c.head...); r.status != want {
					t.Errorf("%s %s %s: %d %s", c.name, path, dir, r.status, r.body)
				}
			}
		}
	}
	team.as = "vic"
	if r := team.call(post, "/validate", `{"dag":"run: x","catalog_dir":"/etc"}`); r.status != 403 {
		t.Errorf("a viewer: %d %s", r.status, r.body)
	}
}

// pathFields are the fields of bodies that sound like paths, and why no one of
// them lets the server open a path of its machine for a caller.
var pathFields = map[string]string{
	"catalog_dir":                   "refused for all but the machine's owner: Server.ownPaths",
	"folder_paths":                  "below the caller's gathered logs, by os.Root",
	"local_dir":                     "of the client; the server does not read it",
	"override_skypilot_config_path": "of the client; the server does not read it",
	"file_mounts_blob_id":           "an upload of the caller's",
}

func TestBodiesNameNoPathsOfTheServer(t *testing.T) {
	soundsSo := regexp.MustCompile(`path|dir|file|folder|home|mount|socket`)
	found := map[string]bool{}
	for _, rt := range Routes() {
		if rt.Body == nil || rt.Body.of.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(rt.Body.of) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !soundsSo.MatchString(name) {
				continue
			}
			found[name] = true
			if pathFields[name] == "" {
				t.Errorf("%s %s takes %s: may it name a path of the server?", rt.Method, rt.Path, name)
			}
		}
	}
	for name := range pathFields {
		if !found[name] {
			t.Errorf("no body has %s", name)
		}
	}
}

// Two spellings of a key cannot make the checks look at one value and the work at
// the other.
func TestABodyMeansOneThing(t *testing.T) {
	env := newTestEnv(t, people(t, map[string]string{"uma": "user", "otto": "user"}))
	env.ownCluster("umas", "uma")
	env.ownCluster("ottos", "otto")
	env.as = "otto"
	for _, body := range []string{
		`{"cluster_name":"umas","Cluster_Name":"ottos"}`, `{"Cluster_Name":"ottos","cluster_name":"umas"}`,
		`{"cluster_name":"umas","clu\u017fter_name":"ottos"}`, // a long s is an s
	} {
		r := env.call(post, "/down", body)
		if r.status == 422 {
			continue
		}
		q, err := env.store.Requests().Get(t.Context(), r.id())
		if err != nil {
			t.Fatalf("%s: %d %s, %v", body, r.status, r.body, err)
		}
		t.Errorf("otto's call about %s is run with %s", q.ClusterName, q.Body)
	}
	if r := env.call(post, "/down", `{"cluster_name":"ottos","purge":true}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}
