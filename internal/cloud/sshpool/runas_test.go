//go:build unix

package sshpool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

func TestTheAccountOfASubmitter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		runAs    string
		accounts map[string]string
		by       Submitter
		want     string
		problem  string
	}{
		{"the login", "", nil, Submitter{Name: "ada"}, "", ""},
		{"the login, said", "login", map[string]string{"ada": "ada"}, Submitter{Name: "ada"}, "", ""},
		{"the user's name", "submitter", nil, Submitter{Name: "ada"}, "ada", ""},
		{"the login is the account", "submitter", nil, Submitter{Name: "pool"}, "pool", ""},
		{"listed", "submitter", map[string]string{"ada@example.com": "ada"}, Submitter{Name: "ada@example.com"}, "ada", ""},
		{"not listed", "submitter", map[string]string{"ada@example.com": "ada"}, Submitter{Name: "ada"}, "", "names none for ada"},
		{"an address is no account", "submitter", nil, Submitter{Name: "ada@example.com"}, "", "accounts: {ada@example.com: UNIX-ACCOUNT}"},
		{"root", "submitter", nil, Submitter{Name: "root"}, "", "as root"},
		{"an option of sudo", "submitter", nil, Submitter{Name: "-s"}, "", "cannot be a Unix account"},
		{"a number", "submitter", nil, Submitter{Name: "#0"}, "", "cannot be a Unix account"},
		{"a line end", "submitter", nil, Submitter{Name: "ada\n"}, "", "cannot be a Unix account"},
		{"a service account", "submitter", nil, Submitter{Name: "sa-1", Listed: true}, "", "names none for sa-1"},
		{"a service account that is listed", "submitter", map[string]string{"sa-1": "robot"}, Submitter{Name: "sa-1", Listed: true}, "robot", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := newRunAs(tt.runAs, tt.accounts)
			if err != nil {
				t.Fatal(err)
			}
			h := &host{pool: "rack", name: "h1", reach: cloud.Reach{User: "pool"}, runAs: r}
			got, err := h.account(tt.by)
			if got != tt.want || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for who, accounts := range map[string]map[string]string{"root": nil, "login": {"ada": "root"}, "submitter": {"ada": "ALL"}} {
		if _, err := newRunAs(who, accounts); err == nil {
			t.Errorf("run_as: %s, accounts: %v is taken", who, accounts)
		}
	}
}

func TestOnlyAccountsOfPeople(t *testing.T) {
	h := &host{name: "h1"}
	for said, problem := range map[string]string{
		"1000 Linux\n": "", "4321 Linux\n": "", "501 Darwin\n": "",
		"999 Linux\n": "account of the system", "0 Linux\n": "account of the system", "65534 Linux\n": "account of the system", "499 Darwin\n": "account of the system",
		" Linux\n": "useradd -m ada", "": "useradd -m ada",
	} {
		err := checkPerson(h, "ada", said)
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v", said, err)
		}
	}
}

func TestWhatAccountsSayAboutTheirNodes(t *testing.T) {
	of := func(account, dir string, ready bool) held {
		return held{dir: "/login/" + dir, node: "/login/" + dir, record: &record{RunAs: account}, ready: ready}
	}
	in := func(dir string, ready, leaving bool) held {
		return held{dir: "/ada/" + dir, record: &record{}, ready: ready, leaving: leaving}
	}
	boom := errors.New("boom")
	left, gone := joined(
		[]held{of("", "a", true), of("ada", "b", true), of("ada", "c", true), of("ada", "d", false), of("ada", "e", true), of("ada", "f", true), of("bob", "g", true)},
		map[string]*seen{"ada": {held: []held{in("b", true, false), in("e", true, true), in("f", false, false), in("unknown", true, false)}}, "bob": {err: boom}})
	var got []string
	for _, h := range left {
		got = append(got, fmt.Sprintf("%s node=%s ready=%v leaving=%v problem=%v", h.dir, h.node, h.ready, h.leaving, h.problem))
	}
	want := []string{
		"/login/a node=/login/a ready=true leaving=false problem=<nil>",
		"/login/b node=/ada/b ready=true leaving=false problem=<nil>",
		"/login/d node= ready=false leaving=false problem=<nil>",
		"/login/e node=/ada/e ready=true leaving=true problem=<nil>",
		"/login/f node=/ada/f ready=false leaving=false problem=<nil>",
		"/login/g node= ready=true leaving=false problem=boom",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(gone) != 1 || gone[0].dir != "/login/c" {
		t.Errorf("gone: %v", gone)
	}
}

// accounts is a pool of one host on which clusters run as their users' accounts: ada and
// bob, by a sudo and an id that only tests have.
type accounts struct {
	*fixture
	dir string // of the accounts' homes
}

const (
	testSudo = `#!/bin/sh
[ "$1 $2 $3 $5" = "-n -H -u --" ] || { echo "sudo: $*" >&2; exit 9; }
[ -e "%[1]s/$4.allowed" ] || { echo "sudo: a password is required" >&2; exit 1; }
HOME=%[1]s/$4 USER=$4; export HOME USER; unset SSH_CONNECTION; shift 5; exec "$@"
`
	testID = `#!/bin/sh
cat "%[1]s/$2.uid"
`
)

func withAccounts(t *testing.T) *accounts {
	t.Helper()
	f := setup(t, 1)
	a := &accounts{f, t.TempDir()}
	bin := t.TempDir()
	for name, text := range map[string]string{"sudo": testSudo, "id": testID} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(fmt.Sprintf(text, a.dir)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, uid := range map[string]string{"ada": "1001", "bob": "1002", "daemon": "1"} {
		if err := os.Mkdir(filepath.Join(a.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		a.write(name+".uid", uid)
		a.write(name+".allowed", "")
	}
	f.set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": bin + ":" + os.Getenv("PATH")} })
	pools := filepath.Join(f.home, ".sky", PoolsFile)
	text, err := os.ReadFile(pools)
	if err == nil {
		err = os.WriteFile(pools, []byte(strings.Replace(string(text), "  hosts:", "  run_as: submitter\n  hosts:", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.p.o.Submitter = func(_ context.Context, id string) (Submitter, error) {
		if name, ok := strings.CutPrefix(id, "id-of-"); ok {
			return Submitter{Name: name}, nil
		}
		return Submitter{}, errors.New("nobody knows " + id)
	}
	return a
}

func (a *accounts) write(name, text string) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// spec is a cluster of a user's, with a share of the host.
func (a *accounts) spec(user string, cpus string) cloud.LaunchSpec {
	s := a.fixture.spec(user, 1)
	s.UserID, s.Offer.InstanceType = "id-of-"+user, "share-"+cpus+"CPU--0.1GB"
	return s
}

// files are what is in the homes of the login and of the accounts.
func (a *accounts) files() []string {
	a.t.Helper()
	var out []string
	for _, home := range []string{a.hosts[0].Home, filepath.Join(a.dir, "ada"), filepath.Join(a.dir, "bob"), filepath.Join(a.dir, "daemon")} {
		filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
			if path != home {
				out = append(out, path)
			}
			return err
		})
	}
	return out
}

func (a *accounts) refused(spec cloud.LaunchSpec, says ...string) {
	a.t.Helper()
	_, err := a.p.Launch(a.t.Context(), spec)
	if err == nil {
		a.t.Fatal("it was launched")
	}
	if _, ok := errors.AsType[*cloud.InvalidError](err); !ok {
		a.t.Errorf("%T", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			a.t.Errorf("%q is missing in: %v", s, err)
		}
	}
}

func TestClustersRunAsTheirUsersAccounts(t *testing.T) {
	a := withAccounts(t)
	a.facts(size{cpus: 2, memoryGiB: 2})
	ada, bob := a.spec("ada", "1"), a.spec("bob", "1")
	nodes := a.launch(ada)
	if r := nodes[0].Reach; r.RunAs != "ada" || r.User != "tester" || !strings.HasPrefix(r.Home, filepath.Join(a.dir, "ada")+"/.sky/nodes/") || nodes[0].InternalIP == "" || nodes[0].About.UserID != "id-of-ada" {
		t.Errorf("%+v", nodes[0])
	}
	if info, err := os.Stat(nodes[0].Reach.Home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if s := folder.ShareOf(filepath.Dir(nodes[0].Reach.Home)); s == nil || s.CPUs != 1 {
		t.Errorf("the agent would not find its share: %v", s)
	}
	if again := a.launch(ada); again[0].ID != nodes[0].ID || again[0].Reach.Home != nodes[0].Reach.Home {
		t.Errorf("launched again it is %+v", again)
	}
	a.launch(bob)
	// All shares of a host are in one list, whoever has them.
	third := a.spec("ada", "1")
	third.ID.Name, third.ID.Hash = "third", "h-third"
	_, err := a.p.Launch(t.Context(), third)
	if _, full := errors.AsType[*cloud.CapacityError](err); !full || !strings.Contains(err.Error(), "cluster ada, cluster bob") {
		t.Errorf("a third cluster: %v", err)
	}
	list, err := a.elsewhere(t).Inspect(t.Context(), "mine")
	if err != nil || len(list) != 1 || len(list[0].Clusters) != 2 {
		t.Errorf("another installation sees %+v, %v", list, err)
	}
	for _, s := range []cloud.LaunchSpec{ada, bob} {
		if err := a.p.Terminate(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if left := a.files(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// facts sets what the host has.
func (a *accounts) facts(s size) {
	pools, err := a.p.pools()
	if err != nil {
		a.t.Fatal(err)
	}
	a.p.facts.put(pools[0].hosts[0], s)
}

// The login may be a user's own account: then no rule of sudo is needed.
func TestTheLoginIsTheUsersAccount(t *testing.T) {
	a := withAccounts(t)
	a.write("tester.uid", "1003")
	spec := a.spec("tester", "1")
	n := a.launch(spec)[0]
	if r := n.Reach; r.RunAs != "tester" || !strings.HasPrefix(r.Home, a.hosts[0].Home) {
		t.Errorf("%+v", r)
	}
	if again := a.launch(spec); len(again) != 1 || again[0].Reach.Home != n.Reach.Home {
		t.Errorf("%+v", again)
	}
	if err := a.p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if left := a.files(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWithoutAnAccountNothingIsClaimed(t *testing.T) {
	a := withAccounts(t)
	os.Remove(filepath.Join(a.dir, "ada.allowed"))
	a.refused(a.spec("ada", "1"), "127.0.0.1 does not let its login tester run commands as ada", "a password is required",
		"echo 'tester ALL=(ada) NOPASSWD: /bin/sh' | install -m 440 /dev/stdin /etc/sudoers.d/sky-ada")
	a.refused(a.spec("eve", "1"), "127.0.0.1 has no account eve", "useradd -m eve")
	a.refused(a.spec("daemon", "1"), "an account of the system on 127.0.0.1")
	a.refused(a.spec("root", "1"), "root")
	unknown := a.spec("ada", "1")
	unknown.UserID = "ada" // an id that the server does not vouch for
	a.refused(unknown, "nobody knows ada")
	a.p.o.Submitter = nil
	a.refused(a.spec("bob", "1"), "run_as: submitter")
	if left := a.files(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestANodeOfAnAccountThatGaveItselfBack(t *testing.T) {
	a := withAccounts(t)
	spec := a.spec("ada", "1")
	n := a.launch(spec)[0]
	dir := filepath.Dir(n.Reach.Home)
	if err := os.Rename(filepath.Join(dir, folder.Record), filepath.Join(dir, folder.Leaving)); err != nil {
		t.Fatal(err)
	}
	nodes, err := a.p.Nodes(t.Context(), spec.ID)
	if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone {
		t.Errorf("while it leaves: %+v, %v", nodes, err)
	}
	if err := os.RemoveAll(filepath.Join(a.dir, "ada", ".sky")); err != nil {
		t.Fatal(err)
	}
	if nodes, err := a.p.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 0 {
		t.Errorf("when it has left: %+v, %v", nodes, err)
	}
	if left := a.files(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Where an account cannot be asked any more its share stays taken, and others are not in
// the way of that.
func TestAnAccountThatIsNotAllowedAnyMore(t *testing.T) {
	a := withAccounts(t)
	a.facts(size{cpus: 2, memoryGiB: 2})
	ada, bob := a.spec("ada", "1.5"), a.spec("bob", "1")
	a.launch(ada)
	os.Remove(filepath.Join(a.dir, "ada.allowed"))
	if nodes, err := a.p.Nodes(t.Context(), ada.ID); err == nil || !strings.Contains(err.Error(), "NOPASSWD: /bin/sh") {
		t.Errorf("%v, %v", nodes, err)
	}
	if err := a.p.Terminate(t.Context(), ada.ID); err == nil || !strings.Contains(err.Error(), "sudoers.d/sky-ada") || !strings.Contains(err.Error(), "rm -r ") {
		t.Errorf("%v", err)
	}
	if _, err := a.p.Launch(t.Context(), ada); err == nil {
		t.Error("it was launched again")
	}
	if _, err := a.p.Launch(t.Context(), bob); err == nil || !strings.Contains(err.Error(), "has cluster ada") {
		t.Errorf("its share is not taken: %v", err)
	}
	bob = a.spec("bob", "0.5")
	a.launch(bob)
	if err := a.p.Terminate(t.Context(), bob.ID); err != nil {
		t.Error(err)
	}
	a.write("ada.allowed", "")
	if err := a.p.Terminate(t.Context(), ada.ID); err != nil {
		t.Error(err)
	}
	if left := a.files(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A claim may be cut off at each of its steps. It is made again, and can be given back.
func TestAClaimForAnAccountIsCutOff(t *testing.T) {
	for _, step := range []string{"listed", "folder", "record", "home"} {
		for _, then := range []string{"launch", "terminate"} {
			t.Run(step+", "+then, func(t *testing.T) {
				a := withAccounts(t)
				spec := a.spec("ada", "1")
				n := a.launch(spec)[0]
				node := filepath.Dir(n.Reach.Home)
				list, _ := filepath.Glob(filepath.Join(wholeDir(a.hosts[0])+".d", "*"))
				if len(list) != 1 || filepath.Base(list[0]) != filepath.Base(node) {
					t.Fatalf("%v, %s", list, node)
				}
				if err := os.Remove(filepath.Join(list[0], folder.Home)); err != nil {
					t.Fatal(err)
				}
				switch step {
				case "listed":
					os.RemoveAll(filepath.Join(a.dir, "ada", ".sky"))
				case "folder":
					os.RemoveAll(n.Reach.Home)
					os.Rename(filepath.Join(node, folder.Record), filepath.Join(node, ".claim"))
				case "record":
					os.RemoveAll(n.Reach.Home)
				}
				if then == "launch" {
					a.launch(spec)
				}
				if err := a.p.Terminate(t.Context(), spec.ID); err != nil {
					t.Fatal(err)
				}
				if left := a.files(); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

func TestPoolsSayWhoseAccountClustersRunAs(t *testing.T) {
	pools, err := parse([]byte("rack:\n  user: pool\n  run_as: submitter\n  accounts: {ada@example.com: ada}\n  hosts:\n  - 10.0.0.1\n  - {ip: 10.0.0.2, run_as: login}\n  - {ip: 10.0.0.3, accounts: {ada@example.com: countess}}\n"), "f", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range pools[0].hosts {
		account, err := h.account(Submitter{Name: "ada@example.com"})
		if err != nil {
			t.Error(err)
		}
		got = append(got, account)
	}
	if want := []string{"ada", "", "countess"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := parse([]byte("rack:\n  run_as: root\n  hosts: [10.0.0.1]\n"), "f", t.TempDir()); err == nil || !strings.Contains(err.Error(), "run_as: it is login or submitter") {
		t.Error(err)
	}
}
