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

	"github.com/goccy/go-yaml"
	"github.com/gofrs/flock"
	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/wholefile"
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
	if err == nil {
		err = yaml.Unmarshal(b, &pools)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Path, err)
	}
	for _, p := range pools {
		passwords(p, func(in map[string]any) { in["password"] = hidden })
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
	return f.edit(ctx, func(all *yaml.MapSlice) error {
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			i := slices.IndexFunc(*all, func(m yaml.MapItem) bool { return m.Key == name })
			if i < 0 {
				i = len(*all)
				*all = append(*all, yaml.MapItem{Key: name})
			}
			next := pools[name]
			if hosts, _ := next["hosts"].([]any); len(hosts) == 0 {
				return wrong("Pool %s has no hosts: give a list of addresses, or of objects with an ip.", name)
			}
			if err := keepPasswords(next, (*all)[i].Value); err != nil {
				return wrong("Pool %s: %v.", name, err)
			}
			(*all)[i].Value = next
		}
		return nil
	})
}

// keepPasswords puts the old passwords in the place of those that were hidden.
func keepPasswords(next map[string]any, old any) (err error) {
	b, err := yaml.Marshal(old)
	if err != nil {
		return err
	}
	var was poolEntry
	if err := yaml.Unmarshal(b, &was); err != nil {
		was = poolEntry{}
	}
	passwords(next, func(in map[string]any) {
		if in["password"] != hidden {
			return
		}
		password := ""
		if ip, ok := in["ip"]; !ok {
			password = was.Password
		} else if i := slices.IndexFunc(was.Hosts, func(h hostEntry) bool { return h.IP == ip }); i >= 0 {
			password = was.Hosts[i].Password
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
	return f.edit(ctx, func(all *yaml.MapSlice) error {
		before := len(*all)
		*all = slices.DeleteFunc(*all, func(m yaml.MapItem) bool { return m.Key == name })
		if len(*all) == before {
			return noPool(name)
		}
		return nil
	})
}

func noPool(name string) error {
	return &api.Error{Type: api.ErrFileNotFound, Message: fmt.Sprintf("There is no pool %q of machines of your own.", name)}
}

func wrong(format string, args ...any) error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(format, args...)}
}

// edit changes the file, if what comes out can be read.
func (f File) edit(ctx context.Context, change func(*yaml.MapSlice) error) error {
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
	var all yaml.MapSlice
	comments := yaml.CommentMap{}
	if err := yaml.UnmarshalWithOptions(b, &all, yaml.CommentToMap(comments)); err != nil {
		return wrong("%s cannot be read, and is left as it is: %s", f.Path, yaml.FormatError(err, false, false))
	}
	if err := change(&all); err != nil {
		return err
	}
	out := []byte{}
	if len(all) > 0 {
		if out, err = yaml.MarshalWithOptions(all, yaml.WithComment(comments), yaml.IndentSequence(true)); err != nil {
			return err
		}
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
