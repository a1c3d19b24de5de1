#!/bin/sh
# One host: runs inside its namespaces, becomes its sshd. With a folder for a
# container engine that runs there, too; registries in the given network need
# no certificates. See setup.sh.
name=$1 dir=$2 key=$3 insecure=$4
hostname "$name"
mount --make-rprivate /
mount --bind "$dir/home" /root
mkdir -p /root/.ssh
cp "$key" /root/.ssh/authorized_keys
chmod 700 /root /root/.ssh
env=HOST=$name
if [ -d "$dir/docker" ]; then
  env=DOCKER_HOST=unix://$dir/docker/sock
  rm -rf "$dir/docker/pid" "$dir/docker/exec"
  dockerd --data-root "$dir/docker/data" --exec-root "$dir/docker/exec" --pidfile "$dir/docker/pid" --insecure-registry "$insecure" \
    --bridge none --iptables=false --ip-masq=false -H "unix://$dir/docker/sock" </dev/null >>"$dir/docker/log" 2>&1 &
fi
exec /usr/sbin/sshd -D -e -f /dev/null -h "$dir/hostkey" -o PidFile=none -o UsePAM=no -o StrictModes=no -o PasswordAuthentication=no \
  -o "SetEnv=$env" -o 'Subsystem=sftp internal-sftp'
