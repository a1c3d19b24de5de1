//go:build unix

package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// putMounts mounts buckets on this node.
func (a *Agent) putMounts(ctx context.Context, in *agentapi.MountsRequest) (*agentapi.MountsAnswer, error) {
	a.mu.Lock()
	spec, state := a.spec, a.state
	a.mu.Unlock()
	switch {
	case spec == nil:
		return nil, invalid("the agent does not belong to a cluster yet")
	case in.Epoch < spec.Epoch:
		return nil, stale(in.Epoch, spec.Epoch)
	case state != agentapi.AgentRunning:
		return nil, &agentapi.Error{Code: agentapi.CodeStopping, Message: "the node is going away"}
	}
	return a.mounts.apply(ctx, in)
}

const (
	// storeSay is how often the log of a job says that it still waits for uploads.
	storeSay = 10 * time.Second
	// storeAgain is the pause before a node is asked again that could not wait.
	storeAgain = time.Second
	// refusedNamed is how many calls that failed the log of a job names, for each node.
	refusedNamed = 3
	// refusedWithin is how long the nodes of a job that failed are asked for them.
	refusedWithin = 10 * time.Second
)

// store waits until mounted buckets have what the job wrote, on each of its nodes. lost is
// not empty if they cannot: it names files. An error is the context's. If nothing of the
// job is dirty, it takes a call to each node.
func (d *driver) store(ctx context.Context) (lost string, err error) {
	if !d.a.mounts.any() {
		return "", nil
	}
	ms, setup := d.members(phaseRun), d.members(phaseSetup)
	began := d.a.now()
	done, losses := make([]bool, len(ms)), make([]string, len(ms))
	for said := 0; ; {
		status := make([]flushStatus, len(ms))
		err := d.all(ctx, ms, func(ctx context.Context, i int, pr peer) (err error) {
			if done[i] || losses[i] != "" {
				return nil
			}
			status[i], err = pr.flush(ctx, []string{setup[i].key, ms[i].key}, storeSay)
			return err
		}, func(i int, err error) { losses[i] = err.Error() })
		if err != nil {
			return "", err
		}
		complete := true
		var waiting []string
		trouble := ""
		for i, st := range status {
			done[i] = done[i] || st.Done
			if st.Lost != "" {
				losses[i] = st.Lost
			}
			d.note(st)
			complete = complete && (done[i] || losses[i] != "")
			waiting = append(waiting, st.Waiting...)
			trouble = cmp.Or(trouble, st.Trouble)
		}
		took := d.a.now().Sub(began).Round(time.Second)
		if complete {
			if said > 0 {
				_ = d.log.say(d.a.ctx, "stored", fmt.Sprintf("skypilot: cached mount upload complete (took %ds)", int(took.Seconds())))
			}
			break
		}
		text := fmt.Sprintf("skypilot: cached mount is still uploading (elapsed: %ds)", int(took.Seconds()))
		if len(waiting) > 0 {
			text += " uploading: " + strings.Join(waiting[:min(len(waiting), unsavedNamed)], ", ")
		}
		if trouble != "" {
			text += " (" + trouble + ")"
		}
		if took >= storeSay*time.Duration(said) {
			_ = d.log.say(d.a.ctx, fmt.Sprint("storing-", said), text)
			said++
		}
		if len(waiting) == 0 {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(storeAgain):
			}
		}
	}
	var all []string
	for i, l := range losses {
		if l != "" {
			if len(losses) > 1 {
				l = nodeName(ms[i].place.Index) + ": " + l
			}
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	return "files that the job wrote to mounted buckets could not be stored: " + strings.Join(all, "; "), nil
}

// note writes notes into the log of the job, each of them once.
func (d *driver) note(st flushStatus) {
	for _, note := range st.Notes {
		_ = d.log.say(d.a.ctx, "note-"+fileName(note), "skypilot: "+note)
	}
}

// explain writes into the log of a job that failed what its mounts did not do for it, which
// may be why. What it has written is uploaded in any case.
func (d *driver) explain(ctx context.Context) {
	if !d.a.mounts.any() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refusedWithin)
	defer cancel()
	ms, setup := d.members(phaseRun), d.members(phaseSetup)
	status := make([]flushStatus, len(ms))
	_ = d.all(ctx, ms, func(ctx context.Context, i int, pr peer) (err error) {
		status[i], err = pr.flush(ctx, []string{setup[i].key, ms[i].key}, 0)
		return err
	}, func(int, error) {})
	for _, st := range status {
		if st.Lost != "" {
			st.Notes = slices.Insert(st.Notes, 0, "not stored: "+st.Lost)
		}
		d.note(st)
	}
}

// storeAll waits, before a cluster gives itself back, until the mounted buckets of its nodes
// have everything: as long as it takes if the disks are lost, else for a while, as what is
// not uploaded is when the cluster is started again.
func (a *Agent) storeAll(ctx context.Context, lasting bool) {
	if !a.mounts.any() {
		return
	}
	end := a.now().Add(agentapi.FlushTime)
	told := false
	for ctx.Err() == nil {
		left := ""
		for i, n := range a.clusterSpec().Nodes {
			pr, err := a.peer(n.ID)
			var st flushStatus
			if err == nil {
				st, err = pr.flush(ctx, nil, waitPoll)
			}
			if err != nil {
				if lasting && !a.now().Before(end) {
					continue // a node that is gone has nothing to store
				}
				st.Trouble = err.Error()
			}
			if !st.Done {
				left = cmp.Or(left, nodeName(i)+": "+cmp.Or(st.Lost, strings.Join(st.Waiting, ", "), st.Trouble))
			}
		}
		if left == "" || !lasting && !a.now().Before(end) {
			break
		}
		if !a.now().Before(end) && !told {
			told = true
			a.tellStuck("files of mounted buckets are not uploaded, and would be lost with the machine: " + left)
		}
		select {
		case <-ctx.Done():
		case <-time.After(storeAgain):
		}
	}
	if told {
		a.tellStuck("")
	}
}
