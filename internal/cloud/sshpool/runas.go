package sshpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// Submitter is a user of sky, as far as the server vouches for it.
type Submitter struct {
	Name string
	// Listed says that only a list of accounts may say which account is the user's, as
	// somebody chose the name freely.
	Listed bool
}

// What run_as may say.
const (
	runAsLogin     = "login"
	runAsSubmitter = "submitter"
)

// runAs says whose account clusters run as on a host.
type runAs struct {
	submitter bool              // the user's who launches; else the login's
	accounts  map[string]string // by the user's name; nil: the account has the user's name
}

func newRunAs(who string, accounts map[string]string) (runAs, error) {
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if err := sshconn.CheckAccount(accounts[name]); err != nil {
			return runAs{}, fmt.Errorf("accounts: %s: %w", name, err)
		}
	}
	switch who {
	case "", runAsLogin:
		return runAs{}, nil
	case runAsSubmitter:
		return runAs{true, accounts}, nil
	}
	return runAs{}, fmt.Errorf("run_as: it is %s or %s, not %q", runAsLogin, runAsSubmitter, who)
}

// An accountError means that a user's clusters cannot run on a host, for want of an account.
type accountError struct{ err error }

func (e *accountError) Error() string { return e.err.Error() }

func isAccountRefusal(err error) bool {
	_, account := errors.AsType[*accountError](err)
	_, sudo := errors.AsType[*sshconn.RunAsError](err)
	return account || sudo
}

// account is the account that a user's clusters run as on the host; "": as the login,
// whoever launches. It is pure.
func (h *host) account(by Submitter) (string, error) {
	if !h.runAs.submitter {
		return "", nil
	}
	name := by.Name
	if h.runAs.accounts != nil || by.Listed {
		var ok bool
		if name, ok = h.runAs.accounts[by.Name]; !ok {
			return "", &accountError{fmt.Errorf("clusters run there as their users' accounts (run_as: submitter), and accounts of pool %s names none for %s: the administrator adds it to the pool, as accounts: {%s: UNIX-ACCOUNT}",
				h.pool, by.Name, by.Name)}
		}
	}
	if err := sshconn.CheckAccount(name); err != nil {
		return "", &accountError{fmt.Errorf("clusters run there as their users' accounts (run_as: submitter): %w; the administrator can name another account in the pool, as accounts: {%s: UNIX-ACCOUNT}", err, by.Name)}
	}
	return name, nil
}

// Numbers of accounts of people.
const (
	firstPerson      = 1000
	firstPersonMacOS = 500
	nobody           = 65534
)

// checkPerson refuses accounts of the system, by what [personScript] printed.
func checkPerson(h *host, account, said string) error {
	refused := func(format string, args ...any) error {
		return &accountError{fmt.Errorf("clusters run there as their users' accounts (run_as: submitter), and "+format, args...)}
	}
	uid, system, _ := strings.Cut(strings.TrimSpace(said), " ")
	n, err := strconv.Atoi(uid)
	first := firstPerson
	if system == "Darwin" {
		first = firstPersonMacOS
	}
	switch {
	case err != nil:
		return refused("%s has no account %s; as root on that host: useradd -m %s", h.name, account, account)
	case n < first || n == nobody:
		return refused("%s is an account of the system on %s (its number is %d); name the account of a person, with a number from %d", account, h.name, n, first)
	}
	return nil
}

// personScript prints the number of an account and the operating system.
func personScript(account string) string {
	return "echo \"$(id -u " + sshconn.Quote(account) + " 2>/dev/null) $(uname -s)\"\n"
}

// admit finds out as which account new nodes would run on each machine that may get one.
// A machine that does not allow it counts as down, before anything is claimed there.
func (l *launch) admit(ctx context.Context) error {
	l.accounts = map[*host]string{}
	machines := slices.DeleteFunc(l.candidates(), func(s *seen) bool { return !s.host.runAs.submitter })
	if len(machines) == 0 || len(l.missing()) == 0 {
		return nil
	}
	invalid := func(err error) error { return &cloud.InvalidError{Place: l.spec.Offer.Place, Err: err} }
	if l.p.o.Submitter == nil {
		return invalid(fmt.Errorf("run_as: %s: this server does not know who its users are", runAsSubmitter))
	}
	by, err := l.p.o.Submitter(ctx, l.spec.UserID)
	if err != nil {
		return invalid(fmt.Errorf("run_as: %s: %w", runAsSubmitter, err))
	}
	type admitted struct {
		account string
		err     error
	}
	got := parallel(machines, func(s *seen) admitted {
		account, err := s.host.account(by)
		if err == nil && account != "" {
			err = l.p.admit(ctx, s.host, account)
		}
		return admitted{account, err}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, a := range got {
		s := machines[i]
		l.accounts[s.host] = a.account
		if a.err != nil {
			l.seen = slices.DeleteFunc(l.seen, func(o *seen) bool { return o == s })
			l.down = append(l.down, &seen{host: s.host, err: a.err})
		}
	}
	return nil
}

// admit refuses an account that is no person's, or that the login may not use.
func (p *Provider) admit(ctx context.Context, h *host, account string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	said, err := p.run(ctx, h, "", personScript(account))
	if err != nil {
		return err
	}
	if err := checkPerson(h, account, string(said)); err != nil {
		return err
	}
	return p.askAs(ctx, h, account, where+tell).err
}

// askAccounts asks the accounts that have nodes on a machine what became of them, and
// takes off the list of nodes those that have given themselves back.
func (p *Provider) askAccounts(ctx context.Context, s *seen) {
	inside := map[string]*seen{}
	for _, h := range s.held {
		if h.record.RunAs != "" {
			inside[h.record.RunAs] = nil
		}
	}
	if len(inside) == 0 {
		return
	}
	var mu sync.Mutex
	parallel(slices.Collect(maps.Keys(inside)), func(account string) struct{} {
		in := p.askAs(ctx, s.host, account, where+tell)
		mu.Lock()
		defer mu.Unlock()
		inside[account] = in
		return struct{}{}
	})
	var gone []held
	s.held, gone = joined(s.held, inside)
	for _, h := range gone {
		// If this fails, whoever looks next does it.
		_, _ = p.run(ctx, s.host, "", unlist(h))
	}
}

// joined adds to the nodes on a login's list what the accounts that have them said.
// gone are those that were claimed for good and whose account has no folder any more. It
// is pure.
func joined(list []held, inside map[string]*seen) (left, gone []held) {
	for _, h := range list {
		in := inside[h.record.RunAs]
		if h.record.RunAs == "" || in == nil {
			left = append(left, h)
			continue
		}
		i := slices.IndexFunc(in.held, func(o held) bool { return path.Base(o.dir) == path.Base(h.dir) })
		h.node = ""
		switch {
		case in.err != nil:
			h.problem = in.err
		case i >= 0:
			h.node, h.leaving, h.ready = in.held[i].dir, in.held[i].leaving, h.ready && in.held[i].ready
		case h.ready:
			gone = append(gone, h)
			continue
		}
		left = append(left, h)
	}
	return left, gone
}

// unlist is a script that takes a node off the login's list, if the record is still the
// one that was seen.
func unlist(h held) string {
	return fmt.Sprintf(`s=%[1]s
if [ "$(cat "$s/%[2]s" 2>/dev/null)" = %[3]s ]; then
  rm -f "$s/%[2]s" || exit 1
  rmdir "$s/%[4]s" "$s" "${s%%/*}" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
fi
`, sshconn.Quote(h.dir), folder.Record, sshconn.Quote(h.raw), folder.Home)
}

// unasked are the machines with nodes of a cluster whose accounts could not be asked
// about them.
func unasked(looks []*seen, id cloud.ClusterID) []*seen {
	var out []*seen
	for _, s := range looks {
		for _, n := range s.of(id) {
			if n.problem != nil {
				out = append(out, &seen{host: s.host, err: fmt.Errorf("cluster %s runs there as %s, and nothing can be done as %s now (if the account is gone for good: rm -r %s on that host, as %s): %w",
					n.record.Cluster, n.record.RunAs, n.record.RunAs, n.dir, s.host.reach.User, n.problem)})
			}
		}
	}
	return out
}
