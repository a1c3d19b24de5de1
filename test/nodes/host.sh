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
# ada may use sudo without a password, bob may not, and pool may be ada and nobody else. What is outside of /root is the host's own, too.
for d in /home /srv /etc/sudoers.d; do mount -t tmpfs -o mode=755 none "$d"; done
for f in passwd shadow; do cp -p "/etc/$f" "$dir/$f"; done
id=4321
for user in ada bob pool; do
  echo "$user:*:$id:$id::/home/$user:/bin/bash" >>"$dir/passwd"
  echo "$user:*:19000:0:99999:7:::" >>"$dir/shadow"
  mkdir -p "/home/$user/.ssh"
  cp "$key" "/home/$user/.ssh/authorized_keys"
  chown -R "$id:$id" "/home/$user"
  chmod 700 "/home/$user"
  id=$((id + 1))
done
for f in passwd shadow; do mount --bind "$dir/$f" "/etc/$f"; done
echo 'ada ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada
echo 'pool ALL=(ada) NOPASSWD: /bin/sh' >/etc/sudoers.d/sky-ada
env=HOST=$name
if [ -d "$dir/docker" ]; then
  env=DOCKER_HOST=unix://$dir/docker/sock
  rm -rf "$dir/docker/pid" "$dir/docker/exec"
  dockerd --data-root "$dir/docker/data" --exec-root "$dir/docker/exec" --pidfile "$dir/docker/pid" --insecure-registry "$insecure" \
    --bridge none --iptables=false --ip-masq=false -H "unix://$dir/docker/sock" </dev/null >>"$dir/docker/log" 2>&1 &
fi
exec /usr/sbin/sshd -D -e -f /dev/null -h "$dir/hostkey" -o PidFile=none -o UsePAM=no -o StrictModes=no -o PasswordAuthentication=no \
  -o "SetEnv=$env" -o 'Subsystem=sftp internal-sftp'
