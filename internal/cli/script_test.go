package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/internal/proc"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sky": func() {
		os.Exit(Main(Program{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Serve: serveFake, Patience: 2 * time.Second,
			Agent: func(args []string) int { fmt.Println("agent", args); return 9 },
		}))
	}})
}

// TestScripts runs what users type; a fake API server answers.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			srv := httptest.NewServer(newFakeAPI())
			e.Defer(srv.Close)
			e.Setenv("SKYPILOT_API_SERVER_ENDPOINT", srv.URL)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("USER", "me")
			e.Setenv("SKYPILOT_USER_ID", "abcd1234")
			e.Setenv("SKY_API_PORT", fmt.Sprint(porttest.Free(t)))
			e.Setenv("TERM", "xterm")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command of a -race build waits a second
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// exitcode N sky …: the command ends with N.
			"exitcode": func(ts *testscript.TestScript, _ bool, args []string) {
				if err := ts.Exec("sh", append([]string{"-c", `code=$1; shift; "$@"; got=$?; test $got = $code || { echo "exit code $got, want $code"; exit 1; }`, "sh"}, args...)...); err != nil {
					ts.Fatalf("%v", err)
				}
			},
			// refuse sky …: a wrong use, which ends with 2. It runs in this process and
			// so may not depend on the script's folder.
			"refuse": func(ts *testscript.TestScript, _ bool, args []string) {
				code := Main(Program{
					Args: args[1:], Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(),
					Environ: []string{
						"HOME=" + ts.Getenv("HOME"), "SKYPILOT_USER_ID=abcd1234", "USER=me",
						"SKYPILOT_API_SERVER_ENDPOINT=" + ts.Getenv("SKYPILOT_API_SERVER_ENDPOINT"),
					},
				})
				if code != 2 {
					ts.Fatalf("exit code %d, want 2", code)
				}
			},
			// calls prints what the server was asked.
			"calls": func(ts *testscript.TestScript, _ bool, _ []string) {
				res, err := http.Get(ts.Getenv("SKYPILOT_API_SERVER_ENDPOINT") + "/calls")
				ts.Check(err)
				defer res.Body.Close()
				b := make([]byte, 1<<20)
				n, _ := res.Body.Read(b)
				ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "calls.txt"), b[:n], 0o600))
			},
		},
	})
}

// serveFake is the API server of scripts that use a local one.
func serveFake(ctx context.Context, o ServeOptions) error {
	if os.Getenv("FAKE_SERVER") == "dies" {
		return fmt.Errorf("the disk is full")
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.Port))
	if err != nil {
		return err
	}
	start, _ := proc.StartTime(os.Getpid())
	in, _ := json.Marshal(sky.Instance{PID: os.Getpid(), Start: start, InstanceID: "one", Endpoint: fmt.Sprintf("http://127.0.0.1:%d", o.Port)})
	if err := os.WriteFile(sky.InstanceFile(os.Getenv("HOME")), in, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(sky.OwnerFile(os.Getenv("HOME")), []byte(api.OwnerPrefix+"fake"), 0o600); err != nil {
		return err
	}
	srv := &http.Server{Handler: newFakeAPI()}
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
