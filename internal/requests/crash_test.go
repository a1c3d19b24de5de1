package requests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// crashDir names the folder of the crash test to the process that it kills.
const crashDir = "SKY_TEST_CRASH_DIR"

// steps is how many lines each request of the crash test prints.
const steps = 12

// counting prints one line a step and remembers the step, so that an attempt
// after a crash goes on where the state says; the line of the step that the
// crash hit may come twice, but never changes.
func counting(ctx context.Context, c *Call) (any, error) {
	done, _ := strconv.Atoi(string(c.State()))
	for ; done < steps; done++ {
		c.Log.Spin(fmt.Sprintf("step %d", done))
		c.Log.Printf("attempt %d step %d %s", c.Attempt, done, strings.Repeat("x", 200))
		if err := c.SetState(ctx, strconv.AppendInt(nil, int64(done+1), 10)); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]int{"steps": done, "attempt": c.Attempt}, nil
}

func crashEngine(dir, server string) (*state.Store, *Engine, error) {
	store, err := state.Open(context.Background(), filepath.Join(dir, "state.db"))
	if err != nil {
		return nil, nil, err
	}
	e := New(store, Options{LogDir: filepath.Join(dir, "logs"), ServerID: server, LongWorkers: 4, Logger: slog.New(slog.DiscardHandler)})
	e.Handle("sky.long", api.ScheduleLong, counting)
	e.Handle("sky.short", api.ScheduleShort, counting)
	return store, e, nil
}

// crashChild is one life of the server: it resumes, takes new requests, writes
// down each id once it was told and each line that a reader has seen, and is
// killed.
func crashChild() {
	dir := os.Getenv(crashDir)
	life := os.Getenv(crashDir + "_LIFE")
	_, e, err := crashEngine(dir, "s")
	if err == nil {
		err = e.Start(context.Background())
	}
	if err != nil {
		fmt.Println("start:", err)
		os.Exit(1)
	}
	fmt.Println("up")
	told, err := os.OpenFile(filepath.Join(dir, "told"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	watch := func(id string) {
		f, err := os.Create(filepath.Join(dir, "seen", id+"."+life))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		e.Stream(context.Background(), id, StreamOptions{Follow: true}, f)
	}
	active, err := e.List(context.Background(), state.RequestFilter{Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, r := range active {
		go watch(r.ID)
	}
	for i := range 12 {
		name := []string{"sky.long", "sky.short"}[i%2]
		r, err := e.Submit(context.Background(), Submission{Name: name, User: state.User{ID: fmt.Sprint("u", i%3)}, Body: []byte("{}")})
		if err != nil {
			fmt.Println("submit:", err)
			os.Exit(1)
		}
		fmt.Fprintln(told, r.ID, name)
		fmt.Println("told")
		go watch(r.ID)
		if i%5 == 4 {
			if _, err := e.Cancel(context.Background(), []string{r.ID}); err != nil {
				fmt.Println("cancel:", err)
				os.Exit(1)
			}
			fmt.Fprintln(told, r.ID, "cancel")
		}
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
	}
	select {} // until the kill
}

// TestKilledServerLosesNothing kills a server again and again at random
// moments. Afterwards every request whose id was told has ended exactly once,
// and every line that any reader ever saw is still there, in its place.
func TestKilledServerLosesNothing(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "seen"), 0o700); err != nil {
		t.Fatal(err)
	}
	ended := map[string]string{}
	for life := range kills {
		crash(t, dir, life)
		if life%5 == 4 {
			checkEnded(t, dir, ended)
		}
		if t.Failed() {
			return
		}
	}

	store, e, err := crashEngine(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(context.Background())
	cancelled := map[string]bool{}
	ids := map[string]bool{}
	for line := range strings.Lines(readLog(t, filepath.Join(dir, "told"))) {
		id, what, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok { // the kill hit this line
			continue
		}
		ids[id] = true
		cancelled[id] = cancelled[id] || what == "cancel"
	}
	resumed := 0
	for id := range ids {
		r := wait(t, e, id)
		switch {
		case r.Status == api.RequestSucceeded && strings.HasPrefix(string(r.ReturnValue), `{"attempt":`) && strings.HasSuffix(string(r.ReturnValue), fmt.Sprintf(`,"steps":%d}`, steps)):
		case r.Status == api.RequestCancelled: // asked for, perhaps just before a kill
		default:
			t.Errorf("%v attempt %d: %s %s", r, r.Attempt, r.ReturnValue, r.Error)
		}
		if cancelled[id] && !r.CancelAsked {
			t.Errorf("%v: the cancel was lost", r)
		}
		if r.Attempt > 1 {
			resumed++
		}
	}
	checkEnded(t, dir, ended)
	checkSeen(t, e, dir)
	t.Logf("%d kills, %d requests, %d of them resumed", kills, len(ids), resumed)
	if resumed < kills/2 || len(ids) < kills {
		t.Error("the kills came too early or too late to test anything")
	}
}

// crash runs one life and kills it.
func crash(t *testing.T, dir string, life int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprintf("%s_LIFE=%d", crashDir, life))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	for range 1 + rand.IntN(12) { // "up", then "told" for each request
		if line, _ := r.ReadString('\n'); line != "up\n" && line != "told\n" {
			t.Errorf("life %d: %q", life, line)
		}
	}
	time.Sleep(time.Duration(rand.IntN(40_000)) * time.Microsecond)
	cmd.Process.Kill()
	rest, _ := io.ReadAll(r)
	cmd.Wait()
	if s := strings.ReplaceAll(string(rest), "told\n", ""); s != "" {
		t.Errorf("life %d: %s", life, s)
	}
}

// checkEnded sees that what had ended is still as it was.
func checkEnded(t *testing.T, dir string, ended map[string]string) {
	t.Helper()
	store, err := state.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rows, err := store.Requests().List(t.Context(), state.RequestFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.Status.Terminal() {
			continue
		}
		now := fmt.Sprint(r.Status, r.Attempt, r.FinishedAt, string(r.ReturnValue), string(r.Error))
		if was, ok := ended[r.ID]; ok && was != now {
			t.Errorf("%s ended twice: %s, then %s", r.ID, was, now)
		}
		ended[r.ID] = now
	}
}

// checkSeen sees that the replay of each log begins with what each reader saw.
// Spinner lines are not part of that: they show the moment.
func checkSeen(t *testing.T, e *Engine, dir string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	replays := map[string]string{}
	lines := 0
	for _, f := range files {
		id, _, _ := strings.Cut(f.Name(), ".")
		if _, ok := replays[id]; !ok {
			replays[id] = text(stream(t, e, id, StreamOptions{Follow: true}))
			if again := text(stream(t, e, id, StreamOptions{Follow: true})); again != replays[id] {
				t.Errorf("%s: two replays differ", id)
			}
		}
		seen := text(readLog(t, filepath.Join(dir, "seen", f.Name())))
		if i := strings.LastIndexByte(seen, '\n') + 1; i < len(seen) { // the kill hit the reader's own file
			seen = seen[:i]
		}
		lines += strings.Count(seen, "\n")
		if !strings.HasPrefix(replays[id], seen) {
			t.Errorf("%s: seen\n%s\nreplayed\n%s", f.Name(), seen, replays[id])
		}
	}
	if lines == 0 {
		t.Error("no reader saw anything")
	}
}

// text is a stream without its control lines.
func text(s string) string {
	var f plain
	return string(f.filter([]byte(s))) + string(f.rest())
}
