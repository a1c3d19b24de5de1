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
// The home of a node that runs as another account is made in that account before the
// claim is settled, so that a settled claim without it is a node that gave itself back.
func (p *Provider) claim(ctx context.Context, h *host, r record, known []held) *seen {
	line, err := json.Marshal(r)
	if err != nil {
		return &seen{host: h, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	name := newDir()
	settle := makeHome
	if r.RunAs != "" {
		settle = ""
	}
	s := p.ask(ctx, h, claimScript(name, string(line), known, settle))
	if s.err == nil && r.RunAs != "" && slices.ContainsFunc(s.held, func(o held) bool { return o.raw == string(line) }) {
		if s = p.askAs(ctx, h, r.RunAs, nodeScript(name, string(line))); s.err == nil {
			s = p.ask(ctx, h, settleScript(name, string(line)))
		}
	}
	if s.err == nil {
		s.size, _ = p.facts.get(h)
	}
	return s
}

// claimScript writes a record into the folder of that name, unless others are there that
// were not known; then it runs settle.
func claimScript(name, line string, known []held, settle string) string {
	var expected strings.Builder
	for _, k := range append(slices.Clone(known), held{dir: name}) {
		expected.WriteString(" " + path.Base(k.dir))
	}
	return where + fmt.Sprintf(`s="$d.d/%[4]s"
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
  case %[5]s in *" ${e##*/} "*) ;; *) late=1 ;; esac
done
if [ "$(cat "$s/%[3]s" 2>/dev/null)" != %[1]s ]; then :
elif [ -n "$late" ]; then
  rm -f "$s/%[3]s"
  rmdir "$s" "$d.d" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
else :
%[6]sfi
`, sshconn.Quote(line), folder.Leaving, folder.Record, name, sshconn.Quote(expected.String()+" "), settle) + tell
}

// makeHome makes the home of the node in $s. It gets the user's .bashrc, in which paths
// below the home folder go on meaning the user's.
const makeHome = `  mkdir -p "$s/` + folder.Home + `" || exit 1
  if [ -f "$HOME/.bashrc" ] && [ ! -e "$s/` + folder.Home + `/.bashrc" ]; then
    sed "s#\$HOME\([^A-Za-z0-9_]\|\$\)#$HOME\1#g; s#\${HOME}#$HOME#g; s#~/#$HOME/#g" "$HOME/.bashrc" >"$s/` + folder.Home + `/.bashrc" 2>/dev/null
  fi
`

// nodeScript makes the folder of a node in the account that it runs as.
func nodeScript(name, line string) string {
	return where + fmt.Sprintf(`s="$d.d/%[1]s"
mkdir -p "$s" || mkdir -p "$s" || exit 1
if [ ! -e "$s/%[2]s" ]; then
  echo %[3]s >"$s/.claim" && mv "$s/.claim" "$s/%[2]s" || exit 1
fi
%[4]s`, name, folder.Record, sshconn.Quote(line), makeHome) + tell
}

// settleScript settles a claim whose node has its home in another account.
func settleScript(name, line string) string {
	return where + fmt.Sprintf(`s="$d.d/%[1]s"
[ "$(cat "$s/%[2]s" 2>/dev/null)" != %[3]s ] || mkdir -p "$s/%[4]s" || exit 1
`, name, folder.Record, sshconn.Quote(line), folder.Home) + tell
}

// giveBack ends all that runs in a node's folder on a machine and removes it,
// if the record there still is the one that was seen.
func (p *Provider) giveBack(ctx context.Context, h *host, n held) *seen {
	ctx, cancel := context.WithTimeout(ctx, giveTimeout)
	defer cancel()
	if n.record.RunAs == "" {
		return p.ask(ctx, h, giveBackScript(n, `s=`+sshconn.Quote(n.dir)))
	}
	base := path.Base(n.dir)
	in := p.askAs(ctx, h, n.record.RunAs, giveBackScript(n, `s="$d.d/"`+sshconn.Quote(base)))
	if in.err != nil {
		return in
	}
	if i := slices.IndexFunc(in.held, func(o held) bool { return path.Base(o.dir) == base }); i >= 0 {
		return &seen{host: h, err: fmt.Errorf("%s could not be cleared: %s is still there", h.name, in.held[i].dir)}
	}
	return p.ask(ctx, h, where+unlist(n)+tell)
}

// giveBackScript is what the account runs whose folder it is; at sets $s to it.
func giveBackScript(n held, at string) string {
	file := folder.Record
	if n.leaving {
		file = folder.Leaving
	}
	return where + at + fmt.Sprintf(`
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
  case ${r##*/} in %[5]s*) rm -rf "$r" ;; esac
fi
[ -e "$s/%[1]s" ] || [ -e "$s/%[4]s" ] || rm -f "$s/.claim" # of a claim that was cut off
rmdir "$s" "${s%%/*}" "$HOME/.sky/nodes" "$HOME/.sky" 2>/dev/null
`, file, sshconn.Quote(n.raw), folder.Home, folder.Leaving, folder.RuntimePrefix) + tell
}
