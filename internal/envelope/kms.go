package envelope

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// KMS encrypts master keys with a key that never leaves a key management
// service, through a command that the administrator of the server configured.
// The command gets "wrap" or "unwrap" as its last argument and in
// SKY_KMS_OPERATION, base64 of the bytes on its standard input, and prints base64
// of the result.
type KMS struct{ Command string }

// kmsLimit bounds one call of the command.
const kmsLimit = 30 * time.Second

// Wrap encrypts a key.
func (k KMS) Wrap(ctx context.Context, key Key) ([]byte, error) {
	return k.run(ctx, "wrap", key.raw[:])
}

// Unwrap decrypts what Wrap returned.
func (k KMS) Unwrap(ctx context.Context, wrapped []byte) (Key, error) {
	raw, err := k.run(ctx, "unwrap", wrapped)
	if err != nil {
		return Key{}, err
	}
	if len(raw) != keySize {
		return Key{}, fmt.Errorf("the command for encryption keys gave %d bytes for \"unwrap\", not the %d that it was given to wrap", len(raw), keySize)
	}
	return keyOf([keySize]byte(raw)), nil
}

func (k KMS) run(ctx context.Context, operation string, in []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, kmsLimit)
	defer cancel()
	// The shell sees the command of the administrator and a constant.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", k.Command+` "$@"`, "sh", operation)
	if runtime.GOOS == "windows" {
		cmd = exec.CommandContext(ctx, "cmd", "/C", k.Command+" "+operation)
	}
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "SKY_KMS_OPERATION="+operation)
	cmd.Stdin = strings.NewReader(base64.StdEncoding.EncodeToString(in) + "\n")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if cause := ctx.Err(); cause != nil {
			err = fmt.Errorf("no answer within %v", kmsLimit)
		}
		return nil, fmt.Errorf("the command for encryption keys failed for %q: %w: %s", operation, err, lastLine(complaint.String()))
	}
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(out.String()), ""))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("the command for encryption keys printed no base64 for %q", operation)
	}
	return b, nil
}

// lastLine is the last line that says something.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
