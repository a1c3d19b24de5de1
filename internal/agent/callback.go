//go:build unix

package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// callbackTail is how much of a callback's output goes back to the server.
const callbackTail = 16 << 10

// postCallback runs a script of the cluster's user beside its jobs: it is no job,
// so neither the queue nor autostop sees it. The script is a rank under a key of
// the server's, and the same key again waits for it, or reports how it ended: it is
// never started twice.
func (a *Agent) postCallback(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[agentapi.CallbackRequest](w, r)
	if err != nil {
		return err
	}
	a.mu.Lock()
	state := a.state
	a.mu.Unlock()
	if state != agentapi.AgentRunning {
		return &agentapi.Error{Code: agentapi.CodeStopping, Message: "the node is going away"}
	}
	name := filepath.Base(in.Log)
	if name != in.Log || strings.HasPrefix(name, ".") {
		return invalid("the name of a callback's log is not one")
	}
	dir := filepath.Join(a.o.Home, "sky_logs", "managed_job_event")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	out, err := a.runCallback(r.Context(), r.PathValue("key"), filepath.Join(dir, name), in)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// runCallback waits for the script, for no longer than it may take. A caller who
// goes away leaves it running, within the same limit.
func (a *Agent) runCallback(ctx context.Context, key, log string, in *agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	key = a.ranks.own("callback-" + key)
	limit := time.Duration(max(in.TimeoutSeconds, 1)) * time.Second
	began := int64(0)
	if st, err := os.Stat(log); err == nil {
		began = st.Size()
	}
	if _, err := a.ranks.start(&rankSpec{Key: key, Script: in.Script, Env: in.Env, Output: log}); err != nil {
		return nil, err
	}
	type ending struct {
		out *agentapi.CallbackResult
		err error
	}
	ended := make(chan ending, 1)
	a.wg.Go(func() {
		wait, cancel := context.WithTimeout(a.ctx, limit)
		defer cancel()
		st, err := a.ranks.wait(wait, key)
		out := &agentapi.CallbackResult{Code: st.Code}
		if err != nil && a.ctx.Err() == nil {
			out.TimedOut, out.Code = true, codeHookTimeout
			_, err = a.ranks.end(a.ctx, key, a.o.endGrace)
		}
		ended <- ending{out, err}
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case e := <-ended:
		if e.err != nil {
			return nil, fmt.Errorf("the callback was not seen to end: %w", e.err)
		}
		e.out.Output = tailFrom(log, began)
		return e.out, nil
	}
}

// tailFrom is the end of what was written to a file from a byte on.
func tailFrom(file string, from int64) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	from = max(from, st.Size()-callbackTail)
	b := make([]byte, max(st.Size()-from, 0))
	n, _ := f.ReadAt(b, from)
	return strings.ToValidUTF8(string(b[:n]), "\uFFFD")
}
