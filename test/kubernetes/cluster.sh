#!/usr/bin/env bash
# A real cluster on this machine, for the tests with the tag "kubernetes": a
# control plane, one machine with kubelet and containerd (real-1), and as many
# simulated machines with GPUs as are asked for. Needs root and what setup.sh
# prepares.
#
#   test/kubernetes/cluster.sh up DIR       start it; DIR/kubeconfig is for clients
#   test/kubernetes/cluster.sh fake DIR N   add N simulated machines with 8 H100 each
#   test/kubernetes/cluster.sh down DIR     end it, and remove DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
verb=${1:?up, fake or down}; dir=${2:?a folder}
mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
bridge=skytest0 address=10.99.7.1 pods=10.98.7.0/24
api=https://127.0.0.1:26443

curl_api() { curl -sk --max-time 20 -H "Authorization: Bearer admintoken" "$@"; }

# run NAME COMMAND… starts a process whose pid and log are in DIR.
run() {
  local name=$1; shift
  setsid "$@" </dev/null >"$dir/$name.log" 2>&1 &
  echo $! >"$dir/$name.pid"
}

# until NAME SECONDS COMMAND… waits until the command succeeds.
until_true() {
  local what=$1 left=$(( $2 * 5 )); shift 2
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    if [ $left -le 0 ]; then echo "waited in vain for $what; see $dir/*.log" >&2; tail -n 5 "$dir"/*.log >&2; exit 1; fi
    sleep 0.2
  done
}

end() { # NAME: TERM, then KILL
  local pid; pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null || true
}

down() {
  for p in kwok kubelet; do end $p; done
  # What the pods left: their shims hold the containers.
  if [ -S "$dir/containerd.sock" ]; then
    for c in $(ctr -a "$dir/containerd.sock" -n k8s.io tasks ls -q 2>/dev/null); do ctr -a "$dir/containerd.sock" -n k8s.io tasks kill -s KILL "$c" >/dev/null 2>&1 || true; done
    for c in $(ctr -a "$dir/containerd.sock" -n k8s.io containers ls -q 2>/dev/null); do ctr -a "$dir/containerd.sock" -n k8s.io tasks delete -f "$c" >/dev/null 2>&1 || true; done
  fi
  for p in kube-scheduler kube-controller-manager kube-apiserver etcd containerd; do end $p; done
  awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r m; do umount -l "$m" || true; done
  ip link del $bridge 2>/dev/null || true
  rm -rf "$dir"
}

case $verb in
down) down; exit ;;
fake)
  bin=$("$here/setup.sh" --folder)/bin
  [ -f "$dir/kwok.pid" ] || run kwok "$bin/kwok" --kubeconfig "$dir/kubeconfig" --config "$bin/../stages.yaml" --manage-all-nodes=false \
    --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40
  for i in $(seq "${3:?how many}"); do
    printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"fake-%d","annotations":{"kwok.x-k8s.io/node":"fake","node.alpha.kubernetes.io/ttl":"0"},"labels":{"type":"kwok","kubernetes.io/hostname":"fake-%d","skypilot.co/accelerator":"h100"}},"status":{"capacity":{"cpu":"64","memory":"512Gi","pods":"110","nvidia.com/gpu":"8"},"allocatable":{"cpu":"64","memory":"512Gi","pods":"110","nvidia.com/gpu":"8"}}}' "$i" "$i" >"$dir/node.json"
    curl_api -f -X POST -H 'Content-Type: application/json' --data @"$dir/node.json" "$api/api/v1/nodes" >/dev/null
  done
  ready() { [ "$(curl_api "$api/api/v1/nodes?labelSelector=type%3Dkwok" | grep -c 'kubelet is posting ready status')" -ge "$1" ]; }
  until_true "the simulated machines" 120 ready "$3"
  exit ;;
up) ;;
*) echo "up, fake or down, not $verb" >&2; exit 2 ;;
esac

bin=$("$here/setup.sh")/bin
trap 'echo "the cluster did not start" >&2; down' ERR
cd "$dir"; mkdir -p pki cni etcd kubelet

run etcd /usr/bin/etcd --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:26379 --advertise-client-urls http://127.0.0.1:26379 \
  --listen-peer-urls http://127.0.0.1:26380 --unsafe-no-fsync --log-level error
openssl genrsa -out sa.key 2048 2>/dev/null
echo 'admintoken,admin,1,system:masters' >tokens.csv
cat >kubeconfig <<YAML
apiVersion: v1
kind: Config
current-context: real
clusters: [{name: test, cluster: {server: "$api", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}]
contexts: [{name: real, context: {cluster: test, user: admin, namespace: default}}]
YAML
ip link add $bridge type bridge; ip addr add $address/24 dev $bridge; ip link set $bridge up
run kube-apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:26379 --secure-port 26443 --bind-address 0.0.0.0 --advertise-address $address \
  --cert-dir pki --service-cluster-ip-range 10.97.7.0/24 --service-account-issuer https://sky.test --service-account-key-file sa.key \
  --service-account-signing-key-file sa.key --token-auth-file tokens.csv --authorization-mode Node,RBAC --allow-privileged \
  --kubelet-preferred-address-types=InternalIP --max-requests-inflight 1000 --max-mutating-requests-inflight 500
until_true "the API server" 120 curl_api -f $api/readyz
run kube-controller-manager "$bin/kube-controller-manager" --kubeconfig kubeconfig --service-account-private-key-file sa.key --root-ca-file pki/apiserver.crt \
  --use-service-account-credentials --leader-elect=false --cert-dir pki --secure-port 0 --kube-api-qps 300 --kube-api-burst 500
run kube-scheduler "$bin/kube-scheduler" --kubeconfig kubeconfig --leader-elect=false --secure-port 0 --kube-api-qps 300 --kube-api-burst 500

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
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
TOML
cat >cni/10-sky.conflist <<JSON
{"cniVersion":"0.4.0","name":"sky","plugins":[{"type":"bridge","bridge":"$bridge","isGateway":true,"ipMasq":false,
"ipam":{"type":"host-local","ranges":[[{"subnet":"$pods"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}
JSON
run containerd containerd -c containerd.toml
until_true "containerd" 60 ctr -a containerd.sock version
image() { # NAME ROOT ENTRYPOINT
  local name=$1 root=$2 entry=$3 work; work=$(mktemp -d -p "$dir")
  tar -C "$root" --owner=0 --group=0 -cf "$work/layer.tar" .
  local diff; diff=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  mkdir "$work/l"; mv "$work/layer.tar" "$work/l/layer.tar"
  echo '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["'"$entry"'"],"Env":["PATH=/usr/bin:/bin","HOME=/root"]},"rootfs":{"type":"layers","diff_ids":["sha256:'"$diff"'"]}}' >"$work/config.json"
  echo '[{"Config":"config.json","RepoTags":["'"$name"'"],"Layers":["l/layer.tar"]}]' >"$work/manifest.json"
  tar -C "$work" -cf "$work.tar" manifest.json config.json l
  ctr -a containerd.sock -n k8s.io images import "$work.tar" >/dev/null
  rm -rf "$work" "$work.tar"
}
mkdir -p rootfs/bin rootfs/etc rootfs/root rootfs/tmp bare/bin
chmod 1777 rootfs/tmp
cp /bin/busybox rootfs/bin/; cp /bin/busybox bare/bin/hold
for t in $(/bin/busybox --list); do [ "$t" = busybox ] || ln -sf busybox "rootfs/bin/$t"; done
echo 'root:x:0:0:root:/root:/bin/sh' >rootfs/etc/passwd; echo 'root:x:0:' >rootfs/etc/group
cp /bin/busybox bare/bin/sleep
image localhost/shell:1 rootfs /bin/sh
image localhost/bare:1 bare /bin/hold
# A pause image is a process that sleeps.
mkdir -p pause/bin; cp /bin/busybox pause/bin/busybox; printf '#!/bin/busybox sh\nexec /bin/busybox sleep 1000000000\n' >pause/pause; chmod 755 pause/pause
image localhost/pause:1 pause /pause

cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
failSwapOn: false
address: $address
port: 26250
readOnlyPort: 0
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$dir/containerd.sock
maxPods: 250
serializeImagePulls: false
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi, nodefs.inodesFree: 10}
registerWithTaints: []
syncFrequency: 10s
YAML
run kubelet "$bin/kubelet" --config kubelet.yaml --kubeconfig kubeconfig --root-dir "$dir/kubelet" --cert-dir "$dir/pki" --hostname-override real-1 --node-ip $address --node-labels nodetype=real
node_ready() { curl_api $api/api/v1/nodes/real-1 | grep -q 'kubelet is posting ready status'; }
until_true "the kubelet" 120 node_ready
account() { curl_api -f $api/api/v1/namespaces/default/serviceaccounts/default; }
until_true "the default account" 120 account
trap - ERR
echo "$dir/kubeconfig"
