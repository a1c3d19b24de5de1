//go:build linux

package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// A Fake is a fake of a cloud over FluffyCloud's model, as those beside the providers.
type Fake interface {
	http.Handler
	Halt(id string)
	Inventory() []string
}

// An Emulator is a cloud as sky sees one: an API at an address, with machines that sky's
// agents run on.
type Emulator struct {
	Name  string // of the cloud, as users write it after "infra:"
	Fake  Fake
	Model *fakehttp.Fake // the part of it that fakes over FluffyCloud's model have
	// Follow lets a rack be the machines of another fake; nil: those of Model.
	Follow func(*Rack)
	// Variable sends sky to the emulator; "": the cloud's [vm.EndpointVariable].
	Variable string
	// User is who logs in, and Port where; 0: 22.
	User string
	Port int
	// Body is what a machine was made with; nil: as the shared part of fakes keeps it.
	Body func(id string) map[string]any
	// Script is the field of the body with what a machine runs first, or the kind of things
	// that has it; "": it runs nothing that matters.
	Script string
	// Shared are what Inventory has and stays when clusters go; nil: nothing does.
	Shared *regexp.Regexp

	calls atomic.Int64
	meets atomic.Pointer[func(answer func())]
}

// Calls is how many calls were made so far.
func (e *Emulator) Calls() int { return int(e.calls.Load()) }

// Meet lets every call from now on be met by do, which has it answered, or panics with
// [http.ErrAbortHandler] so that no answer arrives; nil: all are answered.
func (e *Emulator) Meet(do func(answer func())) {
	if do == nil {
		e.meets.Store(nil)
		return
	}
	e.meets.Store(&do)
}

func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.calls.Add(1)
	if do := e.meets.Load(); do != nil {
		(*do)(func() { e.Fake.ServeHTTP(w, r) })
		return
	}
	e.Fake.ServeHTTP(w, r)
}

// Serve lets a rack be the emulator's machines, and returns the variable of the API
// server's environment that sends sky there.
func (e *Emulator) Serve(t testing.TB) (variable, address string) {
	t.Helper()
	rack := NewRack(t)
	s := httptest.NewUnstartedServer(e)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true) // of gRPC
	s.Start()
	t.Cleanup(s.Close)
	if e.Follow != nil {
		e.Follow(rack)
	} else {
		e.Model.Cloud.SetMachines(machines{e, rack})
		rack.Follow(landlord{e})
	}
	return cmp.Or(e.Variable, vm.EndpointVariable(e.Name)), s.URL
}

// Left is what clusters that are gone should not have left.
func (e *Emulator) Left() []string {
	return slices.DeleteFunc(e.Fake.Inventory(), func(line string) bool { return e.Shared != nil && e.Shared.MatchString(line) })
}

// machines are those that the model gives addresses.
type machines struct {
	e    *Emulator
	rack *Rack
}

func (m machines) Address(id string, _ uint64) (string, int) { return m.rack.Address(id), m.e.port() }

// HostKey is made when the machine boots: clouds do not tell it.
func (m machines) HostKey(string) (string, error) { return "", nil }

// Fakes keep images by themselves, and the disks of real machines are not copied.
func (m machines) SaveDisk(_, _ string) error { return errors.ErrUnsupported }
func (m machines) LoadDisk(_, _ string) error { return errors.ErrUnsupported }
func (m machines) DropDisk(string) error      { return errors.ErrUnsupported }

func (e *Emulator) port() int {
	if e.Port == 0 {
		return 22
	}
	return e.Port
}

// landlord is the emulator to its rack.
type landlord struct{ *Emulator }

func (l landlord) Rented() (all []Rented, err error) {
	for _, m := range l.Model.Cloud.Machines() {
		if m.State == fluffyapi.Pending && time.Now().Before(m.BootAt) {
			continue
		}
		one := Rented{ID: m.ID, Address: m.PrivateIP, Port: m.SSHPort, State: m.State, User: l.User}
		if m.State == fluffyapi.Pending {
			body := fakehttp.Asked(m.Instance)
			if l.Body != nil {
				body = l.Body(m.ID)
			}
			if one.Keys, one.Script = l.access(body); len(one.Keys) == 0 && one.Script == "" {
				return all, fmt.Errorf("nothing lets anybody into %s: %v", m.ID, body)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

var publicKey = regexp.MustCompile(`(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-\w+) [A-Za-z0-9+/=]+`)

// access is who may log in to a machine: the keys of the body that it was made with, those of
// the account that the body names, and what it runs first.
func (e *Emulator) access(body map[string]any) (keys []string, script string) {
	text, _ := json.Marshal(body)
	keys = publicKey.FindAllString(string(text), -1)
	script, _ = body[e.Script].(string)
	words := map[string]bool{}
	scalars(body, func(v any) { words[fmt.Sprint(v)] = true })
	e.Model.Locked(func() {
		for _, kind := range []string{"keys", e.Script} {
			for _, o := range e.Model.Things(kind) {
				if !words[fmt.Sprint(o["id"])] && !words[fmt.Sprint(o["name"])] {
					continue
				}
				text, _ := json.Marshal(o)
				keys = append(keys, publicKey.FindAllString(string(text), -1)...)
				if s, ok := o["script"].(string); ok {
					script = s
				}
			}
		}
	})
	return keys, script
}

func scalars(v any, do func(any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, of := range v {
			scalars(of, do)
		}
	case []any:
		for _, of := range v {
			scalars(of, do)
		}
	case nil:
	case float64:
		do(int64(v))
	default:
		do(v)
	}
}

func (l landlord) Arrived(id string, from fluffyapi.State) {
	// The model has moved on where these fail, and is asked again.
	if from == fluffyapi.Pending {
		_ = l.Model.Cloud.Booted(id)
	} else {
		_ = l.Model.Cloud.Halted(id)
	}
}

func (l landlord) Halt(id string) { l.Fake.Halt(id) }
