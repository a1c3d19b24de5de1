package proc

import (
	"fmt"
	"time"
)

// AgentOfHome is where an agent notes its number, below the home folder.
const AgentOfHome = "$HOME/.sky/agent/agent.json"

// FirstProcess is a shell script that keeps a container alive as its first process.
// It takes in processes that lost their parents. When the container is to end (TERM),
// each process in it is asked once to terminate and has the usual grace: with their
// first process, containers end all others at once. Where it is not the first, because
// the container shares its processes with others, it ends and touches none. traps are what else it does on
// signals.
//
// agent is a file, for the shell to expand, that holds the number of a process which
// is stopped first (alone, or as "pid" in one line of JSON): an agent must not take
// what its jobs do when their machine is taken away for an end of their own.
func FirstProcess(agent, traps string) string {
	return fmt.Sprintf(`others() {
  for p in /proc/[0-9]*; do
    case $p in /proc/1|/proc/$agent) continue ;; esac
    { IFS= read -r s <"$p/stat"; } 2>/dev/null || continue
    case $s in *') Z '*) continue ;; esac
    return 0
  done
  return 1
}
ending() {
  trap '' TERM INT
  [ $$ = 1 ] || exit 0
  agent=
  { IFS= read -r agent <"%s" || [ "$agent" ]; } 2>/dev/null
  agent=${agent#*\"pid\":}
  agent=${agent%%%%[!0-9]*}
  [ -z "$agent" ] || kill -STOP "$agent" 2>/dev/null
  kill -TERM -1 2>/dev/null
  # A sleep that has just begun may have missed it.
  [ -z "$rest" ] || { kill -KILL "$rest" && wait "$rest"; } 2>/dev/null
  n=0
  while others && [ $n -lt %d ]; do sleep 1 & wait $!; n=$((n+1)); done
  exit 0
}
rest=
trap ending TERM INT
%swhile :; do sleep 1000000 & rest=$!; wait $rest; done`, agent, int(Grace/time.Second), traps)
}
