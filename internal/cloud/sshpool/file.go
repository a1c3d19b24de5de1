package sshpool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/wholefile"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// File is the pools' file as something that can be changed, and the folder of
// the keys that were given for pools. A person may change the file at the same
// time; what they wrote about other pools, comments too, stays.
type File struct {
	Path string
	Keys string // folder
	Home string // of the user whose file it is
}

// FileInSkyDir is the file in its usual place below ~/.sky.
func FileInSkyDir(home string) File {
	sky := filepath.Join(home, ".sky")
	return File{Path: filepath.Join(sky, PoolsFile), Keys: filepath.Join(sky, "ssh_keys"), Home: home}
}

// hidden stands for a password that is not told. Where it comes back the
// password stays what it was.
const hidden = "<redacted>"

// Pools is what the file says, by pool, without passwords.
func (f File) Pools() (map[string]map[string]any, error) {
	pools := map[string]map[string]any{}
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return pools, nil
	}
	var n *yaml11.Node
	if err == nil {
		n, err = (&yaml11.Source{Name: f.Path, Text: string(b)}).ReadOne()
	}
	if err == nil && n != nil {
		err = schema.Dict("", schema.Dict("", schema.Free).Or(schema.NullKind)).Validate(n)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pools: %w", err)
	}
	if n == nil {
		return pools, nil
	}
	for _, e := range n.Entries {
		p, _ := e.Value.Any().(map[string]any)
		passwords(p, func(in map[string]any) { in["password"] = hidden })
		pools[e.Key.Text] = p
	}
	return pools, nil
}

// passwords visits what has a password: a pool and its hosts.
func passwords(pool map[string]any, visit func(map[string]any)) {
	hosts, _ := pool["hosts"].([]any)
	for _, in := range append([]any{pool}, hosts...) {
		if m, ok := in.(map[string]any); ok && m["password"] != nil {
			visit(m)
		}
	}
}

// Set adds pools, or replaces those of the same names. An [*api.Error] says what
// is wrong with them; nothing has changed then.
func (f File) Set(ctx context.Context, pools map[string]map[string]any) error {
	return f.edit(ctx, func(text []byte, now *yaml11.Node) ([]byte, error) {
		var err error
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			next := pools[name]
			if hosts, _ := next["hosts"].([]any); len(hosts) == 0 {
				return nil, wrong("Pool %s has no hosts: give a list of addresses, or of objects with an ip.", name)
			}
			if err := keepPasswords(next, now.Lookup(name)); err != nil {
				return nil, wrong("Pool %s: %v.", name, err)
			}
			if text, err = yaml11.Set(text, []string{name}, yaml11.Of(next)); err != nil {
				return nil, err
			}
		}
		return text, nil
	})
}

// keepPasswords puts the old passwords in the place of those that were hidden.
func keepPasswords(next map[string]any, old *yaml11.Node) (err error) {
	hosts := old.List("hosts")
	passwords(next, func(in map[string]any) {
		if in["password"] != hidden {
			return
		}
		password := ""
		if ip, ok := in["ip"]; !ok {
			password = old.TextAt("password")
		} else if i := slices.IndexFunc(hosts, func(h *yaml11.Node) bool { return ipOf(h) == ip }); i >= 0 {
			password = hosts[i].TextAt("password")
		}
		if password == "" {
			err = errors.New("a password is hidden that is not on file; write it out")
		}
		in["password"] = password
	})
	return err
}

// Remove forgets a pool; its machines stay as they are. An [*api.Error] of
// [api.ErrFileNotFound] says that there is none of that name.
func (f File) Remove(ctx context.Context, name string) error {
	return f.edit(ctx, func(text []byte, now *yaml11.Node) ([]byte, error) {
		if now.Lookup(name) == nil {
			return nil, noPool(name)
		}
		return yaml11.Unset(text, []string{name})
	})
}

func noPool(name string) error {
	return &api.Error{Type: api.ErrFileNotFound, Message: fmt.Sprintf("There is no pool %q of machines of your own.", name)}
}

func wrong(format string, args ...any) error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(format, args...)}
}

// edit changes the file, if what comes out can be read.
func (f File) edit(ctx context.Context, change func(text []byte, now *yaml11.Node) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	turn := flock.New(f.Path + ".lock")
	defer turn.Close()
	if _, err := turn.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		return fmt.Errorf("waiting for another change of %s: %w", f.Path, err)
	}
	b, err := os.ReadFile(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now, err := (&yaml11.Source{Text: string(b)}).ReadOne()
	if err != nil {
		return wrong("%s cannot be read, and is left as it is: %s", f.Path, err)
	}
	out, err := change(b, now)
	if errors.Is(err, yaml11.ErrByHand) {
		return wrong("%s is left as it is: %s; edit it by hand.", f.Path, err)
	}
	if err != nil {
		return err
	}
	if _, err := parse(out, "the pools", f.Home); err != nil && !errors.Is(err, errNoPools) {
		return wrong("The pools cannot be used: %v.", err)
	}
	return wholefile.Edit(f.Path, out, 0o600)
}

var keyName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// KeyNames are the keys that were given for pools.
func (f File) KeyNames() ([]string, error) {
	names := []string{}
	entries, err := os.ReadDir(f.Keys)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && keyName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// AddKey keeps a private key under a name, and returns the path that a pool's
// identity_file names.
func (f File) AddKey(name string, key []byte) (path string, err error) {
	if !keyName.MatchString(name) {
		return "", wrong("%q cannot be a key's name: use at most 100 letters, digits, dots, dashes and underscores.", name)
	}
	if _, err := ssh.ParseRawPrivateKey(key); err != nil {
		if errors.As(err, new(*ssh.PassphraseMissingError)) {
			return "", wrong("The key %s is protected by a passphrase, which nobody could type here: give one without, or use an ssh agent.", name)
		}
		return "", wrong("The key %s is no private key in a form that ssh-keygen writes.", name)
	}
	path = filepath.Join(f.Keys, name)
	return path, wholefile.WriteSynced(path, key, 0o600)
}
