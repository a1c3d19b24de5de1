#!/bin/sh
# Real machines to test against, on one machine: hosts, each a network namespace
# with an sshd, process numbers and a home folder of its own; and a container
# engine with an image that has little but a shell.
#
#	setup.sh up DIR      installs what is missing, starts everything below DIR
#	setup.sh down DIR    ends what "up" started, and nothing else
#	setup.sh reboot DIR I   switches host I off and on
#
# All hosts are on one bridge with this machine, except h6, which can be reached
# from h1 only. The home of h5 is a disk of 4 MB. On h16 and h17 there is a container
# engine, too. "up" writes their addresses to DIR/given
# and to its output.
#
# Needs root on Debian, and no service manager. What "up" starts is noted
# in DIR, so "down" also cleans up after an "up" that was cut off.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-} dir=${2:-}
[ -n "$dir" ] || { echo "usage: $0 up|down|reboot DIR [I]" >&2; exit 2; }
# Names of network devices are short and belong to the whole machine.
sum=$(printf %s "$dir" | cksum | cut -d' ' -f1)
tag=$(printf %s "$sum" | cut -c1-5)
bridge=skyb$tag
open="1 2 3 4 5 7 8 9 10 11 12 13 14 15 16 17" hidden=6 engines="16 17"
hosts="$open $hidden"
net=10.97.$((sum % 250)) behind=10.98.$((sum % 250))

pids() { # that run in a host: their mark is in the environment
  grep -lzxF "SKY_TEST_HOST=$dir" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

down() {
  if [ -f "$dir/docker/pid" ]; then
    docker=$(cat "$dir/docker/pid")
    if grep -qa "$dir/docker" "/proc/$docker/cmdline" 2>/dev/null; then
      curl -s --unix-socket "$dir/docker.sock" 'http://d/containers/json?all=1' | grep -o '"Id":"[0-9a-f]*"' | cut -d'"' -f4 |
        while read -r c; do curl -s -X DELETE --unix-socket "$dir/docker.sock" "http://d/containers/$c?force=1&v=1"; done
      curl -s -X POST --unix-socket "$dir/docker.sock" http://d/networks/prune >/dev/null
      kill "$docker"
      for _ in $(seq 100); do [ -d "/proc/$docker" ] || break; sleep 0.1; done
    fi
    ip link del "skyd$tag" 2>/dev/null || true
  fi
  for i in $hosts; do off "$i"; done
  # What tests that were cut off have left: servers and rented machines.
  for p in $(grep -lzE "^HOME=$dir/user-" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do kill -9 "$p" 2>/dev/null || true; done
  for f in "$dir"/*.fluffy; do
    [ -f "$f" ] && "$dir/fluffycloud" destroy --dir "$(cat "$f")" && rm -rf "$(cat "$f")"
  done
  for p in $(pids); do kill -9 "$p" 2>/dev/null || true; done
  for i in $hosts; do
    ip netns del "sky$tag-$i" 2>/dev/null || true
    ip link del "skyv$tag-$i" 2>/dev/null || true
  done
  ip link del "$bridge" 2>/dev/null || true
  ip netns del "skyc$tag" 2>/dev/null || true # of a test that was cut off
  while iptables -D FORWARD -i "$bridge" -o "$bridge" -j ACCEPT 2>/dev/null; do :; done
  for m in $(awk -v d="$dir/" 'index($2, d) == 1 { print $2 }' /proc/mounts | sort -r); do umount "$m" 2>/dev/null || umount -l "$m" || true; done
  rm -rf "$dir"/h[0-9]* "$dir"/user-* "$dir"/*.fluffy "$dir/docker" "$dir/image" "$dir/empty" "$dir"/key* "$dir/given" "$dir/up" "$dir/docker.sock" "$dir/image.tar"
  rmdir "$dir" 2>/dev/null || true
}

tools() {
  need=
  [ -x /usr/sbin/sshd ] || need="$need openssh-server"
  command -v ssh >/dev/null || need="$need openssh-client"
  command -v ip >/dev/null || need="$need iproute2"
  command -v sudo >/dev/null || need="$need sudo"
  command -v curl >/dev/null || need="$need curl"
  [ -x /usr/sbin/dockerd ] || need="$need docker.io iptables"
  [ -z "$need" ] && return
  # shellcheck disable=SC2086
  sh "$(dirname "$0")/../install.sh" $need
}

hosts_up() {
  mkdir -p /run/sshd
  ip link add "$bridge" type bridge
  ip addr add "$net.254/24" dev "$bridge"
  ip link set "$bridge" up
  # A container engine may have told the kernel to drop what bridges forward.
  command -v iptables >/dev/null && iptables -I FORWARD -i "$bridge" -o "$bridge" -j ACCEPT
  ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
  for i in $hosts; do
    h=$dir/h$i ns=sky$tag-$i
    mkdir -p "$h/home"
    case " $engines " in *" $i "*) mkdir "$h/docker" ;; esac
    ssh-keygen -q -t ed25519 -N '' -f "$h/hostkey"
    ip netns add "$ns"
    ip -n "$ns" link set lo up
  done
  mount -t tmpfs -o size=4m,mode=700 none "$dir/h5/home"
  for i in $open; do
    ns=sky$tag-$i
    ip link add "skyv$tag-$i" type veth peer name eth0 netns "$ns"
    ip link set "skyv$tag-$i" master "$bridge" up
    ip -n "$ns" addr add "$net.$i/24" dev eth0
    ip -n "$ns" link set eth0 up
  done
  ip -n "sky$tag-1" link add eth1 type veth peer name eth0 netns "sky$tag-$hidden"
  ip -n "sky$tag-1" addr add "$behind.1/24" dev eth1
  ip -n "sky$tag-1" link set eth1 up
  ip -n "sky$tag-$hidden" addr add "$behind.$hidden/24" dev eth0
  ip -n "sky$tag-$hidden" link set eth0 up
  for i in $hosts; do
    printf 'export GREETING="from h%s"\n' "$i" >"$dir/h$i/home/.bashrc"
    boot "$i"
  done
  for i in $open; do
    answers "$net.$i" "$dir/h$i/log"
    echo "SKY_TEST_HOST$i=$net.$i"
  done
  echo "SKY_TEST_HOST$hidden=$behind.$hidden"
  echo "SKY_TEST_KEY=$dir/key"
  echo "SKY_TEST_TAG=$tag"
  echo "SKY_TEST_BRIDGE=$net.254"
}

boot() {
  h=$dir/h$1
  enter="ip netns exec sky$tag-$1"
  [ -d "$h/docker" ] && enter="nsenter --net=/run/netns/sky$tag-$1" # an engine needs this machine's /sys
  # shellcheck disable=SC2086
  SKY_TEST_HOST=$dir setsid $enter unshare --mount --uts --pid --fork --mount-proc --kill-child \
    sh "$here/host.sh" "h$1" "$h" "$dir/key.pub" "$net.0/24" </dev/null >"$h/log" 2>&1 &
  echo $! >"$h/pid"
}

off() {
  [ -f "$dir/h$1/pid" ] || return 0
  p=$(cat "$dir/h$1/pid")
  # unshare does not listen to TERM; with it goes all that runs in the host.
  grep -qa "$dir" "/proc/$p/cmdline" 2>/dev/null && kill -9 "$p"
  return 0
}

answers() { # once we can log in there
  for _ in $(seq 300); do
    ssh -n -F /dev/null -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
      -i "$dir/key" "root@$1" true 2>/dev/null && return
    sleep 0.1
  done
  echo "no sshd answers on $1:" >&2
  cat "$2" >&2
  exit 1
}

engine_up() {
  mkdir -p "$dir/docker"
  ip link add "skyd$tag" type bridge
  ip addr add "10.96.$((sum % 250)).1/24" dev "skyd$tag"
  ip link set "skyd$tag" up
  setsid dockerd --data-root "$dir/docker/data" --exec-root "$dir/docker/exec" --pidfile "$dir/docker/pid" \
    --bridge "skyd$tag" --iptables=false --ip-masq=false -H "unix://$dir/docker.sock" </dev/null >"$dir/docker/log" 2>&1 &
  for _ in $(seq 600); do
    curl -fs --unix-socket "$dir/docker.sock" http://d/_ping >/dev/null 2>&1 && break
    sleep 0.1
  done
  curl -fs --unix-socket "$dir/docker.sock" http://d/_ping >/dev/null || { tail -n 30 "$dir/docker/log" >&2; exit 1; }
  # An image with a shell and a few tools of this machine.
  root=$dir/image
  mkdir -p "$root/bin" "$root/etc" "$root/root" "$root/tmp"
  echo root:x:0:0:root:/root:/bin/bash >"$root/etc/passwd"
  for t in bash sh cat sleep ls mkdir rm env uname hostname; do
    p=$(command -v "$t")
    cp -L "$p" "$root/bin/"
    for l in $(ldd "$p" | grep -o '/[^ ]*'); do
      mkdir -p "$root$(dirname "$l")"
      cp -L "$l" "$root$l"
    done
  done
  tar -C "$root" -c . | curl -fs -X POST --unix-socket "$dir/docker.sock" -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://d/images/create?fromSrc=-&repo=sky-test&tag=1&changes=ENV%20PATH%3D%2Fbin%20FLAVOUR%3Dthin' >/dev/null
  mkdir -p "$dir/empty"
  echo >"$dir/empty/nothing"
  tar -C "$dir/empty" -c . | curl -fs -X POST --unix-socket "$dir/docker.sock" -H 'Content-Type: application/x-tar' --data-binary @- \
    'http://d/images/create?fromSrc=-&repo=sky-test&tag=empty' >/dev/null
  tar -C "$root" -cf "$dir/image.tar" .
  echo "SKY_TEST_DOCKER=$dir/docker.sock"
}

case $what in
up)
  tools
  down
  mkdir -p "$dir"
  chmod 755 "$dir"
  { hosts_up; engine_up; } >"$dir/up"
  mv "$dir/up" "$dir/given"
  cat "$dir/given"
  ;;
down) down ;;
reboot)
  off "$3"
  boot "$3"
  [ "$3" = $hidden ] || answers "$net.$3" "$dir/h$3/log"
  ;;
*) echo "usage: $0 up|down|reboot DIR [I]" >&2; exit 2 ;;
esac
