package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/api"
)

// sshEnv is a server whose nodes' sshd is the other end of a pipe.
func sshEnv(t *testing.T) (env *testEnv, sshd net.Conn) {
	sshd, remote := net.Pipe()
	env = newTestEnv(t, func(d *Deps) {
		d.SSHD = func(_ context.Context, cluster string, node int) (net.Conn, error) {
			if cluster != "c" || node != 1 {
				return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "no such cluster"}
			}
			return remote, nil
		}
	})
	_ = sshd.SetDeadline(time.Now().Add(time.Minute))
	return env, sshd
}

func (env *testEnv) socket(path string) *websocket.Conn {
	env.t.Helper()
	c, _, err := websocket.Dial(env.t.Context(), env.url+path, nil)
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { c.CloseNow() })
	return c
}

func hears(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("heard %q (%v), want %q", got, err, want)
	}
}

func reads(t *testing.T, c *websocket.Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, m, err := c.Read(ctx)
	if err != nil || string(m) != want {
		t.Fatalf("the client read %q (%v), want %q", m, err, want)
	}
}

const proxyPath = "/kubernetes-pod-ssh-proxy?cluster_name=c&worker=1"

func TestSSHProxyCarriesFrames(t *testing.T) {
	env, sshd := sshEnv(t)
	c := env.socket(proxyPath + "&client_version=53")
	say := func(m string) {
		t.Helper()
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	go io.WriteString(sshd, "SSH-2.0-x\r\n")
	reads(t, c, "\x00SSH-2.0-x\r\n")
	say("\x00SSH-2.0-y\r\n")
	hears(t, sshd, "SSH-2.0-y\r\n")
	say("\x01\x00\x00\x00\x07") // a ping
	reads(t, c, "\x01\x00\x00\x00\x07")
	say("\x02\x00\x00\x00\x00\x00\x00\x00\x09")
	say("")
	say("\x00more")
	hears(t, sshd, "more")
	sshd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("ended with %v", err)
	}
}

// Clients that tell no version, an old one, or that they frame and then do not.
func TestSSHProxyCarriesRawBytes(t *testing.T) {
	for _, query := range []string{"", "&client_version=21", "&client_version=53"} {
		env, sshd := sshEnv(t)
		c := env.socket(proxyPath + query)
		for _, m := range []string{"SSH-2.0-y\r\n", "\x01\x02\x03"} {
			if err := c.Write(t.Context(), websocket.MessageBinary, []byte(m)); err != nil {
				t.Fatal(err)
			}
			hears(t, sshd, m)
		}
		c.CloseNow()
		if _, err := sshd.Read(make([]byte, 1)); err == nil {
			t.Error("the sshd's side outlives the client")
		}
	}
}

func TestSSHProxyRefusals(t *testing.T) {
	env, _ := sshEnv(t)
	upgrade := []string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for path, want := range map[string]int{
		"/kubernetes-pod-ssh-proxy":                             422,
		"/kubernetes-pod-ssh-proxy?cluster_name=c&worker=x":     422,
		"/kubernetes-pod-ssh-proxy?cluster_name=c&worker=-1":    422,
		"/slurm-job-ssh-proxy?cluster_name=nosuch&worker=0":     404,
		"/slurm-job-ssh-proxy?cluster_name=c&client_version=no": 422,
	} {
		if r := env.call(get, path, "", upgrade...); r.status != want {
			t.Errorf("%s: %d %s, want %d", path, r.status, r.body, want)
		}
	}
	if r := env.call(get, proxyPath, ""); r.status != 426 {
		t.Errorf("without a websocket: %d %s", r.status, r.body)
	}
	if !bytes.Contains(description(), []byte("/kubernetes-pod-ssh-proxy")) {
		t.Error("the route is not described")
	}
}
