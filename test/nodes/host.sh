#!/bin/sh
# One host: runs inside its namespaces, becomes its sshd. See setup.sh.
name=$1 dir=$2 key=$3
hostname "$name"
mount --make-rprivate /
mount --bind "$dir/home" /root
mkdir -p /root/.ssh
cp "$key" /root/.ssh/authorized_keys
chmod 700 /root /root/.ssh
exec /usr/sbin/sshd -D -e -f /dev/null -h "$dir/hostkey" -o PidFile=none -o UsePAM=no -o StrictModes=no -o PasswordAuthentication=no -o 'Subsystem=sftp internal-sftp'
