package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// cleanClone removes from a machine whose disk is a copy of another cluster's what belonged
// to that cluster: the certificates, queue, deadline and mounts of its agent, what its jobs
// were given in secret, and credentials of the server. Nothing of it may go on here, and the
// agent starts as on a new machine. The logs of its jobs get another place, as numbers of
// jobs begin at 1 again. It is done once for a cluster, before its first agent starts.
func (t *sshTransport) cleanClone(ctx context.Context, c *state.Cluster, target sshconn.Target, home string) error {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	out, err := t.o.SSH.Script(ctx, target, cleanScript(home, c.Hash, c.Machine.Clone.From))
	if err != nil {
		return fmt.Errorf("removing what cluster %s left on the copy of its disk: %w", c.Machine.Clone.From, err)
	}
	if said := strings.TrimSpace(string(out)); !strings.HasSuffix(said, "cleaned") {
		return fmt.Errorf("what cluster %s left on the copy of its disk could not be removed: %s", c.Machine.Clone.From, said)
	}
	return nil
}

// cleanScript is the script for the cluster with a hash. Of ~/.sky it keeps programs, and
// files that links of the user's lead to.
func cleanScript(home, hash, from string) string {
	return `h=` + sshconn.Quote(home) + `
done="$h/.sky/clone-` + hash + `"
[ ! -e "$done" ] || { echo cleaned; exit 0; }
if [ -f "$h/.sky/credentials" ]; then
  while read -r p; do
    case $p in ''|/*|*..*) ;; *) rm -f "$h/$p" || exit 1 ;; esac
  done <"$h/.sky/credentials"
fi
for f in "$h"/.sky/* "$h"/.sky/.[!.]*; do
  case ${f##*/} in
  runtime|file_mounts|prepared-*) ;;
  *) rm -rf "$f" 2>&1 || exit 1 ;;
  esac
done
if [ -d "$h/sky_logs" ]; then
  to="$h/sky_logs_"` + sshconn.Quote(from) + `
  [ ! -e "$to" ] || to="$to-` + hash + `"
  mv "$h/sky_logs" "$to" 2>&1 || exit 1
fi
mkdir -p "$h/.sky" && : >"$done" && echo cleaned
`
}
