//go:build unix

package nodeagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/agent"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/container"
)

// memory keeps an idle agent small.
const memory = 24 << 20

// How long --start waits for the agent and --give-back for processes to go.
const (
	startTimeout = 20 * time.Second
	backTimeout  = time.Minute
)

// Main is "sky agent" with its arguments; it returns the exit code. Without one
// of the flags that name another deed it serves as the node's agent.
func Main(args []string) int {
	fs := flag.NewFlagSet("sky agent", flag.ContinueOnError)
	home := fs.String("home", os.Getenv("HOME"), "the node's home folder")
	listen := fs.String("listen", "", "address to listen on, ip:port")
	kind := fs.String("machine", "", `how to switch the node off: "local", "folder", "container", "inside", "poweroff", "marks-end" or nothing`)
	start := fs.Bool("start", false, "start an agent that goes on by itself, as JSON on standard input says")
	back := fs.String("give-back", "", "end what runs in this node's `folder`, and remove it")
	connect := fs.String("connect", "", "join standard input and output to this `address`")
	contain := fs.Bool("contain", false, "make the container run that JSON on standard input describes")
	keep := fs.String("keep", "", "wait for the end of this `container`, and do with the machine what it says")
	send := fs.Bool("send", false, "bring this program to another node, as JSON on standard input says")
	hash := fs.Bool("hash", false, "print the SHA-256 of this program")
	version := fs.Bool("version", false, "print version and build")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	switch {
	case *version:
		fmt.Println(api.ProductVersion, buildid.ID())
	case *hash:
		err = printHash(os.Stdout)
	case *start:
		return startFrom(ctx, os.Stdin, os.Stdout)
	case *back != "":
		ctx, cancel := context.WithTimeout(ctx, backTimeout)
		defer cancel()
		err = folderNode(*back).Terminate(ctx)
	case *contain:
		return container.Contain(ctx, os.Stdin, os.Stdout, spawnKeeper)
	case *keep != "":
		err = keepContainer(ctx, *home, *keep, *kind)
	case *send:
		err = sendTo(ctx, os.Stdin, os.Stdout)
	case *connect != "":
		err = relay(ctx, *connect, os.Stdin, os.Stdout)
	case *listen == "" || *home == "":
		fmt.Fprintln(os.Stderr, "sky agent: --home and --listen are needed")
		return 2
	default:
		err = serve(ctx, *home, *listen, *kind)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "sky agent:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, home, listen, kind string) error {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memory)
	m, err := machine(kind)
	if err != nil {
		return err
	}
	return agent.Run(ctx, agent.Options{
		Home: home, Listen: listen, Machine: m, SharedMachine: kind == MachineLocal, Version: api.ProductVersion, BuildID: buildid.ID(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// startFrom reads a Spec and writes the agent's Life, or a Refusal.
func startFrom(ctx context.Context, in io.Reader, out io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var s Spec
	err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&s)
	if err == nil && s.Container != "" {
		return startWithin(ctx, s, out)
	}
	if err == nil && s.Home == "" {
		s.Home, err = os.UserHomeDir()
	}
	if err == nil && s.OpenFiles > 0 {
		if lerr := allowOpenFiles(ctx, s.OpenFiles); lerr != nil {
			fmt.Fprintln(os.Stderr, "sky agent: the limit of open files was not raised:", lerr)
		}
	}
	if share := folder.ShareOf(s.Node); err == nil && share != nil {
		if lerr := confineToShare(ctx, s.Node, share); lerr != nil {
			fmt.Fprintln(os.Stderr, "sky agent:", lerr)
		}
	}
	var l Life
	if err == nil {
		self, serr := os.Executable()
		if err = serr; err == nil {
			l, err = Start(ctx, self, buildid.ID(), s)
		}
	}
	if err != nil {
		noSpace := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		json.NewEncoder(out).Encode(Refusal{Error: err.Error(), NoSpace: noSpace})
		return 1
	}
	json.NewEncoder(out).Encode(l)
	return 0
}

func printHash(out io.Writer) error {
	f, err := os.Open(buildid.Self())
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	fmt.Fprintln(out, hex.EncodeToString(h.Sum(nil)))
	return nil
}

// relay is for nodes whose addresses cannot be dialled from outside.
func relay(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		io.Copy(conn, in)
		conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(out, conn)
	return err
}
