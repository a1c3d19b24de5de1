#!/usr/bin/env bash
# Prepares what the tests with the tag "kubernetes" run against: a control
# plane, a kubelet and KWOK, built from their Go modules, and etcd, containerd
# and the network plugins from Debian. Nothing is pulled from an image registry.
#
#   test/kubernetes/setup.sh            prepare, print the folder
#   test/kubernetes/setup.sh --folder   only print where it is or would be
#
# Everything lies in one folder named for the versions, outside the clone, so
# only the first run on a machine pays for the build.
# A folder with the file "complete" is used as it is.
set -euo pipefail

kubernetes=1.36.3
kwok=0.8.0
dir=${SKY_TEST_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/sky-test/kubernetes-$kubernetes}

if [ "${1:-}" = --folder ]; then echo "$dir"; exit; fi
mkdir -p "$dir/bin"
exec 9>"$dir/lock"
flock 9 # two runs at once build once

need=()
[ -x /usr/bin/etcd ] || need+=(etcd-server)
[ -x /usr/bin/containerd ] || need+=(containerd)
[ -x /usr/sbin/runc ] || need+=(runc)
[ -x /usr/lib/cni/bridge ] || need+=(containernetworking-plugins)
[ -x /usr/bin/docker-registry ] || need+=(docker-registry)
[ -x /usr/sbin/nginx ] || need+=(nginx-light)
[ -x /bin/busybox ] || need+=(busybox-static)
command -v iptables >/dev/null || need+=(iptables)
command -v ip >/dev/null || need+=(iproute2)
command -v openssl >/dev/null || need+=(openssl)
command -v curl >/dev/null || need+=(curl ca-certificates)
[ ${#need[@]} -eq 0 ] || sh "$(dirname "$0")/../install.sh" "${need[@]}" >&2

if [ -f "$dir/complete" ]; then echo "$dir"; exit; fi
start=$SECONDS
src=$dir/src; rm -rf "$src"; mkdir -p "$src"; cd "$src"
export CGO_ENABLED=0 GOFLAGS=-mod=mod

# The release's own go.mod points at its staging folders; as modules they are
# published under the matching v0 version.
go mod download "k8s.io/kubernetes@v$kubernetes"
upstream=$(go env GOMODCACHE)/k8s.io/kubernetes@v$kubernetes
{
  echo "module kubernetestest"
  echo "go 1.26.0"
  echo "godebug default=go1.26"
  echo "require k8s.io/kubernetes v$kubernetes"
  sed -n 's#^\t\?\(replace \)\?\(k8s\.io/[a-z-]*\) => \./staging/.*#replace \2 => \2 v0.'"${kubernetes#1.}"'#p' "$upstream/go.mod" | sort -u
} > go.mod
cp "$upstream/go.sum" go.sum
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet)
{
  echo "package tools"
  for p in "${programs[@]}"; do echo "import _ \"k8s.io/kubernetes/cmd/$p\""; done
} > tools.go
go mod tidy -e >&2
for p in "${programs[@]}"; do
  [ -x "$dir/bin/$p" ] && continue
  go build -p 2 -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$kubernetes" -o "$dir/bin/$p.new" "k8s.io/kubernetes/cmd/$p"
  mv "$dir/bin/$p.new" "$dir/bin/$p"
done
cd "$dir"; rm -rf "$src"
unset GOFLAGS
GOBIN=$dir/bin go install -trimpath -ldflags '-s -w' "sigs.k8s.io/kwok/cmd/kwok@v$kwok"
stages=$(go env GOMODCACHE)/sigs.k8s.io/kwok@v$kwok/kustomize/stage
for f in "$stages"/node/fast/*.yaml "$stages"/node/heartbeat-with-lease/*.yaml "$stages"/pod/fast/*.yaml; do
  case $f in *kustomization.yaml) continue ;; esac
  echo '---'; cat "$f"
done > "$dir/stages.yaml"
echo "built in $((SECONDS - start)) s" | tee "$dir/complete" >&2
echo "$dir"
