package workspaces

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/config"
)

func sample() All {
	return All{
		"default": {},
		"team":    {"private": true, "allowed_users": []any{"u1", "bob"}, "aws": map[string]any{"disabled": true}},
	}
}

func TestRules(t *testing.T) {
	mine := []Resource{{What: "cluster", Name: "c1", UserID: "u1", UserName: "ada"}}
	bobs := []Resource{{What: "managed job", Name: "7", UserID: "u2", UserName: "bob"}}
	admins := []Resource{{What: "cluster", Name: "root", UserID: "u9", UserName: "root", IsAdmin: true}}
	team := func(change map[string]any) map[string]any {
		m := map[string]any{"private": true, "allowed_users": []any{"u1", "bob"}, "aws": map[string]any{"disabled": true}}
		for k, v := range change {
			m[k] = v
		}
		return m
	}
	a := sample()
	for _, c := range []struct {
		what string
		err  error
		want string // "": allowed
	}{
		{"a new one", a.Create("research"), ""},
		{"one that is there", a.Create("team"), "exists already"},
		{"the default one", a.Create("default"), "exists already"},
		{"a bad name", a.Create("Team!"), "cannot be a workspace's name"},
		{"a long name", a.Create(strings.Repeat("a", 64)), "cannot be a workspace's name"},
		{"unknown", a.Update("nosuch", nil, nil), "there are: default, team"},
		{"anything, while empty", a.Update("team", map[string]any{}, nil), ""},
		{"a cloud, while in use", a.Update("team", team(map[string]any{"aws": map[string]any{}}), mine), "cluster c1 (ada)"},
		{"more users", a.Update("team", team(map[string]any{"allowed_users": []any{"u1", "bob", "u3"}}), mine), ""},
		{"opening it", a.Update("team", team(map[string]any{"private": false}), mine), ""},
		{"shutting out an owner", a.Update("team", team(map[string]any{"allowed_users": []any{"bob"}}), mine), "shut people out"},
		{"shutting out by name", a.Update("team", team(map[string]any{"allowed_users": []any{"u1"}}), bobs), "managed job 7 (bob)"},
		{"shutting out another", a.Update("team", team(map[string]any{"allowed_users": []any{"u1"}}), mine), ""},
		{"administrators stay", a.Update("team", team(map[string]any{"allowed_users": []any{}}), admins), ""},
		{"closing the default one", a.Update("default", map[string]any{"private": true}, mine), "shut people out"},
		{"deleting", a.Delete("team", nil), ""},
		{"deleting what is used", a.Delete("team", mine), "is not empty"},
		{"deleting the default one", a.Delete("default", nil), "always exists"},
		{"deleting nothing", a.Delete("nosuch", nil), "There is no workspace"},
	} {
		if (c.err == nil) != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.want)
		}
	}
}

func TestUsersComeAndGo(t *testing.T) {
	a := sample()
	next, err := a.AddUsers("team", []string{"u3", "u1"})
	if want := []any{"u1", "bob", "u3"}; err != nil || !reflect.DeepEqual(next["allowed_users"], want) {
		t.Errorf("added: %v %v", next, err)
	}
	next, err = a.RemoveUsers("team", []string{"u2"}, []string{"bob"})
	if want := []any{"u1"}; err != nil || !reflect.DeepEqual(next["allowed_users"], want) {
		t.Errorf("removed: %v %v", next, err)
	}
	if !reflect.DeepEqual(a, sample()) {
		t.Errorf("asking changed the workspaces: %v", a)
	}
	if _, err := a.AddUsers("default", []string{"u3"}); err == nil {
		t.Error("an open workspace got users")
	}
	if _, err := a.AddUsers("nosuch", nil); err == nil {
		t.Error("no workspace got users")
	}
}

// Whatever is changed about who may use a workspace: nobody who has something
// there and could use it before is shut out.
func TestNobodyIsShutOut(t *testing.T) {
	ids := []string{"u1", "u2", "u3"}
	rapid.Check(t, func(t *rapid.T) {
		settings := func(label string) map[string]any {
			users := []any{}
			for _, id := range ids {
				if rapid.Bool().Draw(t, label+id) {
					users = append(users, id)
				}
			}
			return map[string]any{"private": rapid.Bool().Draw(t, label), "allowed_users": users}
		}
		old, next := settings("old"), settings("next")
		var live []Resource
		for _, id := range ids {
			if rapid.Bool().Draw(t, "has "+id) {
				live = append(live, Resource{What: "cluster", Name: "of-" + id, UserID: id, UserName: id})
			}
		}
		if (All{"w": old, config.DefaultWorkspace: {}}).Update("w", next, live) != nil {
			return
		}
		for _, r := range live {
			if access("w", old).Allows(r.UserID, r.UserName) && !access("w", next).Allows(r.UserID, r.UserName) {
				t.Fatalf("%v is shut out: %v to %v", r, old, next)
			}
		}
	})
}
