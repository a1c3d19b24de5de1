package server

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

// A dump is what somebody who looks for a bug needs to know about the server,
// and no secret: records are made of the fields named here, and every text goes
// through a [redactor]. It is made while it is sent and lies nowhere.

const (
	dumpRows = 1000    // at most, of each kind
	dumpLog  = 2 << 20 // bytes from the end of the server's log
)

// dump sends a dump as a tar archive.
func (s *Server) dump(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.DebugDumpBody](s, w, r)
	if !ok {
		return
	}
	s.sendDump(w, r, mediaTar, "sky-dump.tar.gz", b, newTarball)
}

// dumpFolder is where dumps seem to be: clients of the protocol ask for a path
// first. Its last part is the request that says what the dump is about.
const dumpFolder = "~/.sky/debug_dumps"

func nameDump(_ context.Context, c *requests.Call) (any, error) {
	var b api.DebugDumpBody
	if err := c.Decode(&b); err != nil {
		return nil, err
	}
	return path.Join(dumpFolder, c.ID+".zip"), nil
}

// downloadDump sends a dump that was asked for before as a zip.
func (s *Server) downloadDump(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	id, _ := strings.CutSuffix(name, ".zip")
	q, err := s.Store.Requests().Get(r.Context(), id)
	if errors.Is(err, state.ErrNotFound) || err == nil && q.Name != requestName("create_debug_dump") {
		fail(w, http.StatusNotFound, "There is no dump "+quoted(name)+". Make a new one.")
		return
	}
	if err != nil {
		s.failed(w, r, err)
		return
	}
	var b api.DebugDumpBody
	if err := json.Unmarshal(q.Body, &b); err != nil { // an earlier build kept it
		fail(w, http.StatusNotFound, "What the dump "+quoted(name)+" was to be about is no longer known. Make a new one.")
		return
	}
	s.sendDump(w, r, mediaZip, name, b, newZipped)
}

func (s *Server) sendDump(w http.ResponseWriter, r *http.Request, media, name string, about api.DebugDumpBody, pack func(io.Writer) archive) {
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	out := newStream(w)
	defer out.Close()
	out.begin(media)
	a := pack(out)
	err := s.writeDump(r.Context(), about, a)
	if err == nil {
		err = a.Close()
	}
	if err != nil {
		s.log.ErrorContext(r.Context(), "dump failed", "error", err)
		out.Close()
		panic(http.ErrAbortHandler) // the client sees that the archive is not whole
	}
}

// archive takes whole files.
type archive interface {
	add(name string, at time.Time, text []byte) error
	io.Closer
}

type tarball struct {
	*tar.Writer
	z *gzip.Writer
}

func newTarball(w io.Writer) archive {
	z := gzip.NewWriter(w)
	return tarball{tar.NewWriter(z), z}
}

func (t tarball) add(name string, at time.Time, text []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, ModTime: at.Truncate(time.Second), Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := t.Write(text); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return t.z.Flush()
}

func (t tarball) Close() error { return errors.Join(t.Writer.Close(), t.z.Close()) }

type zipped struct{ *zip.Writer }

func newZipped(w io.Writer) archive { return zipped{zip.NewWriter(w)} }

func (z zipped) add(name string, at time.Time, text []byte) error {
	f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at})
	if err == nil {
		_, err = f.Write(text)
	}
	return err
}

// selection is what a dump is about. Nothing selected is everything.
type selection struct {
	requests, clusters []string
	jobs               []int
	since              time.Time
	all                bool
}

func selectionOf(b api.DebugDumpBody, now time.Time) selection {
	sel := selection{requests: b.RequestIDs, clusters: slices.Clone(b.ClusterNames), jobs: b.ManagedJobIDs, since: now}
	if b.RecentMinutes != nil {
		sel.since = now.Add(-time.Duration(*b.RecentMinutes * float64(time.Minute)))
	}
	sel.all = len(b.RequestIDs)+len(b.ClusterNames)+len(b.ManagedJobIDs) == 0 && b.RecentMinutes == nil
	return sel
}

func (sel *selection) request(r *state.Request) bool {
	return sel.recent(r.CreatedAt) || sel.cluster(r.ClusterName) || sel.named(r)
}

// named reports whether a request was asked for by its id, or the beginning of it.
func (sel *selection) named(r *state.Request) bool {
	return slices.ContainsFunc(sel.requests, func(id string) bool { return id != "" && strings.HasPrefix(r.ID, id) })
}

func (sel *selection) cluster(name string) bool {
	return sel.all || name != "" && slices.Contains(sel.clusters, name)
}

func (sel *selection) recent(at time.Time) bool { return sel.all || !at.Before(sel.since) }

// writeDump writes every part. What cannot be read is told in problems.txt: a
// dump is wanted most when something is broken. An error is the archive's.
func (s *Server) writeDump(ctx context.Context, about api.DebugDumpBody, a archive) error {
	now := s.Store.Now()
	sel := selectionOf(about, now)
	red := &redactor{}
	var problems []string
	part := func(name string, read func() ([]byte, error)) error {
		text, err := read()
		if err != nil {
			problems = append(problems, name+": "+red.text(err.Error()))
			return nil
		}
		return a.add(name, now, text)
	}

	found, err := s.Store.Requests().List(ctx, state.RequestFilter{Limit: dumpRows})
	if err != nil {
		problems = append(problems, "requests.json: "+config.Mask(err.Error()))
	}
	for _, id := range sel.requests {
		more, err := s.Store.Requests().List(ctx, state.RequestFilter{IDPrefixes: []string{id}, Limit: dumpRows})
		if err != nil {
			problems = append(problems, "requests.json: "+config.Mask(err.Error()))
		}
		for _, r := range more {
			if !slices.ContainsFunc(found, func(q *state.Request) bool { return q.ID == r.ID }) {
				found = append(found, r)
			}
		}
	}
	jobs, err := s.Store.ManagedJobs().List(ctx, state.ManagedFilter{Limit: dumpRows})
	if err != nil {
		jobs = &state.ManagedPage{}
		problems = append(problems, "managed_jobs.json: "+config.Mask(err.Error()))
	}

	var settings []byte
	if s.Config != nil {
		c := s.Config()
		settings = c.YAML()
		red.learn(c.Secrets()...)
	}
	red.learnEnvironment()
	for _, r := range found {
		red.learnFrom(r.Body)
	}
	for _, row := range jobs.Rows { // what has ended holds none
		if row.Job.Schedule == api.ScheduleDone || row.Task.Index > 0 {
			continue
		}
		if j, err := s.Store.ManagedJobs().Get(ctx, row.Job.ID); err == nil {
			red.learnFrom(j.Dag)
			red.learnFrom(j.Config)
		}
	}
	red.ready()

	for _, r := range found {
		if sel.named(r) && r.ClusterName != "" {
			sel.clusters = append(sel.clusters, r.ClusterName)
		}
	}
	chosen := []dumpedRequest{}
	for _, r := range found {
		if sel.request(r) {
			chosen = append(chosen, dumpRequest(r))
		}
	}
	parts := []struct {
		name string
		read func() ([]byte, error)
	}{
		{"about.json", func() ([]byte, error) { return red.json(s.dumpAbout(about, now)) }},
		{"config.yaml", func() ([]byte, error) { return []byte(red.text(string(settings))), nil }},
		{"requests.json", func() ([]byte, error) { return red.json(chosen) }},
		{"clusters.json", func() ([]byte, error) { return s.dumpClusters(ctx, &sel, red) }},
		{"attempts.json", func() ([]byte, error) { return s.dumpAttempts(ctx, &sel, red) }},
		{"managed_jobs.json", func() ([]byte, error) { return red.json(dumpJobs(jobs, &sel)) }},
		{"metrics.txt", func() ([]byte, error) {
			var b bytes.Buffer
			err := s.writeMetrics(ctx, &b)
			return []byte(red.text(b.String())), err
		}},
		{"server.log", func() ([]byte, error) {
			text, err := s.logTail()
			return []byte(red.text(string(text))), err
		}},
	}
	for _, p := range parts {
		if err := part(p.name, p.read); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return a.add("problems.txt", now, []byte(strings.Join(problems, "\n")+"\n"))
	}
	return nil
}

func (s *Server) dumpAbout(b api.DebugDumpBody, now time.Time) any {
	database := "sqlite"
	if s.Store.Shared() {
		database = "postgres"
	}
	b.Envelope = api.Envelope{}
	return map[string]any{
		"version": api.ProductVersion, "commit": api.Commit(), "build": s.BuildID, "api_version": api.Version,
		"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": runtime.NumCPU(),
		"instance": s.InstanceID, "started": s.started, "now": now, "database": database, "login": s.Gate.Options().Demanded(),
		"client": b.ClientInfo,
		"about":  map[string]any{"request_ids": b.RequestIDs, "cluster_names": b.ClusterNames, "managed_job_ids": b.ManagedJobIDs, "recent_minutes": b.RecentMinutes},
		"note":   "The log and the metrics are those of the server that answered. Lists hold at most 1000 rows, the newest.",
	}
}

// dumpedRequest has neither the body nor the result of a request.
type dumpedRequest struct {
	ID, Name, Status, User, Cluster, Workspace, Owner string
	Created, Started, Finished                        time.Time `json:",omitzero"`
	ClientAPI, Attempt                                int
	CancelAsked                                       bool
	StatusMsg                                         string `json:",omitempty"`
	ErrorType, Error                                  string `json:",omitempty"`
}

func dumpRequest(r *state.Request) dumpedRequest {
	d := dumpedRequest{ID: r.ID, Name: r.Name, Status: string(r.Status), User: r.UserID, Cluster: r.ClusterName, Workspace: r.Workspace, Owner: r.OwnerID,
		Created: r.CreatedAt, Started: r.StartedAt, Finished: r.FinishedAt, ClientAPI: r.ClientAPI, Attempt: r.Attempt, CancelAsked: r.CancelAsked, StatusMsg: r.StatusMsg}
	var e api.ErrorRecord
	if r.Error != nil && json.Unmarshal(r.Error, &e) == nil {
		d.ErrorType, d.Error = e.Type, e.Message
	}
	return d
}

type dumpedCluster struct {
	Name, Hash, NameOnCloud, Status, User, Workspace string
	Epoch, Version                                   int64
	Launched, StatusUpdated                          time.Time `json:",omitzero"`
	EverUp, SetupDone, Managed, AutostopDown         bool
	Offer                                            any
	Requested, AgentBuild                            string
	AutostopMinutes, NumNodes                        int
	Nodes                                            []dumpedNode
	Events                                           []dumpedEvent
}

type dumpedNode struct {
	ID, State, Method, Reason string
	Rank                      int
	Created                   time.Time `json:",omitzero"`
}

type dumpedEvent struct {
	At                             time.Time
	Type, Starting, Ending, Reason string
}

// dumpEvents is how many of a cluster's events are told.
const dumpEvents = 100

func (s *Server) dumpClusters(ctx context.Context, sel *selection, red *redactor) ([]byte, error) {
	list, err := s.Store.Clusters().List(ctx, state.ClusterFilter{})
	if err != nil {
		return nil, err
	}
	out := []dumpedCluster{}
	for _, c := range list {
		if !sel.cluster(c.Name) && !sel.recent(c.StatusUpdatedAt) || len(out) == dumpRows {
			continue
		}
		d := dumpedCluster{Name: c.Name, Hash: c.Hash, NameOnCloud: c.NameOnCloud, Status: string(c.Status), User: c.UserHash, Workspace: c.Workspace,
			Epoch: c.Epoch, Version: c.Version, Launched: c.LaunchedAt, StatusUpdated: c.StatusUpdatedAt, EverUp: c.EverUp, SetupDone: c.SetupDone,
			Managed: c.Held(), AutostopDown: c.AutostopDown, Offer: c.Offer, Requested: c.Requested, AgentBuild: c.AgentBuild,
			AutostopMinutes: c.AutostopMinutes, NumNodes: c.NumNodes}
		for _, n := range c.Nodes {
			d.Nodes = append(d.Nodes, dumpedNode{ID: n.ID, State: string(n.State), Method: n.Reach.Method, Reason: n.Reason, Rank: n.Rank, Created: n.Created})
		}
		events, err := s.Store.Clusters().Events(ctx, c.Name, c.Hash, nil, dumpEvents)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			d.Events = append(d.Events, dumpedEvent{At: e.At, Type: e.Type, Starting: string(e.Starting), Ending: string(e.Ending), Reason: e.Reason})
		}
		out = append(out, d)
	}
	return red.json(out)
}

type dumpedAttempt struct {
	Token, Cluster, Hash, NameOnCloud, Outcome, Message string
	Offer                                               any
	Nodes                                               int
	Started, Ended                                      time.Time `json:",omitzero"`
	Steps                                               []state.Step
	RuledOut                                            any
}

func (s *Server) dumpAttempts(ctx context.Context, sel *selection, red *redactor) ([]byte, error) {
	list, err := s.Store.Attempts().Since(ctx, time.Unix(0, 0), dumpRows)
	if err != nil {
		return nil, err
	}
	out := []dumpedAttempt{}
	for _, t := range list {
		if sel.cluster(t.ClusterName) || sel.recent(t.StartedAt) {
			out = append(out, dumpedAttempt{Token: t.Token, Cluster: t.ClusterName, Hash: t.ClusterHash, NameOnCloud: t.NameOnCloud, Outcome: t.Outcome,
				Message: t.Message, Offer: t.Offer, Nodes: t.Nodes, Started: t.StartedAt, Ended: t.EndedAt, Steps: t.Steps, RuledOut: t.RuledOut})
		}
	}
	return red.json(out)
}

type dumpedTask struct {
	Job, Task, Attempt, Tries, Restarts, Recoveries int
	Name, User, Workspace, Schedule, Status         string
	Submitted, Started, Ended                       time.Time `json:",omitzero"`
	Details, Failure                                string    `json:",omitempty"`
	CancelAsked                                     bool
}

func dumpJobs(p *state.ManagedPage, sel *selection) []dumpedTask {
	out := []dumpedTask{}
	for _, r := range p.Rows {
		if j, t := r.Job, r.Task; sel.recent(j.SubmittedAt) || slices.Contains(sel.jobs, j.ID) {
			out = append(out, dumpedTask{Job: j.ID, Task: t.Index, Attempt: t.Attempt, Tries: t.Tries, Restarts: t.Restarts, Recoveries: t.Recoveries,
				Name: j.Name, User: j.UserHash, Workspace: j.Workspace, Schedule: string(j.Schedule), Status: string(t.Status),
				Submitted: j.SubmittedAt, Started: t.StartedAt, Ended: t.EndedAt, Details: t.Details, Failure: t.Failure, CancelAsked: j.CancelAsked})
		}
	}
	return out
}

// logTail is the end of the server's log, from the beginning of a line.
func (s *Server) logTail() ([]byte, error) {
	f, err := os.OpenInRoot(s.Home, serverLog)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-dumpLog)
	text, err := io.ReadAll(io.NewSectionReader(f, from, dumpLog))
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text, err
}
