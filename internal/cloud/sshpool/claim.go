package sshpool

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

const (
	claimTimeout = 30 * time.Second
	giveTimeout  = 2 * time.Minute
)

// newDir makes up the name of a node's folder below $d.d, a new one for each claim: by
// the name others see whether a claim is one that they know.
func newDir() string { return fmt.Sprintf("%012x", rand.Uint64()>>16) }

// claim writes a record onto a machine, and says what is there then. known are the
// nodes that were there when the claim was planned. Several may claim at once, from
// different servers, and none of them has a lock that outlives a broken connection.
// So each first writes its record, then looks for others: if there is one that it
// did not know, it withdraws. Of two that claim at once at least the later one sees the other.
// Only then the node's home is made, which settles the claim. A record without
// a home counts for everybody else, and its owner claims again.
//
// The home gets the user's .bashrc, in which paths below the home folder go on meaning
// the user's.
func (p *Provider) claim(ctx context.Context, h *host, r record, known []held) *seen {
	line, err := json.Marshal(r)
	if err != nil {
		return &seen{host: h, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	var expected strings.Builder
	name := newDir()
	for _, k := range append(slices.Clone(known), held{dir: name}) {
		expected.WriteString(" " + path.Base(k.dir))
	}
	s := p.ask(ctx, h, where+fmt.Sprintf(`s="$d.d/%[5]s"
mkdir -p "$s" || mkdir -p "$s" || exit 1 # once more: the last to leave removes the folder above
t="$s/.claim.$$"
echo %[1]s >"$t" || { c=$?; rm -f "$t"; exit $c; }
if [ ! -e "$s/%[2]s" ] && [ ! -e "$s/%[3]s" ]; then
  ln "$t" "$s/%[3]s" 2>/dev/null
fi
rm -f "$t"
late=
for e in "$d" "$d".d/*; do
  [ -e "$e/%[2]s" ] || [ -e "$e/%[3]s" ] || continue
  case %[6]s in *" ${e##*/} "*) ;; *) late=1 ;; esac
done
if [ "$(cat "$s/%[3]s" 2>/dev/null)" != %[1]s ]; then :
elif [ -n "$late" ]; then
  rm -f "$s/%[3]s"
  rmdir "$s" "$d.d" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
else
  mkdir -p "$s/%[4]s" || exit 1
  if [ -f "$HOME/.bashrc" ] && [ ! -e "$s/%[4]s/.bashrc" ]; then
    sed "s#\$HOME\([^A-Za-z0-9_]\|\$\)#$HOME\1#g; s#\${HOME}#$HOME#g; s#~/#$HOME/#g" "$HOME/.bashrc" >"$s/%[4]s/.bashrc" 2>/dev/null
  fi
fi
`, sshconn.Quote(string(line)), folder.Leaving, folder.Record, folder.Home, name, sshconn.Quote(expected.String()+" "))+tell)
	if s.err == nil {
		s.shape, _ = p.facts.get(h)
	}
	return s
}

// giveBack ends all that runs in a node's folder on a machine and removes it,
// if the record there still is the one that was seen.
func (p *Provider) giveBack(ctx context.Context, h *host, n held) *seen {
	ctx, cancel := context.WithTimeout(ctx, giveTimeout)
	defer cancel()
	file := folder.Record
	if n.leaving {
		file = folder.Leaving
	}
	return p.ask(ctx, h, where+fmt.Sprintf(`s=%[5]s
r=$(readlink "$s/%[3]s/.sky/runtime" 2>/dev/null)
if [ "$(cat "$s/%[1]s" 2>/dev/null)" = %[2]s ]; then
  for b in "$s"/%[3]s/.sky/runtime/*/sky; do
    [ -x "$b" ] && "$b" agent --give-back "$s" </dev/null 2>/dev/null && break
  done
fi
if [ "$(cat "$s/%[1]s" 2>/dev/null)" = %[2]s ] || [ "$(cat "$s/%[4]s" 2>/dev/null)" = %[2]s ]; then
  # No agent was ever brought here, or it does not run any more.
  [ -e "$s/%[4]s" ] || mv "$s/%[1]s" "$s/%[4]s"
  [ -d "$s/%[3]s/.sky" ] && for k in TERM KILL; do
    for e in /proc/[0-9]*/environ; do
      if { tr '\0' '\n' <"$e"; } 2>/dev/null | grep -qxF "SKY_NODE=$s"; then
        q=${e#/proc/}; kill -$k "${q%%%%/*}" 2>/dev/null && w=1
      fi
    done
    [ -n "$w" ] && sleep 2; w=
  done
  for f in "$s"/* "$s"/.[!.]*; do [ "$f" = "$s/%[4]s" ] || rm -rf "$f"; done
  rm -f "$s/%[4]s"
  case ${r##*/} in %[6]s*) rm -rf "$r" ;; esac
  rmdir "$s" "${s%%/*}" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
fi
`, file, sshconn.Quote(n.raw), folder.Home, folder.Leaving, sshconn.Quote(n.dir), folder.RuntimePrefix)+tell)
}
