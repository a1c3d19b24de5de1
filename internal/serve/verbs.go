package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Ports on which balancers listen.
const (
	firstPort = 30001
	lastPort  = 30999
)

// Up starts a service and returns its name and endpoint. The same request again is
// the same service.
func (m *Manager) Up(ctx context.Context, call cluster.Call, body api.ServeUpBody) ([]string, error) {
	dag, v, err := m.read(ctx, call, body.Task, body.OverrideConfig)
	if err != nil {
		return nil, err
	}
	if err := task.ValidClusterName(body.ServiceName); err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error()}
	}
	through, done, err := m.keepFiles(ctx, call, dag, v)
	if err != nil {
		return nil, err
	}
	defer done()
	read, err := readVersion(v)
	if err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if err := allowed(call, read); err != nil {
		return nil, err
	}
	if err := m.checkCertificate(ctx, read); err != nil {
		return nil, err
	}
	made := &state.Service{
		Name: body.ServiceName, Hash: newHash(), RequestID: call.RequestID, Kind: state.KindService,
		UserHash: call.User.ID, UserName: call.User.Name, Workspace: workspace(call), CreatedAt: m.Store.Now(), Status: api.ServiceControllerInit,
	}
	for tries := 0; ; tries++ {
		if made.Port, err = m.freePort(ctx); err != nil {
			return nil, err
		}
		have, err := m.Store.Services().Create(ctx, made, v)
		if err == nil && have.Port == made.Port {
			break // the next table gives the port to a balancer
		}
		m.release(made.Port)
		if err == nil {
			made = have
			break
		}
		if !errors.Is(err, state.ErrConflict) {
			return nil, err
		}
		if have != nil {
			return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The service %q is already running.", body.ServiceName),
				Hint: fmt.Sprintf("To move it to another version: sky serve update %s SERVICE_YAML. To start another one, give it another name.", body.ServiceName)}
		}
		if tries > 100 {
			return nil, &api.Error{Type: api.ErrRuntime, Message: "No port for the service's balancer could be had: others take them at the same time. Try again."}
		}
	}
	if err := m.hold(ctx, made, through); err != nil {
		return nil, err
	}
	m.wake()
	fmt.Fprintf(call.Out, "✓ Service %s is starting\n", made.Name)
	return []string{made.Name, m.Endpoint(made.Port, read.spec.Balance.KeyFile != "")}, nil
}

func newHash() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// workspace is the one that what a call makes belongs to.
func workspace(call cluster.Call) string {
	if call.Config == nil {
		return "default"
	}
	return call.Config.ActiveWorkspace()
}

// read is a service's task as it came, checked.
func (m *Manager) read(ctx context.Context, call cluster.Call, text string, config map[string]any) (*task.Dag, *state.ServiceVersion, error) {
	if err := m.Executor.ValidateDag(ctx, text); err != nil {
		return nil, nil, err
	}
	dag, err := task.ParseSent("task", []byte(text))
	if err != nil {
		return nil, nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if len(dag.Tasks) != 1 || dag.Tasks[0].Service == nil {
		return nil, nil, &api.Error{Type: api.ErrValue, Message: "A service is a single task with a section service."}
	}
	t := dag.Tasks[0]
	if err := cmp.Or(call.MayUse(t.Config), call.MayBegin(t.Config)); err != nil {
		return nil, nil, err
	}
	if t.Run == "" {
		return nil, nil, &api.Error{Type: api.ErrValue, Message: "A service needs a run command: the program that serves."}
	}
	v := &state.ServiceVersion{RequestID: call.RequestID, Entrypoint: call.Command, CreatedAt: m.Store.Now()}
	if len(config) > 0 {
		if v.Config, err = json.Marshal(config); err != nil {
			return nil, nil, err
		}
	}
	return dag, v, nil
}

// keepFiles copies the files that replicas need and puts the task into v; done must
// be called once v is stored. through are prefixes of serve.bucket that the service needs.
func (m *Manager) keepFiles(ctx context.Context, call cluster.Call, dag *task.Dag, v *state.ServiceVersion) (through []string, done func(), err error) {
	if m.Buckets != nil {
		if through, err = m.Buckets.Intermediate(ctx, call, "serve", dag); err != nil {
			return nil, nil, err
		}
	}
	call.Out.Spin("Keeping a copy of the service's files")
	defer call.Out.StopSpin()
	if v.Files, done, err = m.Files.Take(ctx, call.User.ID, call.Files, dag); err != nil {
		return nil, nil, err
	}
	if v.Task, err = dag.YAML(); err != nil {
		done()
		return nil, nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	return through, done, nil
}

// hold notes that a service needs what is in serve.bucket for it.
func (m *Manager) hold(ctx context.Context, v *state.Service, through []string) error {
	if len(through) == 0 {
		return nil
	}
	return m.Buckets.HoldIntermediate(ctx, through, v.Holder())
}

// freePort is a port that no service has and on which this server can listen. Others
// are kept from it until it is released.
func (m *Manager) freePort(ctx context.Context) (int, error) {
	taken, err := m.Store.Services().Ports(ctx)
	if err != nil {
		return 0, err
	}
	last := cmp.Or(m.LastPort, lastPort)
	for p := firstPort; p <= last; p++ {
		if slices.Contains(taken, p) {
			continue
		}
		held, err := net.Listen("tcp", net.JoinHostPort(m.Host, strconv.Itoa(p)))
		if err == nil {
			m.mu.Lock()
			m.ports[p] = held
			m.mu.Unlock()
			return p, nil
		}
	}
	return 0, &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("No port from %d to %d is free for the service's balancer.", firstPort, last)}
}

// release lets others have a port.
func (m *Manager) release(port int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if held := m.ports[port]; held != nil {
		held.Close()
		delete(m.ports, port)
	}
}

// find is a service that the caller may use.
func (m *Manager) find(ctx context.Context, call cluster.Call, name string) (*state.Service, error) {
	v, err := m.Store.Services().Get(ctx, name)
	if err == nil && v.Kind == state.KindService && call.Scope.Sees(v.Workspace) {
		return v, nil
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, err
	}
	e := &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no service %q.", name)}
	all, err := m.Store.Services().List(ctx, state.ServiceFilter{Kind: state.KindService, Scope: call.Scope})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
	}
	if near := similar.Names(name, names); len(near) > 0 {
		e.Hint = "Did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, e
}

// Update gives a service its next version.
func (m *Manager) Update(ctx context.Context, call cluster.Call, body api.ServeUpdateBody) error {
	have, err := m.find(ctx, call, body.ServiceName)
	if err != nil {
		return err
	}
	mode := replicas.Mode(cmp.Or(body.Mode, string(replicas.Rolling)))
	switch mode {
	case replicas.Rolling, replicas.BlueGreen, replicas.Canary:
	default:
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%q is no way to update a service; there are rolling, blue_green and canary.", body.Mode)}
	}
	dag, v, err := m.read(ctx, call, body.Task, body.OverrideConfig)
	if err != nil {
		return err
	}
	through, done, err := m.keepFiles(ctx, call, dag, v)
	if err != nil {
		return err
	}
	defer done()
	read, err := readVersion(v)
	if err != nil {
		return &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if err := allowed(call, read); err != nil {
		return err
	}
	if err := m.checkCertificate(ctx, read); err != nil {
		return err
	}
	if body.Weight < 0 || body.Weight >= 100 || body.Weight != 0 && mode != replicas.Canary {
		return &api.Error{Type: api.ErrValue, Message: "weight is the share of the requests that a canary gets: above 0 and below 100 percent, with mode canary."}
	}
	v.Mode = modeText(mode, body.Weight)
	n, err := m.Store.Services().AddVersion(ctx, have.Hash, v)
	if errors.Is(err, state.ErrConflict) {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The service %q is shutting down.", have.Name)}
	}
	if err != nil {
		return err
	}
	if err := m.hold(ctx, have, through); err != nil {
		return err
	}
	m.wake()
	fmt.Fprintf(call.Out, "✓ Service %s moves to version %d (%s)\n", have.Name, n, mode)
	return nil
}

// Turn promotes or rolls back the version of a service that is about to take over.
func (m *Manager) Turn(ctx context.Context, call cluster.Call, name string, asked state.ServiceAsked) error {
	v, err := m.find(ctx, call, name)
	if err != nil {
		return err
	}
	mem, err := readMemory(v.State)
	if err != nil {
		return err
	}
	why, rolledBack := mem.Update.Failed[mem.Seen]
	switch {
	case rolledBack:
		err = fmt.Errorf("version %d was rolled back already: %s", mem.Seen, why)
	case asked == state.AskedPromote:
		_, err = mem.Promote()
	case asked == state.AskedRollback:
		_, err = mem.Rollback(mem.Seen, "a user rolled it back")
	}
	if err != nil {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Service %s: %v.", name, err)}
	}
	if err := m.Store.Services().AskUpdate(ctx, v.Hash, asked); err != nil {
		return err
	}
	m.wake()
	return nil
}

// downLimit is for how long the end of services is waited for. They end all the same.
const downLimit = 10 * time.Minute

// Down ends services, with all that they have.
func (m *Manager) Down(ctx context.Context, call cluster.Call, body api.ServeDownBody) error {
	list, err := m.chosen(ctx, call, body.ServiceNames, body.All)
	if err != nil {
		return err
	}
	var hashes []string
	for _, v := range list {
		hashes = append(hashes, v.Hash)
	}
	if err := m.Store.Services().AskDown(ctx, hashes, false); err != nil {
		return err
	}
	m.wake()
	err = m.waitDown(ctx, call, hashes)
	if !body.Purge || !errors.Is(err, errUncleaned) {
		return err
	}
	for _, v := range list {
		if err := m.purge(ctx, call, v, nil); err != nil {
			return err
		}
	}
	if err := m.Store.Services().AskDown(ctx, hashes, true); err != nil {
		return err
	}
	m.wake()
	return m.waitDown(ctx, call, hashes)
}

// purge forgets the clusters of a service, or of one of its replicas, that could not be
// given back, and says of which machines it is not known that they are gone. Afterwards
// nothing but the tags of these machines is a trace of them.
func (m *Manager) purge(ctx context.Context, call cluster.Call, v *state.Service, only *int) error {
	rows, err := m.Store.Services().Replicas(ctx, []string{v.Hash})
	if err != nil {
		return err
	}
	for _, stored := range rows[v.Hash] {
		r, err := readRow(stored)
		if err != nil {
			return err
		}
		if r.Status != api.ReplicaFailedCleanup || only != nil && r.ID != *only {
			continue
		}
		if err := m.Clusters.PurgeHeld(ctx, call, r.at.ClusterName, v.Holder()); err != nil {
			return err
		}
	}
	return nil
}

// errUncleaned means that something of services could not be given back.
var errUncleaned = errors.New("machines of a service could not be given back")

// chosen are the services that names, which may have wildcards, select.
func (m *Manager) chosen(ctx context.Context, call cluster.Call, names []string, all bool) ([]*state.Service, error) {
	list, err := m.Store.Services().List(ctx, state.ServiceFilter{Kind: state.KindService, Scope: call.Scope})
	if err != nil {
		return nil, err
	}
	if all {
		return slices.DeleteFunc(list, func(v *state.Service) bool { return call.User.ID != "" && v.UserHash != call.User.ID }), nil
	}
	if len(names) == 0 {
		return nil, &api.Error{Type: api.ErrValue, Message: "Name the services to end, or say that all are meant."}
	}
	var out []*state.Service
	for _, name := range names {
		n := len(out)
		for _, v := range list {
			if ok, _ := path.Match(name, v.Name); (ok || name == v.Name) && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
		// An attempt before a crash may have ended it.
		if n == len(out) && !strings.ContainsAny(name, "*?[") && call.Attempt <= 1 {
			if _, err := m.find(ctx, call, name); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// waitDown waits until services are gone, or a replica could not be given back.
func (m *Manager) waitDown(ctx context.Context, call cluster.Call, hashes []string) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	for {
		left, err := m.Store.Services().List(ctx, state.ServiceFilter{Hashes: hashes})
		if ctx.Err() != nil {
			return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("The services have not ended within %v; they go on ending.", downLimit), Hint: "See: sky serve status"}
		}
		if err != nil {
			return err
		}
		if len(hashes) == 0 || len(left) == 0 {
			return nil
		}
		var names, stuck []string
		for _, v := range left {
			names = append(names, v.Name)
			if v.Status == api.ServiceFailedCleanup {
				stuck = append(stuck, v.Name)
			}
		}
		if len(stuck) == len(left) {
			return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Something of %s could not be given back; it is tried again.", strings.Join(stuck, ", ")),
				Hint: "Why: sky serve status. To forget what cannot be proven to be gone: sky serve down --purge " + strings.Join(stuck, " "), Err: errUncleaned}
		}
		call.Out.Spin("Ending " + strings.Join(names, ", "))
		sleep(ctx, 500*time.Millisecond)
	}
}

// TerminateReplica ends one replica; another one takes its place.
func (m *Manager) TerminateReplica(ctx context.Context, call cluster.Call, body api.ServeTerminateReplicaBody) error {
	v, err := m.find(ctx, call, body.ServiceName)
	if err != nil {
		return err
	}
	asked := state.AskedEnd
	if body.Purge {
		asked = state.AskedPurge
		if err := m.purge(ctx, call, v, &body.ReplicaID); err != nil {
			return err
		}
	}
	err = m.Store.Services().AskReplica(ctx, v.Hash, body.ReplicaID, asked)
	if errors.Is(err, state.ErrNotFound) {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The service %q has no replica %d.", v.Name, body.ReplicaID), Hint: "See: sky serve status " + v.Name}
	}
	if err != nil {
		return err
	}
	m.wake()
	return nil
}
