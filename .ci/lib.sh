# What .ci/run and .ci/full share. Sourced by bash, from the project's root.

# Every build but the race detector's is made as releases are, so that each package
# is compiled once for all of them.
export GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath} CGO_ENABLED=0

# A change is judged by what it changed, not by a draw: property tests take the same
# examples here each time, and kills follow the same schedule. CONTRIBUTING.md says
# how to search with fresh seeds.
export RAPID_SEED=20261122 SKY_CHAOS_SEED=20261122 SKY_E2E_SEED=20261122 SKY_ATTACK_SEED=20261122

# keep NAME COMMAND...: runs the command with its output on the terminal and in
# ${XDG_CACHE_HOME:-~/.cache}/sky-gate/NAME.log; ends with the command's exit code.
keep() {
  local folder=${XDG_CACHE_HOME:-$HOME/.cache}/sky-gate name=$1 code=0
  shift
  mkdir -p "$folder"
  "$@" > >(tee "$folder/$name.log") 2>&1 || code=$?
  wait # for tee
  echo "whole output: $folder/$name.log"
  return "$code"
}

# free_port prints a TCP port of this machine that nobody listens on, below those
# that the kernel gives to connections.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}
