package vm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Key is an ssh key that an account keeps.
type Key struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Public string `json:"public_key"`
}

// KeyCalls are a cloud's calls about ssh keys.
type KeyCalls struct {
	List   func(ctx context.Context) ([]Key, error)
	Make   func(ctx context.Context, k Key) error
	Delete func(ctx context.Context, k Key) error // nil: names are unique
}

// EnsureKey returns the account's ssh key with this public half, which it makes if it
// is missing. Keys are shared by all clusters and stay. A name that two keys have is
// good for nothing: all but one of those that sky made go.
func (p *Provider) EnsureKey(ctx context.Context, public string, calls KeyCalls) (Key, error) {
	done, err := p.turns.Lock(ctx, cloud.ClusterID{Installation: "\x00keys"})
	if err != nil {
		return Key{}, err
	}
	defer done()
	want := strings.Join(strings.Fields(public)[:2], " ")
	name := fmt.Sprintf("sky-key-%x", sha256.Sum256([]byte(want)))[:24]
	for made := false; ; made = true {
		all, err := calls.List(ctx)
		if err != nil {
			return Key{}, err
		}
		slices.SortFunc(all, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
		count := map[string]int{}
		for _, k := range all {
			if count[k.Name]++; calls.Delete != nil && k.Name == name && count[name] > 1 {
				if err := calls.Delete(ctx, k); err != nil && kind(p.d, err) != Missing {
					return Key{}, err
				}
				count[name]--
			}
		}
		for _, k := range all {
			if count[k.Name] == 1 && strings.HasPrefix(k.Public+" ", want+" ") {
				return k, nil
			}
		}
		if made {
			return Key{}, &rest.NoAnswerError{Cloud: p.o.DisplayName, Err: fmt.Errorf("the ssh key %s is not listed", name)}
		}
		if err := calls.Make(ctx, Key{Name: name, Public: want}); err != nil {
			return Key{}, err
		}
	}
}
