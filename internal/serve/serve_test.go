//go:build unix

package serve_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// sent is a task file as clients send it.
func sent(t *testing.T, text string) string {
	t.Helper()
	dag, err := task.Parse("service.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := dag.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAServiceComesUpAndGoes(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		s := i.until("ready", ready(2))
		if s.Status != string(api.ServiceReady) || *s.Endpoint != fmt.Sprint("http://127.0.0.1:", *s.Port) || *s.TargetReplicas != 2 || s.Replicas[0].Endpoint == nil {
			t.Errorf("it is %+v", s)
		}
		i.WantMachines("chat-1 running", "chat-2 running")
		if got := i.table().Services; len(got) != 1 || got[0].Port != *s.Port || readyIn(i.table()) != 2 {
			t.Errorf("balancers have %+v", got)
		}
		if err := i.down(false); err != nil {
			t.Fatal(err)
		}
		i.WantNothingLeft("chat-1")
		if len(i.table().Services) != 0 {
			t.Errorf("balancers still have %+v", i.table().Services)
		}
		if left, _ := filepath.Glob(filepath.Join(i.dir, "services", "*")); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
	})
}

// Wherever the server dies while a service comes up, the next one goes on: in the end
// there are the machines that were asked for, and none when it has ended.
func TestACrashWhileAServiceComesUp(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, halfSteps int) bool {
		i := install(t).serve(halfSteps)
		r := testbed.NewRequest()
		body := api.ServeUpBody{Task: sent(t, service), ServiceName: "chat"}
		_, err := i.m.Up(i.s.Context(), i.s.Call(r), body)
		for range 60 {
			if i.s.Dead() {
				break
			}
			time.Sleep(time.Second)
		}
		died := i.s.Dead()
		if died {
			i.serve(-1)
			_, err = i.m.Up(i.s.Context(), i.s.Call(r), body) // the request is resumed
		}
		if err != nil {
			t.Fatal(err)
		}
		if !died {
			i.serve(-1) // what comes is another test's
		}
		i.until("ready", ready(2))
		if got := i.Machines(); len(got) != 2 {
			t.Errorf("machines: %q", got)
		}
		if err := i.down(false); err != nil {
			t.Fatal(err)
		}
		i.WantNothingLeft("chat-1")
		i.crash()
		return died
	})
}

// Wherever the server dies while a service is ended, nothing is left.
func TestACrashWhileAServiceEnds(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, halfSteps int) bool {
		i := install(t).serve(-1)
		i.up(service)
		i.until("ready", ready(2))
		i.serve(halfSteps)
		_ = i.down(false)
		died := i.s.Dead()
		if died {
			i.serve(-1)
			if err := i.down(false); err != nil && i.service() != nil {
				t.Fatal(err)
			}
		}
		i.until("gone", none)
		i.WantNothingLeft("chat-1")
		i.crash()
		return died
	})
}

func TestReplicasThatAreLostAreReplaced(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(strings.Replace(service, "cpus: 2", "cpus: 2\n  use_spot: true", 1))
		i.until("ready", ready(2))
		for _, m := range i.Cloud.Machines() {
			if strings.HasPrefix(m.Name, "chat-1-") {
				if err := i.Cloud.Kill(m.ID, ""); err != nil {
					t.Fatal(err)
				}
				i.Node(m.ID) // its agent ends with it
			}
		}
		i.until("without the first", func(s *api.Service) bool { return ready(2)(s) && s.Replicas[0].ID == 2 && s.Replicas[1].ID == 3 })
		i.WantMachines("chat-2 running", "chat-3 running")
		if !strings.Contains(i.log(), "spot machine was taken away") {
			t.Errorf("the controller says\n%s", i.log())
		}
	})
}

// A version that never becomes ready never replaces one that is.
func TestAVersionThatDoesNotWorkReplacesNothing(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		i.countReady(2)
		i.update(strings.Replace(service, "sleep 10000h", "exit 3", 1), "rolling")
		s := i.until("seen to fail", func(s *api.Service) bool {
			return strings.Contains(strings.Join(s.Why, " "), "is not launched again")
		})
		if s.Status != string(api.ServiceReady) || i.fewestReady() < 2 {
			t.Errorf("it is %s and had %d ready", s.Status, i.fewestReady())
		}
		if log := i.log(); !strings.Contains(log, "exit code 3") {
			t.Errorf("the controller says\n%s", log)
		}
		i.update(strings.Replace(service, "sleep 10000h", "sleep 9999h", 1), "rolling")
		i.until("mended", func(s *api.Service) bool { return len(s.ActiveVersions) == 1 && s.ActiveVersions[0] == 3 })
		if i.fewestReady() < 2 {
			t.Errorf("only %d were ready", i.fewestReady())
		}
	})
}

func TestUpdatesKeepEnoughReady(t *testing.T) {
	for _, mode := range []string{"rolling", "blue_green"} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(i *installation) {
				i.up(service)
				i.until("ready", ready(2))
				i.countReady(2)
				i.update(strings.Replace(service, "sleep 10000h", "sleep 9999h", 1), mode)
				s := i.until("of version 2", func(s *api.Service) bool {
					return ready(2)(s) && s.Replicas[0].Version == 2 && s.Replicas[1].Version == 2
				})
				if i.fewestReady() < 2 || *s.Version != 2 {
					t.Errorf("only %d were ready on the way to version %d", i.fewestReady(), *s.Version)
				}
				i.WantMachines("chat-3 running", "chat-4 running")
				i.until("without the old version", func(*api.Service) bool {
					row, err := i.Store.Services().Get(i.s.Context(), "chat")
					if err != nil {
						return false
					}
					all, err := i.Store.Services().Load(i.s.Context(), row.Hash)
					return err == nil && len(all.Versions) == 1 && all.Versions[0].Number == 2
				})
				i.update(strings.Replace(service, "sleep 10000h", "sleep 9998h", 1), mode)
				i.until("of version 3", func(s *api.Service) bool { return ready(2)(s) && *s.Version == 3 && s.Replicas[0].Version == 3 })
			})
		})
	}
}

func TestACanaryIsPromotedOrRolledBack(t *testing.T) {
	for asked, want := range map[state.ServiceAsked]int{state.AskedPromote: 2, state.AskedRollback: 1} {
		t.Run(string(asked), func(t *testing.T) {
			bubble(t, func(i *installation) {
				i.up(service)
				i.until("ready", ready(2))
				i.update(strings.NewReplacer("sleep 10000h", "sleep 9999h", "  replicas: 2\n", "  replicas: 2\n  load_balancing_policy: round_robin\n").Replace(service), "canary")
				i.until("beside the old version", func(s *api.Service) bool { return len(s.ActiveVersions) == 2 })
				time.Sleep(10 * time.Minute) // it waits for somebody
				if s := i.service(); len(s.ActiveVersions) != 2 || len(s.Replicas) != 3 {
					t.Errorf("the canary did not stay: %+v", s)
				}
				weights := map[int]float64{}
				for _, v := range i.table().Services[0].Versions {
					weights[v.Version] = v.Weight
				}
				if weights[1] != 90 || weights[2] != 10 {
					t.Errorf("the weights are %v", weights)
				}
				if err := i.m.Turn(i.s.Context(), i.call(), "chat", asked); err != nil {
					t.Fatal(err)
				}
				i.until("decided", func(s *api.Service) bool {
					return ready(2)(s) && s.Replicas[0].Version == want && s.Replicas[1].Version == want
				})
				if err := i.m.Turn(i.s.Context(), i.call(), "chat", asked); err == nil {
					t.Error("it can be decided twice")
				}
				policies := map[int]string{1: balancerapi.LeastLoad, 2: balancerapi.RoundRobin}
				if got := i.table().Services[0].Policy.Name; got != policies[want] {
					t.Errorf("version %d is served by %s", want, got)
				}
			})
		})
	}
}

// A program that loads a model fails its probes until it is ready: that says nothing
// against its version. What fails afterwards does.
func TestACanaryMayTakeItsTimeToStart(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		i.answer(func(replica string) int {
			if replica == "chat-3" {
				return 503
			}
			return 200
		})
		i.update(strings.Replace(service, "sleep 10000h", "sleep 9999h", 1), "canary")
		i.until("started", func(s *api.Service) bool {
			return len(s.Replicas) == 3 && s.Replicas[2].Status == string(api.ReplicaStarting)
		})
		time.Sleep(time.Minute) // several probes
		i.answer(func(string) int { return 200 })
		i.until("ready", func(s *api.Service) bool { return len(s.ActiveVersions) == 2 && readyIn(i.table()) == 3 })
		time.Sleep(10 * time.Minute)
		if s := i.service(); len(s.ActiveVersions) != 2 || len(s.Replicas) != 3 {
			t.Fatalf("it did not stay: %+v\n%s", s, i.log())
		}
		i.answer(func(replica string) int {
			if replica == "chat-3" {
				return 503
			}
			return 200
		})
		i.until("rolled back", func(s *api.Service) bool {
			return ready(2)(s) && s.Replicas[0].Version == 1 && s.Replicas[1].Version == 1
		})
	})
}

func TestProbesDecideWhoGetsRequests(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		i.answer(func(replica string) int {
			if replica == "chat-2" {
				return 503
			}
			return 200
		})
		i.until("half ready", func(s *api.Service) bool { return s.Replicas[1].Status == string(api.ReplicaNotReady) })
		if got := i.table().Services[0].Replicas; readyIn(i.table()) != 1 || got[0].ID != 1 {
			t.Errorf("balancers have %+v", got)
		}
		i.until("replaced", func(s *api.Service) bool { return ready(1)(s) || len(s.Replicas) > 2 })
		i.answer(func(string) int { return 200 })
		i.until("ready again", func(s *api.Service) bool { return readyIn(i.table()) == 2 && s.Replicas[len(s.Replicas)-1].ID == 3 })
		if !strings.Contains(i.log(), "probes failed for too long") {
			t.Errorf("the controller says\n%s", i.log())
		}
	})
}

// A balancer has the new table within 200 ms of the answer that changed it. Time is
// virtual here: what is counted is waiting, not work.
func TestTablesFollowTheAnswersOfProbes(t *testing.T) {
	bubble(t, func(i *installation) {
		var mu sync.Mutex
		code, last := 200, map[int]time.Time{} // when chat-2 first answered so
		i.answer(func(replica string) int {
			if replica != "chat-2" {
				return 200
			}
			mu.Lock()
			defer mu.Unlock()
			if last[code].IsZero() {
				last[code] = time.Now()
			}
			return code
		})
		i.up(service)
		i.until("ready", ready(2))
		for _, next := range []struct{ code, ready int }{{503, 1}, {200, 2}} {
			mu.Lock()
			code = next.code
			delete(last, code)
			mu.Unlock()
			for limit := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Millisecond) {
				got := readyIn(i.table())
				if got == next.ready {
					break
				}
				if time.Now().After(limit) {
					t.Fatalf("the table has %d ready replicas 10 min after the answer became %d", got, next.code)
				}
			}
			mu.Lock()
			took := time.Since(last[next.code])
			mu.Unlock()
			if took > 200*time.Millisecond {
				t.Errorf("the table has %d ready replicas %v after the answer %d", next.ready, took, next.code)
			}
		}
	})
}

func TestAReplicaThatIsNeverReadyGoes(t *testing.T) {
	bubble(t, func(i *installation) {
		i.answer(func(string) int { return 0 })
		i.up(service)
		s := i.until("failed", func(s *api.Service) bool { return s.Status == string(api.ServiceFailed) })
		i.until("without machines", func(*api.Service) bool { return len(i.Machines()) == 0 })
		if !strings.Contains(s.Replicas[0].Reason, "did not get ready in time") {
			t.Errorf("its reason is %q", s.Replicas[0].Reason)
		}
		time.Sleep(time.Hour)
		i.WantMachines() // it is not tried for ever
		i.answer(func(string) int { return 200 })
		i.update(strings.Replace(service, "sleep 10000h", "sleep 9999h", 1), "rolling")
		i.until("mended", func(s *api.Service) bool { return readyIn(i.table()) == 2 })
	})
}

func TestWhatCannotBeGivenBackIsShownAndPurged(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		i.Inject(model.Fault{Kind: model.Fail, Op: "instances.terminate", Code: "internal"})
		if err := i.down(false); err == nil || !strings.Contains(err.Error(), "could not be given back") {
			t.Errorf("down says %v", err)
		}
		if s := i.service(); s.Status != string(api.ServiceFailedCleanup) || !strings.Contains(s.Replicas[0].Reason, "could not be given back") {
			t.Errorf("it is %s, its first replica %+v", s.Status, s.Replicas[0])
		}
		r := testbed.NewRequest()
		if err := i.m.Down(i.s.Context(), i.s.Call(r), api.ServeDownBody{ServiceNames: []string{"chat"}, Purge: true}); err != nil {
			t.Errorf("purge says %v", err)
		}
		for _, name := range []string{"chat-1", "chat-2"} {
			if said := r.Out.String(); !strings.Contains(said, "The machines of cluster "+name+" could not be given back") || !strings.Contains(said, "They may still run and cost money.") {
				t.Errorf("of %s purge says\n%s", name, said)
			}
			if c := i.Cluster(name); c != nil { // or nothing would look for its machines
				t.Errorf("the record of %s is kept: %+v", name, c)
			}
		}
		i.until("gone", none)
		if err := i.m.Down(i.s.Context(), i.s.Call(r), api.ServeDownBody{ServiceNames: []string{"chat"}, Purge: true}); err != nil {
			t.Errorf("resumed after a crash, it says %v", err)
		}
	})
}

// What could not be given back is tried again, and what the replica failed of stays known.
func TestWhatCannotBeGivenBackIsTriedAgain(t *testing.T) {
	for _, asked := range []bool{false, true} {
		bubble(t, func(i *installation) {
			i.up(service)
			i.until("ready", ready(2))
			i.Inject(model.Fault{ID: "stuck", Kind: model.Fail, Op: "instances.terminate", Code: "internal"})
			i.answer(func(replica string) int {
				if replica == "chat-1" {
					return 503
				}
				return 200
			})
			is := func(status api.ReplicaStatus) func(*api.Service) bool {
				return func(s *api.Service) bool {
					return len(s.Replicas) == 3 && s.Replicas[0].Status == string(status)
				}
			}
			s := i.until("not given back", is(api.ReplicaFailedCleanup))
			if why := s.Replicas[0].Reason; !strings.Contains(why, "probes failed for too long") || !strings.Contains(why, "could not be given back") {
				t.Errorf("its reason is %q", why)
			}
			time.Sleep(20 * time.Minute) // an hour idle, and the machine ends itself
			i.crash()                    // a server that takes over tries, too
			i.serve(-1)
			time.Sleep(20 * time.Minute)
			i.until("still not given back", is(api.ReplicaFailedCleanup))
			i.Cloud.Remove("stuck")
			begun, limit := time.Now(), 5*time.Minute
			if asked {
				limit = 10 * time.Second
				if err := i.m.TerminateReplica(i.s.Context(), i.call(), api.ServeTerminateReplicaBody{ServiceName: "chat", ReplicaID: 1}); err != nil {
					t.Fatal(err)
				}
			}
			s = i.until("given back", func(s *api.Service) bool { return asked && ready(2)(s) || is(api.ReplicaFailedProbing)(s) })
			if took := time.Since(begun); took > limit {
				t.Errorf("that took %v", took)
			}
			if why := s.Replicas[0].Reason; strings.Contains(why, "given back") {
				t.Errorf("its reason is %q", why)
			}
			i.WantMachines("chat-2 running", "chat-3 running")
		})
	}
}

func TestAUserEndsAReplica(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		if err := i.m.TerminateReplica(i.s.Context(), i.call(), api.ServeTerminateReplicaBody{ServiceName: "chat", ReplicaID: 9}); err == nil {
			t.Error("a replica that is not there was ended")
		}
		if err := i.m.TerminateReplica(i.s.Context(), i.call(), api.ServeTerminateReplicaBody{ServiceName: "chat", ReplicaID: 1}); err != nil {
			t.Fatal(err)
		}
		i.until("replaced", func(s *api.Service) bool { return ready(2)(s) && s.Replicas[0].ID == 2 && s.Replicas[1].ID == 3 })
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		for what, c := range map[string]struct{ name, text, want string }{
			"a name that is taken": {"chat", service, "is already running"},
			"a name that is none":  {"9", service, "cannot name"},
			"no program":           {"other", strings.Replace(service, "run: |\n  sleep 10000h\n", "", 1), "needs a run command"},
		} {
			_, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(t, c.text), ServiceName: c.name})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		var refused *api.Error
		if _, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(t, service), ServiceName: "chat"}); !errors.As(err, &refused) || !strings.Contains(refused.Hint, "sky serve update chat") {
			t.Errorf("a name that is taken does not lead to update: %+v", refused)
		}
		if err := i.m.Update(i.s.Context(), i.call(), api.ServeUpdateBody{Task: sent(t, service), ServiceName: "chatt"}); err == nil || !strings.Contains(err.Error(), "no service") {
			t.Errorf("update of another: %v", err)
		}
		if err := i.m.Update(i.s.Context(), i.call(), api.ServeUpdateBody{Task: sent(t, service), ServiceName: "chat", Mode: "odd"}); err == nil {
			t.Error("an odd mode is taken")
		}
		if err := i.m.Turn(i.s.Context(), i.call(), "chat", state.AskedPromote); err == nil {
			t.Error("nothing was promoted")
		}
		if err := i.down(false); err != nil {
			t.Fatal(err)
		}
		if err := i.down(false); err == nil {
			t.Error("it was ended twice")
		}
	})
}

// The balancer and the probes are everybody's, and the server's files are nobody's.
func TestAServiceTakesNotTooMuchOfTheServer(t *testing.T) {
	bubble(t, func(i *installation) {
		for add, want := range map[string]string{
			"load_balancer: {queue: {max_bytes: 1000000000000}}": "queue.max_bytes",
			"load_balancer: {queue: {max_requests: 100000}}":     "queue.max_requests",
			"load_balancer: {max_header_bytes: 1000000000}":      "max_header_bytes",
			"tls: {keyfile: /etc/key, certfile: /etc/cert}":      "only its administrators",
		} {
			call := i.call()
			call.Scope = &state.Scope{Workspaces: []string{"default"}}
			text := sent(t, strings.Replace(service, "  ports: 8080\n", "  ports: 8080\n  "+add+"\n", 1))
			if _, err := i.m.Up(i.s.Context(), call, api.ServeUpBody{Task: text, ServiceName: "chat"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", add, err)
			}
		}
		fast := sent(t, strings.Replace(service, "path: /,", "path: /, endpoint_probe_interval_seconds: 0.0001,", 1))
		if _, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: fast, ServiceName: "chat"}); err == nil || !strings.Contains(err.Error(), "apart") {
			t.Errorf("probes without a pause: %v", err)
		}
		i.up(service)
		call := i.call()
		call.Scope = &state.Scope{Workspaces: []string{"default"}}
		text := sent(t, strings.Replace(service, "  ports: 8080\n", "  ports: 8080\n  tls: {keyfile: /k, certfile: /c}\n", 1))
		if err := i.m.Update(i.s.Context(), call, api.ServeUpdateBody{Task: text, ServiceName: "chat"}); err == nil || !strings.Contains(err.Error(), "only its administrators") {
			t.Errorf("an update: %v", err)
		}
	})
}

// A certificate that was uploaded goes to the balancers with the table, also where
// people log in; another one replaces no replica.
func TestACertificateComesWithTheTask(t *testing.T) {
	bubble(t, func(i *installation) {
		dir := t.TempDir()
		call := func() cluster.Call {
			call := i.call()
			call.Scope, call.Files = &state.Scope{Workspaces: []string{"default"}}, upload.In(dir)
			return call
		}
		certify := func(name string) {
			t.Helper()
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
			der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			for file, block := range map[string]*pem.Block{"c": {Type: "CERTIFICATE", Bytes: der}, "k": {Type: "PRIVATE KEY", Bytes: raw}} {
				if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		text := sent(t, strings.Replace(service, "  ports: 8080\n", "  ports: 8080\n  tls: {keyfile: /my/key, certfile: /my/cert}\n", 1)+"\nfile_mounts_mapping: {/my/key: k, /my/cert: c}\n")
		certify("one")
		if _, err := i.m.Up(i.s.Context(), call(), api.ServeUpBody{Task: text, ServiceName: "chat"}); err != nil {
			t.Fatal(err)
		}
		served := func() string {
			c := i.table().Services[0].TLS
			pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
			if err != nil {
				return fmt.Sprintf("%+v: %v", c, err)
			}
			return pair.Leaf.Subject.CommonName
		}
		i.until("ready", ready(2))
		if got := served(); got != "one" {
			t.Errorf("balancers have %s", got)
		}
		certify("two")
		if err := i.m.Update(i.s.Context(), call(), api.ServeUpdateBody{Task: text, ServiceName: "chat"}); err != nil {
			t.Fatal(err)
		}
		s := i.until("of version 2", func(s *api.Service) bool { return ready(2)(s) && s.Replicas[1].Version == 2 })
		if got := served(); got != "two" || s.Replicas[1].ID != 2 {
			t.Errorf("balancers have %s; replicas are %+v", got, s.Replicas)
		}
		if err := os.WriteFile(filepath.Join(dir, "k"), []byte("none"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := i.m.Update(i.s.Context(), call(), api.ServeUpdateBody{Task: text, ServiceName: "chat"}); err == nil || !strings.Contains(err.Error(), "no certificate") {
			t.Errorf("a broken key: %v", err)
		}
	})
}

// A server that takes over leaves balancers time to learn what the one before decided.
func TestReplicasStayUntilBalancersCanKnow(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(service)
		i.until("ready", ready(2))
		i.update(strings.Replace(service, "sleep 10000h", "sleep 9999h", 1), "blue_green")
		i.until("drained", func(s *api.Service) bool { return s.Replicas[0].Status == string(api.ReplicaShuttingDown) })
		i.crash()
		time.Sleep(10 * time.Minute) // longer than replicas drain
		i.serve(-1)
		for range 4 {
			if n := len(i.Machines()); n < 4 {
				t.Errorf("%d machines are left before balancers can know", n)
			}
			time.Sleep(time.Second)
		}
		i.until("gone", ready(2))
	})
}

// Balancers take 0 for their default; a user's 0 means none.
func TestNoneIsNotTheDefault(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(strings.Replace(service, "  replicas: 2\n", "  drain_seconds: 0\n  load_balancer: {stream_timeout_seconds: 7, idle_timeout_seconds: 0, slow_start_seconds: 0, keep_alive_seconds: 0, eject: {failures: 0}, queue: {max_requests: 0, max_bytes: 0, max_wait_seconds: 0}}\n  replica_policy: {min_replicas: 0, max_replicas: 2, target_qps_per_replica: 10}\n", 1))
		time.Sleep(5 * time.Second)
		s := i.table().Services[0]
		if s.Drain >= 0 || s.Queue.Wait || s.Queue.Bytes != 1 || s.Limits.IdleTimeout != 7 || s.Limits.ClientKeepAlive >= 0 ||
			s.Queue.Requests >= 0 || s.Queue.Timeout >= 0 || s.Eject.Failures >= 0 || s.SlowStart >= 0 || s.Limits.KeepAlive >= 0 {
			t.Errorf("balancers have %+v", s)
		}
	})
}

// Every setting of the task's load balancer reaches balancers.
func TestBalancersGetTheSettings(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(strings.Replace(service, "  replicas: 2\n", `  replicas: 2
  load_balancing_policy: prefix_aware
  load_balancer:
    stream_timeout_seconds: 1
    request_timeout_seconds: 2
    idle_timeout_seconds: 3
    keep_alive_seconds: 4
    slow_start_seconds: 5
    retry_after_seconds: 6
    max_header_bytes: 7
    max_body_bytes: 8
    max_requests_per_replica: 9
    attempts: 10
    queue: {max_requests: 11, max_bytes: 12, max_wait_seconds: 13}
    eject: {failures: 14, first_seconds: 15, max_seconds: 16, max_percent: 17}
    prefix_load_factor: 18
    metrics: /m
    replica_protocol: h2c
    trust_forwarded: true
`, 1))
		i.until("ready", ready(2))
		got := i.table().Services[0]
		if len(got.Replicas) != 2 || got.Replicas[0].Protocol != balancerapi.H2C {
			t.Errorf("the replicas are %+v", got.Replicas)
		}
		want := balancerapi.Service{Name: "chat", Host: "127.0.0.1", Port: got.Port, Drain: 120,
			Policy:    balancerapi.Policy{Name: balancerapi.PrefixAware, LoadFactor: 18, Metrics: "/m"},
			Limits:    balancerapi.Limits{IdleTimeout: 1, RequestTimeout: 2, ClientKeepAlive: 3, KeepAlive: 4, HeaderBytes: 7, BodyBytes: 8, ReplicaRequests: 9, Attempts: 10},
			Queue:     balancerapi.Queue{Requests: 11, Bytes: 12, Timeout: 13},
			Eject:     balancerapi.Eject{Failures: 14, Base: 15, Max: 16, Share: 0.17},
			SlowStart: 5, RetryAfter: 6, TrustForwarded: true}
		if got.Replicas = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("balancers have\n%+v, not\n%+v", got, want)
		}
	})
}

// A service that scales to zero starts a replica for the first request that waits.
func TestAServiceScalesFromZero(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(strings.Replace(service, "  replicas: 2\n", "  replica_policy: {min_replicas: 0, max_replicas: 2, target_qps_per_replica: 10}\n", 1))
		time.Sleep(10 * time.Minute)
		i.WantMachines()
		report := func(waiting int) {
			i.m.Reported(balancerapi.Report{Balancer: "b", Epoch: "e", Time: float64(time.Now().Unix()),
				Services: []balancerapi.ServiceReport{{Name: "chat", Waiting: waiting, Arrivals: 1}}})
		}
		if !i.table().Services[0].Queue.Wait {
			t.Error("requests do not wait while there is no replica")
		}
		for range 60 {
			report(1)
			time.Sleep(time.Second)
		}
		if s := i.service(); !ready(1)(s) {
			t.Errorf("a minute later it is %+v", s)
		}
		for range 3600 {
			report(0)
			time.Sleep(time.Second)
		}
		i.WantMachines()
	})
}

// Balancers report to any server, not only to the one that looks after the service.
func TestServersPassReportsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.shared = true
		i.serve(-1)
		i.up(strings.Replace(service, "  replicas: 2\n", "  replica_policy: {min_replicas: 0, max_replicas: 2, target_qps_per_replica: 1, upscale_delay_seconds: 0}\n", 1))
		time.Sleep(time.Minute)
		other := i.manager("other")
		done := make(chan struct{})
		go func() {
			other.Run(i.s.Context())
			close(done)
		}()
		total, recent := int64(0), []balancerapi.Second(nil)
		report := func(n int64) (receipt balancerapi.Receipt) {
			total += n
			recent = append(recent, balancerapi.Second{At: time.Now().Unix(), N: n})
			return other.Reported(balancerapi.Report{Balancer: "b", Epoch: "e", Time: float64(time.Now().Unix()), Services: []balancerapi.ServiceReport{
				{Name: "chat", Waiting: 1, Arrivals: total, Recent: recent[max(0, len(recent)-60):]}}})
		}
		for range 120 {
			if receipt := report(2); receipt.Have["chat"] > time.Now().Add(-window).Unix() {
				t.Fatalf("the balancer sends nothing before %d again", receipt.Have["chat"])
			}
			time.Sleep(time.Second)
		}
		if s := i.service(); !ready(2)(s) || s.RequestsPerSecond == nil || *s.RequestsPerSecond < 1.9 {
			t.Errorf("after two minutes it is %+v", s)
		}
		i.crash()
		<-done
	})
}

// A server that dies hands nothing over: another one has its services within ten
// seconds, and goes on with what they need.
func TestAnotherServerTakesAServiceOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for moment := range 8 { // of the leases' and looks' rounds
			func() {
				i := install(t)
				i.shared = true
				i.serve(-1)
				i.up(service)
				i.until("ready", ready(2))
				time.Sleep(time.Duration(moment) * 700 * time.Millisecond)
				i.crash()
				i.s = i.Boot(-1) // the machines' agents speak to somebody
				i.s.Watch()
				other := i.manager("other")
				done := make(chan struct{})
				ctx := i.s.Context()
				go func() {
					other.Run(ctx)
					close(done)
				}()
				i.m, i.done = other, done
				begun := time.Now()
				if err := other.TerminateReplica(ctx, i.call(), api.ServeTerminateReplicaBody{ServiceName: "chat", ReplicaID: 1}); err != nil {
					t.Fatal(err)
				}
				for i.service().Replicas[0].Status == string(api.ReplicaReady) {
					if time.Since(begun) > time.Minute {
						t.Fatal("nobody looks after the service")
					}
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(begun)
				if t.Logf("after %v", took); took > 10*time.Second {
					t.Errorf("the service was taken over after %v", took)
				}
				i.until("as asked for", ready(2))
				i.crash()
			}()
		}
	})
}

// What a service costs that nobody uses: its controller, probes of a replica, and its
// part of the table.
func TestAnIdleServiceIsSmall(t *testing.T) {
	bubble(t, func(i *installation) {
		const services = 20
		used := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc + m.StackInuse
		}
		i.up(service)
		i.until("ready", ready(2))
		before := used()
		for n := range services {
			name := fmt.Sprint("idle", n)
			if _, err := i.m.Up(i.s.Context(), i.call(), api.ServeUpBody{Task: sent(t, strings.Replace(service, "replicas: 2", "replicas: 1", 1)), ServiceName: name}); err != nil {
				t.Fatal(err)
			}
		}
		for readyIn(i.table()) < 2+services {
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		each := (int64(used()) - int64(before)) / services
		t.Logf("%d KiB each, with their machines and agents, which are in memory here", each>>10)
		if each > 5<<20 {
			t.Errorf("an idle service takes %d KiB", each>>10)
		}
	})
}

// window is the time over which rates are measured.
const window = time.Minute

func TestLogsOutliveReplicas(t *testing.T) {
	bubble(t, func(i *installation) {
		i.up(strings.Replace(service, "sleep 10000h", "echo hello from here\n  sleep 1m\n  exit 5", 1))
		i.until("failed", func(s *api.Service) bool {
			return len(s.Replicas) > 0 && s.Replicas[0].Status == string(api.ReplicaFailed)
		})
		id, no := 1, false
		var out strings.Builder
		begun := int64(-1)
		err := i.m.Logs(i.s.Context(), i.call(), api.ServeLogsBody{ServiceName: "chat", Target: "replica", ReplicaID: &id, Follow: &no}, -1,
			func(at int64) error { begun = at; return nil }, &out)
		if err != nil || begun != 0 || !strings.Contains(out.String(), "hello from here") {
			t.Errorf("from %d: %q, %v", begun, out.String(), err)
		}
		files := func(body api.ServeSyncLogsBody) string {
			t.Helper()
			body.ServiceName = "chat"
			dir, err := i.m.DownloadLogs(i.s.Context(), i.call(), body, t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			list, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			names := ""
			for _, f := range list {
				names += f.Name() + " "
			}
			return names
		}
		for range 30 {
			i.m.Reported(balancerapi.Report{Balancer: "b", Epoch: "e", Time: float64(time.Now().Unix()), Services: []balancerapi.ServiceReport{{Name: "chat", Address: "127.0.0.1:30001"}}})
			time.Sleep(time.Second)
		}
		if got := files(api.ServeSyncLogsBody{}); !strings.HasPrefix(got, "controller.log load_balancer.log replica_1.log ") {
			t.Errorf("all logs are %s", got)
		}
		if got := files(api.ServeSyncLogsBody{Targets: api.Strings{"replica"}, ReplicaIDs: []int{1}}); got != "replica_1.log " {
			t.Errorf("the log of a replica is %s", got)
		}
		if got := files(api.ServeSyncLogsBody{Targets: api.Strings{"load_balancer"}}); got != "load_balancer.log " {
			t.Errorf("the log of balancers is %s", got)
		}
		for _, body := range []api.ServeSyncLogsBody{{ServiceName: "chat", Targets: api.Strings{"odd"}}, {ServiceName: "chat", ReplicaIDs: []int{77}}, {ServiceName: "none"}} {
			if dir, err := i.m.DownloadLogs(i.s.Context(), i.call(), body, t.TempDir(), nil); err == nil {
				t.Errorf("%+v gives %s", body, dir)
			}
		}
		id = 77
		if err := i.m.Logs(i.s.Context(), i.call(), api.ServeLogsBody{ServiceName: "chat", Target: "replica", ReplicaID: &id, Follow: &no}, -1,
			func(int64) error { return nil }, &out); err == nil {
			t.Error("a replica that never was has a log")
		}
	})
}
