//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// hookEvents are the ends of a cluster that hooks can run before.
var hookEvents = map[string]bool{"stop": true, "down": true, "preemption": true}

const codeHookTimeout = 124

func (a *Agent) hooksDir() string            { return filepath.Join(a.o.Home, ".sky", "hooks") }
func (a *Agent) hookLog(event string) string { return filepath.Join(a.hooksDir(), event+".log") }
func (a *Agent) claimFile() string           { return filepath.Join(a.hooksDir(), ".teardown_claim") }

// claim takes the right to run hooks, which the first event to come has alone.
// run names the teardown: it keeps its claim when the agent is restarted.
func (a *Agent) claim(event, run string) (mine bool, err error) {
	if err := os.MkdirAll(a.hooksDir(), 0o700); err != nil {
		return false, err
	}
	word := event + " " + run + "\n"
	f, err := os.OpenFile(a.claimFile(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		data, err := os.ReadFile(a.claimFile())
		return string(data) == word, err
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(word)
	return true, errors.Join(err, f.Close())
}

// unclaim lets hooks run again: the agent has been started anew.
func (a *Agent) unclaim() { _ = os.Remove(a.claimFile()) }

// hooksFor picks the hooks of an event.
func hooksFor(set *agentapi.Autostop, event string) (hooks []agentapi.Hook) {
	if set == nil || set.Hooks == nil {
		return nil
	}
	for _, h := range *set.Hooks {
		if h.Run != "" && (len(h.Events) == 0 || slices.Contains(h.Events, event)) {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// runHooks runs an event's hooks one after the other. They are ranks like those
// of jobs, so that an agent that is restarted meanwhile waits for the one that
// runs and does not run it again; run tells one teardown from another. A hook
// that fails is only worth a warning.
func (a *Agent) runHooks(ctx context.Context, event, run string, hooks []agentapi.Hook) {
	out := a.hookLog(event)
	for i, h := range hooks {
		key := a.hookKey(event, run, i)
		if i == 0 {
			if _, err := os.Stat(filepath.Join(a.ranks.dir, key)); err != nil {
				_ = os.Remove(out)
			}
		}
		code, err := a.runHook(ctx, key, event, out, h)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.log.Warn("hook not run", "event", event, "hook", i, "err", err)
		case code != 0:
			a.log.Warn("hook failed", "event", event, "hook", i, "code", code)
		}
	}
	for i := range hooks {
		_ = a.ranks.forget(a.hookKey(event, run, i))
	}
}

func (a *Agent) hookKey(event, run string, i int) string {
	return a.ranks.own(fmt.Sprintf("hook-%s-%s-%d", event, run, i))
}

func (a *Agent) runHook(ctx context.Context, key, event, out string, h agentapi.Hook) (int, error) {
	limit := agentapi.HookTimeout
	if h.Timeout > 0 {
		limit = time.Duration(h.Timeout) * time.Second
	}
	spec := &rankSpec{Key: key, Script: h.Run, Output: out, Env: map[string]string{"SKYPILOT_HOOK_EVENT": event}}
	st, err := a.ranks.start(spec)
	if err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if st, err = a.ranks.wait(wait, key); err == nil {
		return st.Code, nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	_, err = a.ranks.end(ctx, key, a.o.endGrace)
	return codeHookTimeout, err
}
