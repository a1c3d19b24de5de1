// Command pack builds sky-agent and sky-mount for the kinds of machines that are rented
// and puts the results where a build with the tag "agents" takes them in.
//
//	go run ./internal/remote/agents/pack [os/arch ...]
//
// Without arguments it packs for linux/amd64 and linux/arm64.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// into is where the packed agents go, from the root of the repository.
const into = "internal/remote/agents"

func main() {
	platforms := os.Args[1:]
	if len(platforms) == 0 {
		platforms = []string{"linux/amd64", "linux/arm64"}
	}
	for _, p := range platforms {
		for _, program := range []struct{ name, prefix string }{{"sky-agent", ""}, {"sky-mount", "mount-"}} {
			if err := pack(p, program.name, program.prefix); err != nil {
				fmt.Fprintf(os.Stderr, "packing %s for %s: %v\n", program.name, p, err)
				os.Exit(1)
			}
		}
	}
}

func pack(platform, name, prefix string) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return errors.New("a platform is written as os/arch")
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return err
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), into)
	work, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	program := filepath.Join(work, name)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/"+name)
	build.Dir = strings.TrimSpace(string(root))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	// A build that goes on meanwhile finds a whole file.
	if err := wholefile.Write(filepath.Join(dir, prefix+goos+"-"+goarch+".zst"), packed.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s for %s: %d bytes, %d packed\n", name, platform, len(text), packed.Len())
	return nil
}
