#!/usr/bin/env bash
# A real cluster on this machine, for the tests with the tag "kubernetes": a
# control plane, one machine with kubelet and containerd (real-1), and as many
# simulated machines with GPUs as are asked for. Needs root and what setup.sh
# prepares.
#
#   test/kubernetes/cluster.sh up DIR         start it; DIR/kubeconfig is for clients
#   test/kubernetes/cluster.sh fake DIR N     add N simulated machines with 8 H100 each
#   test/kubernetes/cluster.sh kill DIR NAME  end one of its programs, such as kubelet, at once
#   test/kubernetes/cluster.sh again DIR NAME start that program again
#   test/kubernetes/cluster.sh down DIR       end it, and remove DIR
#
# All of it runs in a network namespace of its own, which this machine reaches at
# one address (DIR/address; the namespace is in DIR/network), so any number of clusters can be up at once. "down"
# ends only processes that "up" noted in DIR, also after an "up" that was cut off.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
verb=${1:?up, fake, kill, again or down}; dir=${2:?a folder}
mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
# Names of network devices are short and belong to the whole machine.
sum=$(printf %s "$dir" | cksum | cut -d' ' -f1)
tag=$((sum % 100000))
ns=skyk$tag
net=10.$((100 + sum % 90)).$((sum / 90 % 250))
address=$net.1
api=https://$address:6443
cgroup=skyk$tag

curl_api() { curl -sk --max-time 20 -H "Authorization: Bearer admintoken" "$@"; }

# run NAME COMMAND… starts a process in the namespace; its pid, log and command
# are in DIR.
run() {
  local name=$1; shift
  printf '%q ' "$@" >"$dir/$name.command"
  begin "$name"
}

begin() { # NAME
  local command; eval "command=($(cat "$dir/$1.command"))"
  (cd "$dir" && exec setsid nsenter --net="/run/netns/$ns" "${command[@]}" </dev/null >>"$dir/$1.log" 2>&1 9>&-) &
  echo $! >"$dir/$1.pid"
}

# until_true WHAT SECONDS COMMAND… waits until the command succeeds.
until_true() {
  local what=$1 end=$((SECONDS + $2)); shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then
      echo "waited in vain for $what:" >&2
      tail -n 8 "$dir"/*.log >&2
      return 1
    fi
    sleep 0.2
  done
}

alive() { # NAME: its pid, if that is still the process that was begun
  local pid; pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
  grep -qa "$dir" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

end() { # NAME SIGNAL
  local pid; pid=$(alive "$1") || return 0
  kill "-$2" "$pid" 2>/dev/null || return 0
  for _ in $(seq 100); do [ -d "/proc/$pid" ] || return 0; sleep 0.1; done
  kill -KILL "$pid" 2>/dev/null || true
}

down() {
  # Pods' network namespaces, which nobody ends but containerd.
  local networks; networks=$(cat "$dir"/containerd/state/*/k8s.io/*/config.json 2>/dev/null | grep -o '/run/netns/cni-[-0-9a-f]*' | sort -u || true)
  # Servers of tests that were cut off.
  for p in $(grep -lsa "$dir/sky" /proc/[0-9]*/cmdline | cut -d/ -f3); do
    case $(readlink "/proc/$p/exe") in "$dir/sky"*) kill -KILL "$p" 2>/dev/null || true ;; esac
  done
  for p in kwok kubelet; do end $p TERM; done
  # The API server waits for its watchers, and etcd is not needed any more.
  for p in kube-scheduler kube-controller-manager kube-apiserver etcd containerd; do end $p KILL; done
  # What the pods left: their shims outlive containerd, and their processes the shims.
  for p in $(grep -lsa "$dir/containerd.sock" /proc/[0-9]*/cmdline | cut -d/ -f3); do
    case $(readlink "/proc/$p/exe") in */containerd-shim*) ;; *) continue ;; esac
    for c in $(cat "/proc/$p"/task/*/children 2>/dev/null); do kill -KILL "$c" 2>/dev/null || true; done
    kill -KILL "$p" 2>/dev/null || true
  done
  for t in /sys/fs/cgroup/*/"$cgroup"; do
    [ -d "$t" ] || continue
    for _ in $(seq 50); do
      for p in $(find "$t" -name cgroup.procs -exec cat {} + 2>/dev/null); do kill -KILL "$p" 2>/dev/null || true; done
      find "$t" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$t" ] || break
      sleep 0.1
    done
  done
  awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r m; do umount -l "$m" || true; done
  for p in $networks; do umount -l "$p" 2>/dev/null || true; rm -f "$p"; done
  ip link del "skyv$tag" 2>/dev/null || true
  ip netns del "$ns" 2>/dev/null || true
  rm -rf "$dir"
}

case $verb in
down) down; exit ;;
kill) end "${3:?which}" KILL; exit ;;
again) begin "${3:?which}"; exit ;;
fake)
  files=$("$here/setup.sh" --folder)
  exec 9>"$dir/fake.lock"; flock 9 # two tests at once start one program
  # Real machines start their pods and renew their leases all at once, not four at a time as KWOK would.
  cat >"$dir/kwok.yaml" <<YAML
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {podPlayStageParallelism: 32, nodePlayStageParallelism: 32, nodeLeaseParallelism: 32}
YAML
  alive kwok >/dev/null || run kwok "$files/bin/kwok" --kubeconfig "$dir/kubeconfig" --config "$dir/kwok.yaml" --config "$files/stages.yaml" --manage-all-nodes=false \
    --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40
  ready() { [ "$(curl_api "$api/api/v1/nodes?labelSelector=type%3Dkwok" | grep -c '"reason": "KubeletReady"')" -ge "$1" ]; }
  if ready "${3:?how many}"; then exit; fi
  for i in $(seq "$3"); do
    printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"fake-%d","annotations":{"kwok.x-k8s.io/node":"fake","node.alpha.kubernetes.io/ttl":"0"},"labels":{"type":"kwok","kubernetes.io/hostname":"fake-%d","skypilot.co/accelerator":"h100"}},"status":{"capacity":{"cpu":"64","memory":"512Gi","pods":"110","nvidia.com/gpu":"8"},"allocatable":{"cpu":"64","memory":"512Gi","pods":"110","nvidia.com/gpu":"8"}}}\n' "$i" "$i"
  done | xargs -d '\n' -P 8 -I{} curl -sfk --max-time 60 -o /dev/null -H "Authorization: Bearer admintoken" -H 'Content-Type: application/json' -X POST --data {} "$api/api/v1/nodes" || true # some may be there already; all are counted below
  until_true "the simulated machines" 180 ready "$3"
  exit ;;
up) ;;
*) echo "up, fake, kill, again or down, not $verb" >&2; exit 2 ;;
esac

files=$("$here/setup.sh")
bin=$files/bin
trap '[ $? = 0 ] || { echo "the cluster did not start" >&2; down; }' EXIT
# What an earlier try left that was cut off.
(down)
mkdir -p "$dir"; cd "$dir"; mkdir -p pki cni etcd kubelet
echo "$address" >address; echo "$ns" >network

ip netns add "$ns"
ip -n "$ns" link set lo up
ip link add "skyv$tag" type veth peer name eth0 netns "$ns"
ip addr add "$net.254/24" dev "skyv$tag"
ip link set "skyv$tag" up
ip -n "$ns" addr add "$address/24" dev eth0
ip -n "$ns" link set eth0 up
ip -n "$ns" route add default via "$net.254"

run etcd /usr/bin/etcd --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync --log-level error
openssl genrsa -out sa.key 2048 2>/dev/null
echo 'admintoken,admin,1,system:masters' >tokens.csv
cat >kubeconfig <<YAML
apiVersion: v1
kind: Config
current-context: real
clusters: [{name: test, cluster: {server: "$api", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}]
contexts:
- {name: real, context: {cluster: test, user: admin, namespace: default}}
- {name: kind-twin, context: {cluster: test, user: admin, namespace: default}} # another way to the same
YAML
# Debian's etcd cannot tell how far a watch has come, and streamed lists need that. With the feature on, the API server takes each watch from "any
# version" for a streamed list and refuses it. Such are all of KWOK's: it would learn of pods, and of its own leases, from a list every half minute.
run kube-apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --secure-port 6443 --bind-address 0.0.0.0 --advertise-address "$address" \
  --cert-dir "$dir/pki" --service-cluster-ip-range 10.96.0.0/24 --service-account-issuer https://sky.test --service-account-key-file "$dir/sa.key" \
  --service-account-signing-key-file "$dir/sa.key" --token-auth-file "$dir/tokens.csv" --authorization-mode Node,RBAC --allow-privileged \
  --kubelet-preferred-address-types=InternalIP --max-requests-inflight 1000 --max-mutating-requests-inflight 500 \
  --feature-gates WatchList=false
until_true "the API server" 240 curl_api -f "$api/readyz"
run kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$dir/kubeconfig" --service-account-private-key-file "$dir/sa.key" \
  --root-ca-file "$dir/pki/apiserver.crt" --use-service-account-credentials --leader-elect=false --cert-dir "$dir/pki" --secure-port 0 \
  --kube-api-qps 300 --kube-api-burst 500 --node-monitor-grace-period 40s
run kube-scheduler "$bin/kube-scheduler" --kubeconfig "$dir/kubeconfig" --leader-elect=false --secure-port 0 --kube-api-qps 300 --kube-api-burst 500

# containerd, with images made of busybox: one to hold sandboxes, one with a
# shell, and one with nothing but a program.
cat >containerd.toml <<TOML
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$dir/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
TOML
cat >cni/10-sky.conflist <<JSON
{"cniVersion":"0.4.0","name":"sky$tag","plugins":[{"type":"bridge","bridge":"pods0","isGateway":true,"ipMasq":false,
"ipam":{"type":"host-local","dataDir":"$dir/addresses","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}
JSON
run containerd /usr/bin/containerd -c "$dir/containerd.toml"
until_true "containerd" 60 ctr -a "$dir/containerd.sock" version
image() { # NAME ROOT ENTRYPOINT
  local name=$1 root=$2 entry=$3 work; work=$(mktemp -d -p "$dir")
  tar -C "$root" --owner=0 --group=0 -cf "$work/layer.tar" .
  local diff; diff=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  mkdir "$work/l"; mv "$work/layer.tar" "$work/l/layer.tar"
  echo '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["'"$entry"'"],"Env":["PATH=/usr/bin:/bin","HOME=/root"]},"rootfs":{"type":"layers","diff_ids":["sha256:'"$diff"'"]}}' >"$work/config.json"
  echo '[{"Config":"config.json","RepoTags":["'"$name"'"],"Layers":["l/layer.tar"]}]' >"$work/manifest.json"
  tar -C "$work" -cf "$work.tar" manifest.json config.json l
  ctr -a "$dir/containerd.sock" -n k8s.io images import "$work.tar" >/dev/null
  rm -rf "$work" "$work.tar"
}
mkdir -p shell/bin shell/etc shell/root shell/tmp bare/bin pause/bin
chmod 1777 shell/tmp
cp /bin/busybox shell/bin/; cp /bin/busybox bare/bin/sleep; cp /bin/busybox pause/bin/busybox
for t in $(/bin/busybox --list); do [ "$t" = busybox ] || ln -sf busybox "shell/bin/$t"; done
echo 'root:x:0:0:root:/root:/bin/sh' >shell/etc/passwd; echo 'root:x:0:' >shell/etc/group
printf '#!/bin/busybox sh\ntrap "exit 0" TERM INT\nwhile :; do /bin/busybox sleep 1000000 & wait $!; done\n' >pause/pause; chmod 755 pause/pause
image localhost/shell:1 shell /bin/sh
ctr -a "$dir/containerd.sock" -n k8s.io images tag localhost/shell:1 docker.io/library/busybox:1.37-musl >/dev/null
image localhost/bare:1 bare /bin/sleep
# To be pulled with a password. What was pulled so is kept by the kubelet from pods
# that do not have it, under any name, so it must not be one of the others.
cp -a shell private; echo private >private/etc/kind
image localhost/private:1 private /bin/sh
image localhost/pause:1 pause /pause

for t in /sys/fs/cgroup/*/; do [ -f "$t/cgroup.procs" ] && mkdir -p "$t/$cgroup"; done
if [ -f /sys/fs/cgroup/cpuset/cpuset.cpus ]; then # a new one has none, and takes no process then
  cat /sys/fs/cgroup/cpuset/cpuset.cpus >"/sys/fs/cgroup/cpuset/$cgroup/cpuset.cpus"
  cat /sys/fs/cgroup/cpuset/cpuset.mems >"/sys/fs/cgroup/cpuset/$cgroup/cpuset.mems"
fi
cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failSwapOn: false
oomScoreAdj: 0
address: $address
port: 10250
readOnlyPort: 0
healthzPort: 0
clusterDNS: [10.96.0.10]
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$dir/containerd.sock
maxPods: 250
imageGCHighThresholdPercent: 100 # never: images that were put there cannot be pulled again
imageGCLowThresholdPercent: 99
serializeImagePulls: false
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi, nodefs.inodesFree: "10"}
nodeStatusUpdateFrequency: 4s
syncFrequency: 10s
YAML
run kubelet "$bin/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubeconfig" --root-dir "$dir/kubelet" --cert-dir "$dir/pki" --hostname-override real-1 --node-ip "$address" --node-labels nodetype=real
node_ready() { curl_api "$api/api/v1/nodes/real-1" | grep -q '"reason": "KubeletReady"'; }
until_true "the kubelet" 180 node_ready
account() { curl_api -f "$api/api/v1/namespaces/default/serviceaccounts/default"; }
until_true "the default account" 120 account
echo "$dir/kubeconfig"
