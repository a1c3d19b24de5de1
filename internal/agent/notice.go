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
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
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

// metadata asks the metadata service, version 2.
type metadata struct {
	address string
	client  *http.Client
	token   string
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

// watchNotices asks again and again, as long as the cluster is on a cloud that
// gives notice, and passes on what is new.
func (a *Agent) watchNotices() {
	if strings.EqualFold(os.Getenv(metadataOff), "true") {
		return
	}
	m := newMetadata(cmp.Or(os.Getenv(metadataEnv), metadataService))
	every := cmp.Or(a.o.noticeEvery, metadataEvery)
	silent := false
	for wait := every; ; {
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = every
		if spec := a.clusterSpec(); spec == nil || spec.Cloud != "aws" {
			continue
		}
		n, err := m.notice(a.ctx)
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
	if n.Final() && a.isHead() {
		a.wg.Go(func() { a.hooksOf(a.ctx, "preemption", "notice") })
	}
}
