//go:build unix

package daemon

import (
	"os/user"
	"testing"
	"time"

	"github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWhoASubmitterIs(t *testing.T) {
	w := newTeam(t, teamConfig)
	own, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	users := w.d.store.Users()
	if _, err := w.as("uma").Users(t.Context()); err != nil { // she becomes known
		t.Fatal(err)
	}
	for _, u := range []state.User{
		{ID: "sa-0123456789abcdef", Name: "uma", Type: "sa", Role: "user"},
		{ID: "c0ffee00", Name: "uma", Role: "user"}, // as a client of a server without logins says
	} {
		if err := users.Create(t.Context(), u, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, id string
		logins   bool
		want     sshpool.Submitter
		problem  string
	}{
		{"somebody who logged in", auth.UserID("uma"), true, sshpool.Submitter{Name: "uma"}, ""},
		{"a service account that took the name", "sa-0123456789abcdef", true, sshpool.Submitter{Name: "sa-0123456789abcdef", Listed: true}, ""},
		{"a client that says the name", "c0ffee00", true, sshpool.Submitter{}, "no login has shown who the user c0ffee00 is"},
		{"nobody", "", true, sshpool.Submitter{}, "no login"},
		{"unknown", "deadbeef", true, sshpool.Submitter{}, "no login"},
		{"the owner of the server", w.d.self.ID, true, sshpool.Submitter{Name: own.Username}, ""},
		{"without logins, whatever the client says", "c0ffee00", false, sshpool.Submitter{Name: own.Username}, ""},
		{"without logins, nobody known", "", false, sshpool.Submitter{Name: own.Username}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &daemon{store: w.d.store, self: w.d.self, logins: tt.logins}
			got, err := d.submitter(t.Context(), tt.id)
			wants(t, tt.id, err, tt.problem)
			if got != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// An administrator may end what runs as another user's Unix account, and runs nothing there.
func TestNobodyElseRunsThingsAsAUsersAccount(t *testing.T) {
	w := newTeam(t, "rbac: {default_role: user}\n")
	w.write(sshpool.PoolsFile, "rack:\n  user: pool\n  hosts: [{ip: 127.0.0.1, port: 1}]\n")
	err := w.d.store.Clusters().Create(t.Context(), &state.Cluster{
		Name: "c", Hash: "c-hash", NameOnCloud: "c", Status: api.ClusterUp, UserHash: auth.UserID("uma"), UserName: "uma", Workspace: "default",
		Offer: cloud.Offer{Place: cloud.Place{Cloud: "ssh", Region: "ssh-rack"}}, NumNodes: 1, AutostopMinutes: -1, LaunchedAt: time.Now(), EverUp: true,
		Nodes: []cloud.Node{{ID: "rack-1", Reach: cloud.Reach{Method: "ssh", Host: "127.0.0.1", Port: 1, User: "pool", RunAs: "uma"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const refused = "runs as the Unix account uma"
	hook := "id"
	for _, who := range []struct{ name, words string }{{"ada", refused}, {"otto", "belongs to uma"}} {
		c := w.as(who.name)
		_, err := got[api.LaunchResult](w)(c.Exec(ctx, api.ExecBody{ClusterName: "c", Task: "run: id\n"}))
		wants(t, who.name+" runs a job", err, who.words)
		_, err = got[api.LaunchResult](w)(c.Launch(ctx, api.LaunchBody{ClusterName: "c", Task: "run: id\nresources: {infra: ssh/rack}\n"}))
		wants(t, who.name+" launches there", err, who.words)
		_, err = got[any](w)(c.Autostop(ctx, api.AutostopBody{ClusterName: "c", IdleMinutes: 5, Down: true, Hook: &hook}))
		wants(t, who.name+" leaves a hook", err, who.words)
		_, err = c.Shell(ctx, sky.ShellOptions{Cluster: "c", Command: "id"})
		wants(t, who.name+" opens a shell", err, who.words)
		_, err = c.SSH(ctx, "c", 0)
		wants(t, who.name+" uses ssh", err, who.words)
		_, err = c.Forward(ctx, "c", 0, "127.0.0.1", 22)
		wants(t, who.name+" forwards a port", err, who.words)
	}
	_, err = w.as("uma").Shell(ctx, sky.ShellOptions{Cluster: "c", Command: "id"})
	wants(t, "uma", err, "no agent was started yet")
}
