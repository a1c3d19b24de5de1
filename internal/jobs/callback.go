package jobs

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
)

// callbackLimit bounds one run of a task's event_callback.
const callbackLimit = 5 * time.Minute

// callbacks runs the event_callback scripts of one job, one after the other.
type callbacks struct {
	queue  chan callback // nil: none has come yet
	cancel context.CancelFunc
	done   chan struct{}
}

// callback is one run of a script.
type callback struct {
	dir    string // of the job
	task   int
	script string
	env    []string
}

// callback runs the task's event_callback, if it has one, when the task's state
// changed. Whatever comes of it changes nothing for the job.
func (c *controller) callback(s situation, e state.ManagedEvent) {
	if !c.shape.tasks[e.Task].tells {
		return
	}
	t, err := taskOf(s.job, e.Task)
	if err != nil {
		return
	}
	names := []string{e.Code}
	switch {
	case e.Code == code(fsm.ManagedBackoff):
		return
	case e.Code == code(fsm.ManagedLaunch) && s.job.Tasks[e.Task].Tries == 0:
		names = []string{"SUBMITTED", e.Code}
	case e.Code == code(fsm.ManagedRan) && s.job.Tasks[e.Task].Recoveries > 0:
		names = []string{"RECOVERED"}
	}
	env := map[string]string{}
	maps.Copy(env, t.Envs)
	for k, v := range t.Secrets {
		env[k] = v.Reveal()
	}
	maps.Copy(env, variables(s.job))
	env["SKYPILOT_TASK_ID"] = runID(s.job, s.job.Tasks[e.Task])
	env["TASK_ID"], env["TASK_NAME"], env["JOB_ID"] = strconv.Itoa(e.Task), t.Name, strconv.Itoa(s.job.ID)
	env["EVENT_TYPE"] = "Spot"
	if s.attempt != nil {
		env["CLUSTER_NAME"] = s.attempt.ClusterName
	}
	for _, name := range names {
		list := []string{"JOB_STATUS=" + name}
		for k, v := range env {
			list = append(list, k+"="+v)
		}
		c.callbacks.add(callback{dir: c.m.jobDir(c.id), task: e.Task, script: t.EventCallback, env: list}, func(err error) {
			c.m.log.Info("event callback failed", "job", c.id, "task", e.Task, "status", name, "err", err)
		})
	}
}

// maxCallbacks bounds how many wait; more are dropped.
const maxCallbacks = 100

func (b *callbacks) add(c callback, failed func(error)) {
	if b.queue == nil {
		ctx, cancel := context.WithCancel(context.Background())
		b.queue, b.cancel, b.done = make(chan callback, maxCallbacks), cancel, make(chan struct{})
		go func() {
			defer close(b.done)
			for c := range b.queue {
				if err := c.run(ctx); err != nil {
					failed(err)
				}
			}
		}()
	}
	select {
	case b.queue <- c:
	default:
		failed(errors.New("too many callbacks wait"))
	}
}

// end lets the callbacks that wait run, or with now none any more.
func (b *callbacks) end(now bool) {
	if b.queue == nil {
		return
	}
	close(b.queue)
	if now {
		b.cancel()
	}
	<-b.done
	b.cancel()
}

func (c callback) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callbackLimit)
	defer cancel()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(c.dir, "callback-"+strconv.Itoa(c.task)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	// As a file: the script may hold what must not be seen in a list of
	// processes.
	file := filepath.Join(c.dir, "callback-"+strconv.Itoa(c.task)+".sh")
	if err := os.WriteFile(file, []byte(c.script), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", file)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(os.Environ(), c.env...), c.dir, out, out
	cmd.WaitDelay = time.Second
	return cmd.Run()
}
