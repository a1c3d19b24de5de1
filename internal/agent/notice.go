//go:build unix

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// The metadata service of EC2 tells a machine two minutes ahead that it will be
// taken back, and sometimes earlier that this is likely.
const (
	metadataService = "http://169.254.169.254"
	metadataEnv     = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
	metadataOff     = "AWS_EC2_METADATA_DISABLED"
	metadataEvery   = 5 * time.Second // as AWS advises
	metadataRare    = time.Minute     // while it does not answer
	metadataTimeout = 2 * time.Second
	tokenLife       = 6 * time.Hour
)

// metadata asks a cloud's metadata service: EC2's, version 2, or Google's.
type metadata struct {
	address string
	client  *http.Client
	token   string
	at      float64 // when the machine ends that is being taken back, on Google Cloud
}

func newMetadata(address string) *metadata {
	// A proxy would be told about another machine.
	return &metadata{address: strings.TrimSuffix(address, "/"), client: &http.Client{Timeout: metadataTimeout, Transport: &http.Transport{Proxy: nil}}}
}

var errTokenOver = errors.New("the token is no longer good")

// get reads what is at a path; nil if nothing is.
func (m *metadata) get(ctx context.Context, path string) ([]byte, error) {
	if m.token == "" {
		token, err := m.call(ctx, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", fmt.Sprint(int(tokenLife.Seconds())))
		if err != nil {
			return nil, err
		}
		m.token = strings.TrimSpace(string(token))
	}
	text, err := m.call(ctx, http.MethodGet, path, "X-aws-ec2-metadata-token", m.token)
	if errors.Is(err, errTokenOver) {
		m.token = ""
	}
	return text, err
}

func (m *metadata) call(ctx context.Context, method, path, header, value string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, m.address+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(header, value)
	answer, err := m.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound && method == http.MethodGet:
		return nil, nil
	case answer.StatusCode == http.StatusUnauthorized:
		return nil, errTokenOver
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the metadata service answers %s to %s %s", answer.Status, method, path)
	}
	return text, nil
}

// notice is what is said about this machine's end; nil while nothing is.
func (m *metadata) notice(ctx context.Context) (*agentapi.Notice, error) {
	text, err := m.get(ctx, "/latest/meta-data/spot/instance-action")
	if err != nil {
		return nil, err
	}
	if text != nil {
		var said struct {
			Action string    `json:"action"`
			Time   time.Time `json:"time"`
		}
		if err := json.Unmarshal(text, &said); err != nil {
			return nil, fmt.Errorf("the metadata service said %q: %w", text, err)
		}
		return &agentapi.Notice{Action: said.Action, At: seconds(said.Time)}, nil
	}
	if text, err = m.get(ctx, "/latest/meta-data/events/recommendations/rebalance"); err != nil || text == nil {
		return nil, err
	}
	var said struct {
		NoticeTime time.Time `json:"noticeTime"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("the metadata service said %q: %w", text, err)
	}
	return &agentapi.Notice{Action: agentapi.NoticeRebalance, At: seconds(said.NoticeTime)}, nil
}

// The metadata service of Google Cloud tells a machine that it is taken back when that
// begins: it has a while left to go down by itself.
//
// https://cloud.google.com/compute/docs/instances/spot#preemption-process
const (
	googleMetadata    = "http://metadata.google.internal"
	googleMetadataEnv = "GCE_METADATA_HOST" // host and port, for Google's own tools, too
	googleLeft        = 30 * time.Second
)

// newGoogleMetadata is the metadata service of Google Cloud.
func newGoogleMetadata() *metadata {
	if host := os.Getenv(googleMetadataEnv); host != "" {
		return newMetadata("http://" + host)
	}
	return newMetadata(googleMetadata)
}

// preempted is what is said about this machine's end; nil while nothing is.
func (m *metadata) preempted(ctx context.Context) (*agentapi.Notice, error) {
	text, err := m.call(ctx, http.MethodGet, "/computeMetadata/v1/instance/preempted", "Metadata-Flavor", "Google")
	if err != nil || strings.TrimSpace(string(text)) != "TRUE" {
		return nil, err
	}
	if m.at == 0 { // it does not say when
		m.at = seconds(time.Now().Add(googleLeft))
	}
	return &agentapi.Notice{Action: "terminate", At: m.at}, nil
}

// Azure's metadata service lists what will happen to a machine, half a minute ahead if it
// is taken back. The first answer takes it some minutes.
//
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
const (
	azureEnv       = "AZURE_POD_IDENTITY_AUTHORITY_HOST" // names another service, as for Microsoft's libraries
	azureScheduled = "/metadata/scheduledevents?api-version=2020-07-01"
)

// scheduled is what Azure says about this machine's end; nil while it says nothing.
func (m *metadata) scheduled(ctx context.Context) (*agentapi.Notice, error) {
	text, err := m.call(ctx, http.MethodGet, azureScheduled, "Metadata", "true")
	if err != nil || text == nil {
		return nil, err
	}
	var said struct {
		Events []struct{ EventType, NotBefore string }
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("the metadata service said %q: %w", text, err)
	}
	for _, e := range said.Events {
		// Without a time it has begun, which was announced before.
		if at, err := http.ParseTime(e.NotBefore); e.EventType == "Preempt" && err == nil {
			return &agentapi.Notice{Action: "terminate", At: seconds(at)}, nil
		}
	}
	return nil, nil
}

// watchNotices asks again and again, as long as the cluster is where notice is
// given, and passes on what is new.
func (a *Agent) watchNotices() {
	ec2, google := newMetadata(cmp.Or(os.Getenv(metadataEnv), metadataService)), newGoogleMetadata()
	azure := newMetadata(cmp.Or(os.Getenv(azureEnv), metadataService))
	every := cmp.Or(a.o.noticeEvery, metadataEvery)
	off, silent, told := strings.EqualFold(os.Getenv(metadataOff), "true"), false, false
	for wait := every; ; {
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = every
		spec := a.clusterSpec()
		var from facts.Notices
		if spec != nil {
			from = facts.Of(spec.Cloud).Notices
		}
		if from == facts.PodEnding {
			wait = cmp.Or(a.o.noticeEvery, endingEvery)
			if !told {
				// Without it nobody waits for hooks, which is no reason not to work.
				err := wholefile.Write(a.endingFile(agentapi.EndingPID), []byte(strconv.Itoa(os.Getpid())), 0o644)
				if told = true; err != nil {
					a.log.Warn("hooks of preemption may be cut off", "err", err)
				}
			}
			a.noticed(a.ending())
		}
		ask := ec2.notice
		switch {
		case from == facts.GoogleMetadata:
			ask = google.preempted
		case from == facts.AzureMetadata:
			ask = azure.scheduled
		case from != facts.EC2Metadata || off:
			continue
		}
		n, err := ask(a.ctx)
		if err != nil {
			if !silent && a.ctx.Err() == nil {
				a.log.Info("no notices of interruptions", "err", err)
			}
			if !errors.Is(err, errTokenOver) {
				silent, wait = true, cmp.Or(a.o.noticeEvery, metadataRare)
			}
			continue
		}
		silent = false
		a.noticed(n)
	}
}

// noticed tells everybody what the cloud announced, and lets hooks run before
// this machine is taken back. An announcement is not withdrawn: the last one
// stays.
func (a *Agent) noticed(n *agentapi.Notice) {
	a.mu.Lock()
	known := a.notice
	if n == nil || known != nil && *known == *n || known != nil && known.Final() && !n.Final() {
		a.mu.Unlock()
		return
	}
	a.notice = n
	a.mu.Unlock()
	a.log.Warn("the cloud takes this machine back", "action", n.Action, "at", n.At)
	a.publishState()
	if n.Final() && (known == nil || !known.Final()) { // another time for the same end changes nothing
		a.wg.Go(func() {
			// At once, as the time is short, and again for what the hooks write.
			early := make(chan struct{})
			go func() {
				defer close(early)
				_, _ = a.mounts.settle(a.ctx, noticeFlush)
			}()
			if a.isHead() {
				a.hooksOf(a.ctx, "preemption", "notice")
			}
			<-early
			if st, err := a.mounts.settle(a.ctx, noticeFlush); err != nil || !st.Done {
				a.log.Warn("not all files of mounted buckets are stored before the machine goes", "lost", st.Lost, "waiting", st.Waiting, "err", err)
			}
			if a.ctx.Err() == nil {
				a.ended()
			}
		})
	}
}

// putNotice takes from the server what the cloud says of this machine to nobody else.
func (a *Agent) putNotice(_ context.Context, n *agentapi.Notice) (*agentapi.Info, error) {
	if n.Action == "" {
		return nil, invalid("what the cloud does is missing")
	}
	a.noticed(n)
	return a.info(), nil
}

// noticeFlush bounds the flush of mounted buckets before a machine is taken back, which
// ends it anyway.
const noticeFlush = 5 * time.Minute

// leaving reports whether the cloud has announced that it takes this machine back.
func (a *Agent) leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notice != nil && a.notice.Final()
}

// endingEvery is how often a container's agent looks whether it is to end: the
// time until then is short, and a look costs nothing.
const endingEvery = time.Second

// ending is what the container's orchestrator says about its end; nil: nothing, or
// it has its answer.
func (a *Agent) ending() *agentapi.Notice {
	file := a.endingFile(agentapi.EndingFile)
	said, err := os.Stat(file)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(a.endingFile(agentapi.EndedFile)); err == nil {
		return nil
	}
	text, _ := os.ReadFile(file)
	left, _ := strconv.Atoi(strings.TrimSpace(string(text))) // the hooks matter, not the number
	return &agentapi.Notice{Action: "terminate", At: seconds(said.ModTime()) + float64(left)}
}

func (a *Agent) endingFile(name string) string {
	return filepath.Join(cmp.Or(a.o.endingDir, agentapi.EndingDir), name)
}

// ended tells the container's orchestrator that nothing is left to be done.
func (a *Agent) ended() {
	if _, err := os.Stat(a.endingFile(agentapi.EndingFile)); err != nil {
		return // nobody waits
	}
	if err := os.WriteFile(a.endingFile(agentapi.EndedFile), []byte("done\n"), 0o644); err != nil {
		a.log.Warn("the end of hooks not told", "err", err)
	}
}
