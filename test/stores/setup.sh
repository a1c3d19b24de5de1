#!/usr/bin/env bash
# Prepares the servers that the tests with the tag "stores" run against, built
# from their Go modules.
#
#   test/stores/setup.sh            prepare, print the folder
#   test/stores/setup.sh --folder   only print where it is or would be
#
# Everything lies in one folder outside the clone, and each program is built
# once for each version.
set -euo pipefail

versitygw=v1.8.0 # S3; objects are files

dir=${SKY_TEST_STORES:-${XDG_CACHE_HOME:-$HOME/.cache}/sky-test/stores}
if [ "${1:-}" = --folder ]; then echo "$dir"; exit; fi
mkdir -p "$dir/bin"
exec 9>"$dir/lock"
flock 9 # two runs at once build once

# program NAME PACKAGE VERSION [BUILD FLAG...]
program() {
  local name=$1 package=$2 version=$3; shift 3
  [ "$(cat "$dir/$name.version" 2>/dev/null)" = "$version" ] && [ -x "$dir/bin/$name" ] && return
  local began=$SECONDS
  CGO_ENABLED=0 GOFLAGS= GOBIN=$dir/bin go install -trimpath -ldflags '-s -w' "$@" "$package@$version" >&2
  echo "$version" >"$dir/$name.version"
  echo "$name $version built in $((SECONDS - began)) s" >&2
}

program versitygw github.com/versity/versitygw/cmd/versitygw "$versitygw"
echo "$dir"
