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
fakegcs=v1.56.1  # Google Cloud Storage, for small objects
azurite=3.37.0   # Azure; runs on Node
rclone=v1.76.0   # what benchmarks compare with
minio=v0.0.0-20260212201848-7aac2a2c5b7c # a second server of S3, only where SKY_TEST_MINIO is "build"; AGPL, never a part of sky

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

azure() {
  [ "$(cat "$dir/azurite.version" 2>/dev/null)" = "$azurite" ] && [ -x "$dir/azurite/node_modules/.bin/azurite-blob" ] && return
  command -v npm >/dev/null || sh "$(dirname "$0")/../install.sh" nodejs npm >&2
  rm -rf "$dir/azurite"; mkdir -p "$dir/azurite"
  (cd "$dir/azurite" && npm install --no-audit --no-fund --loglevel=error "azurite@$azurite") >&2
  echo "$azurite" >"$dir/azurite.version"
}

# Of rclone only what is used: the whole would take many minutes.
peer() {
  [ "$(cat "$dir/rclone.version" 2>/dev/null)" = "$rclone with mount2" ] && [ -x "$dir/bin/rclone" ] && return
  local began=$SECONDS src=$dir/src
  rm -rf "$src"; mkdir -p "$src"
  (
    cd "$src"
    export CGO_ENABLED=0 GOFLAGS=-mod=mod
    cat >go.mod <<EOF
module peer
go 1.26.0
require github.com/rclone/rclone $rclone
EOF
    cp "$(go mod download -json "github.com/rclone/rclone@$rclone" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/go.sum" .
    {
      echo 'package main'
      for p in backend/local backend/s3 cmd/copy cmd/mount2 cmd/purge cmd/delete cmd/version; do echo "import _ \"github.com/rclone/rclone/$p\""; done
      echo 'import "github.com/rclone/rclone/cmd"'
      echo 'func main() { cmd.Main() }'
    } >main.go
    go build -trimpath -ldflags '-s -w' -o "$dir/bin/rclone" .
  ) >&2
  rm -rf "$src"
  echo "$rclone with mount2" >"$dir/rclone.version"
  echo "rclone $rclone built in $((SECONDS - began)) s" >&2
}

# A module that wants what only its own go.mod says is built as the main module of a copy.
second() {
  [ "$(cat "$dir/minio.version" 2>/dev/null)" = "$minio" ] && [ -x "$dir/bin/minio" ] && return
  local began=$SECONDS src=$dir/src-minio
  rm -rf "$src"
  cp -r "$(go mod download -json "github.com/minio/minio@$minio" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" "$src"
  chmod -R u+w "$src"
  (cd "$src" && CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags '-s -w' -o "$dir/bin/minio" .) >&2
  rm -rf "$src"
  echo "$minio" >"$dir/minio.version"
  echo "minio $minio built in $((SECONDS - began)) s" >&2
}

# What tests look for that Debian has: fuse3 mounts for users who are not root, and awscli is
# another peer of the benchmarks. An aws or fusermount3 that is there already is as good.
debian() {
  local missing=()
  command -v fusermount3 >/dev/null || missing+=(fuse3)
  command -v aws >/dev/null || missing+=(awscli)
  [ ${#missing[@]} = 0 ] || sh "$(dirname "$0")/../install.sh" "${missing[@]}" >&2
}

debian
program versitygw github.com/versity/versitygw/cmd/versitygw "$versitygw"
program fake-gcs-server github.com/fsouza/fake-gcs-server "$fakegcs"
azure
peer
[ "${SKY_TEST_MINIO:-}" != build ] || second
echo "$dir"
