#!/usr/bin/env bash
# Lints the chart and looks at what it renders: check.sh HELM, from the project's
# root.
set -euo pipefail
helm=$1
chart=deploy/helm/sky
out=$(mktemp); trap 'rm -f "$out"' EXIT

fail() { echo "the chart: $1" >&2; cat "$out" >&2; exit 1; }
has() { grep -qF -- "$1" "$out" || fail "no \"$1\" is rendered"; }
hasnot() { if grep -qF -- "$1" "$out"; then fail "\"$1\" is rendered"; fi; }
render() { "$helm" template team "$chart" --kube-version 1.30.0 --namespace ml "$@" >"$out" 2>&1 || fail "it is not rendered with $*"; }
refused() {
  local why=$1; shift
  if "$helm" template team "$chart" --kube-version 1.30.0 "$@" >"$out" 2>&1; then fail "it is rendered with $*"; fi
  has "$why"
}

"$helm" lint --strict "$chart" --set database.secret=sky-db

render --set database.secret=sky-db
for text in 'replicas: 3' 'kind: Service' 'kind: ServiceAccount' 'kind: PodDisruptionBudget' 'maxUnavailable: 1' 'name: SKY_ENCRYPTION_KEY' 'name: team-sky-encryption' 'helm.sh/resource-policy: keep' 'runAsNonRoot: true' \
  'allowPrivilegeEscalation: false' 'path: /api/health' 'name: SKYPILOT_DB_CONNECTION_URI' 'name: sky-db' 'memory: 512Mi' \
  '"team-sky,team-sky.ml,team-sky.ml.svc,team-sky.ml.svc.cluster.local"' 'serviceAccountName: team-sky'; do has "$text"; done
hasnot 'kind: Ingress'
hasnot SKYPILOT_INITIAL_BASIC_AUTH
hasnot 'kind: Role'
hasnot 'kind: ClusterRole'
hasnot 'kind: DaemonSet'
hasnot 'privileged: true'

# The broker of the chart is that of the file for kubectl, up to the image.
render --set database.secret=sky-db,mountBroker.enabled=true,image.repository=r/sky,image.tag=t
for text in 'kind: DaemonSet' 'name: team-sky-mount-broker' 'app.kubernetes.io/name: sky-mount-broker' 'image: "r/sky:t"' 'kubernetes.io/os: linux' 'operator: Exists'; do has "$text"; done
broker() { awk '/^      containers:/ {on=1} /^---/ {on=0} on && !/image/ {print}'; }
diff <(broker <deploy/kubernetes/mount-broker.yaml) <(awk '/^# Source: .*mountbroker/ {on=1} /^---/ {on=0} on' "$out" | broker) || fail "the broker is not that of deploy/kubernetes/mount-broker.yaml"
render --set database.secret=sky-db,mountBroker.enabled=true,mountBroker.nodeSelector.disk=ssd
has 'disk: ssd'
refused 'mountBroker' --set database.secret=sky-db,mountBroker.enable=true

render --set database.secret=sky-db,encryption.secret=mine,encryption.key=k
has '{name: mine, key: k}'
hasnot 'kind: Secret'

render --set database.secret=sky-db,pods.enabled=true,pods.namespace=work
for text in 'kind: Role' 'kind: RoleBinding' 'namespace: work' 'kind: ClusterRole' 'kind: ClusterRoleBinding' 'name: ml-team-sky' 'pods/exec' \
  '{kind: ServiceAccount, name: team-sky, namespace: ml}'; do has "$text"; done

render --set database.secret=sky-db,replicas=1,ingress.enabled=true,ingress.host=sky.example.com,ingress.tlsSecret=tls,serviceAccount.create=false,basicAuth.secret=first
for text in 'kind: Ingress' 'host: "sky.example.com"' 'secretName: tls' ',sky.example.com"' 'serviceAccountName: default' 'name: SKYPILOT_INITIAL_BASIC_AUTH'; do has "$text"; done
hasnot 'kind: PodDisruptionBudget'
hasnot 'kind: ServiceAccount'

refused 'database.secret must name a Secret'
refused 'replicas' --set database.secret=sky-db,replicas=0
refused 'host' --set database.secret=sky-db,ingress.enabled=true
refused 'replicsa' --set database.secret=sky-db,replicsa=2
echo "the chart: linted and rendered"
