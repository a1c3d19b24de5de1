package sshpool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

const (
	claimTimeout = 30 * time.Second
	giveTimeout  = 2 * time.Minute
)

// claim writes a record onto a machine if there is none, and tells whose the
// machine is now. The record appears whole, and only one can: it is linked to
// its name. The node's home gets the user's .bashrc, in which paths below the
// home folder go on meaning the user's.
func (p *Provider) claim(ctx context.Context, h *host, r record) *seen {
	line, err := json.Marshal(r)
	if err != nil {
		return &seen{host: h, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	s := p.ask(ctx, h, where+fmt.Sprintf(`mkdir -p "$d" || exit 1
t="$d/.claim.$$"
echo %s >"$t" || { c=$?; rm -f "$t"; exit $c; }
if [ ! -e "$d/%[2]s" ] && ln "$t" "$d/%[3]s" 2>/dev/null; then
  [ -e "$d/%[2]s" ] && rm -f "$d/%[3]s"
fi
rm -f "$t"
if [ "$(cat "$d/%[3]s" 2>/dev/null)" = %[1]s ]; then
  mkdir -p "$d/%[4]s" || exit 1
  if [ -f "$HOME/.bashrc" ] && [ ! -e "$d/%[4]s/.bashrc" ]; then
    sed "s#\$HOME\([^A-Za-z0-9_]\|\$\)#$HOME\1#g; s#\${HOME}#$HOME#g; s#~/#$HOME/#g" "$HOME/.bashrc" >"$d/%[4]s/.bashrc" 2>/dev/null
  fi
fi
`, sshconn.Quote(string(line)), folder.Leaving, folder.Record, folder.Home)+tell)
	if s.err == nil {
		s.shape, _ = p.facts.get(h)
	}
	return s
}

// giveBack ends all that runs in the node's folder on a machine and removes it,
// if the record there still is the one that was seen.
func (p *Provider) giveBack(ctx context.Context, s *seen) *seen {
	ctx, cancel := context.WithTimeout(ctx, giveTimeout)
	defer cancel()
	file := folder.Record
	if s.leaving {
		file = folder.Leaving
	}
	return p.ask(ctx, s.host, where+fmt.Sprintf(`if [ "$(cat "$d/%[1]s" 2>/dev/null)" = %[2]s ]; then
  for b in "$d"/%[3]s/.sky/runtime/*/sky; do
    [ -x "$b" ] && "$b" agent --give-back "$d" </dev/null 2>/dev/null && break
  done
fi
if [ "$(cat "$d/%[1]s" 2>/dev/null)" = %[2]s ] || [ "$(cat "$d/%[4]s" 2>/dev/null)" = %[2]s ]; then
  # No agent was ever brought here, or it does not run any more.
  [ -e "$d/%[4]s" ] || mv "$d/%[1]s" "$d/%[4]s"
  [ -d "$d/%[3]s/.sky" ] && for k in TERM KILL; do
    for e in /proc/[0-9]*/environ; do
      if { tr '\0' '\n' <"$e"; } 2>/dev/null | grep -qxF "SKY_NODE=$d"; then
        q=${e#/proc/}; kill -$k "${q%%%%/*}" 2>/dev/null && w=1
      fi
    done
    [ -n "$w" ] && sleep 2; w=
  done
  for f in "$d"/* "$d"/.[!.]*; do [ "$f" = "$d/%[4]s" ] || rm -rf "$f"; done
  rm -f "$d/%[4]s"
  rmdir "$d" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
fi
`, file, sshconn.Quote(s.raw), folder.Home, folder.Leaving)+tell)
}
