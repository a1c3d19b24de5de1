package vm

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
)

// sshd makes a container reachable: it installs an ssh server if the image has none,
// lets the key in, gives sessions the container's environment, and goes on as the
// server.
const sshd = `export DEBIAN_FRONTEND=noninteractive
have() { command -v "$1" >/dev/null 2>&1; }
[ -x /usr/sbin/sshd ] || have sshd || {
  if have apt-get; then apt-get update -q && apt-get install -qy --no-install-recommends openssh-server
  elif have apk; then apk add --no-cache openssh
  elif have dnf; then dnf install -qy openssh-server
  elif have yum; then yum install -qy openssh-server
  fi
}
env | grep -E '^[A-Za-z_][A-Za-z0-9_]*=' > ~/.ssh/environment
mkdir -p /run/sshd
ssh-keygen -A
exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e -p 22 -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o PermitUserEnvironment=yes
`

// StartScript is what a machine's user runs first, for POSIX shells: it lets a public key
// in. A container's (an image that nobody prepared) goes on as an ssh server. It is
// refused if it has more bytes than most; 0: no limit.
func StartScript(key string, container bool, most int) (string, error) {
	if strings.ContainsAny(key, "'\n") {
		return "", fmt.Errorf("the public ssh key %.20q… is not one line", key)
	}
	script := "mkdir -p ~/.ssh\necho '" + key + "' >> ~/.ssh/authorized_keys\nchmod 700 ~/.ssh\nchmod 600 ~/.ssh/authorized_keys\n"
	if container {
		script += sshd
	}
	if most > 0 && len(script) > most {
		return "", fmt.Errorf("the script that starts a machine has %d bytes, and the cloud takes %d", len(script), most)
	}
	return script, nil
}

// Container is the image of a machine that is a container: the task's, or the standard one.
func Container(spec cloud.LaunchSpec, standard string) string {
	if image, ok := strings.CutPrefix(spec.ImageID, "docker:"); ok {
		return spec.Login.Image(image)
	}
	return standard
}

// UserData is StartScript for a machine that is made with cloud-init, by a user who is
// not root.
func UserData(key, user string, most int) (string, error) {
	script, err := StartScript(key, false, most)
	if err != nil {
		return "", err
	}
	return "#!/bin/sh\nsu - " + user + " -c \"$(echo " + base64.StdEncoding.EncodeToString([]byte(script)) + " | base64 -d)\"\n", nil
}

// Command is a command line without quotes that matter, which runs a script.
func Command(script string) string {
	return "sh -c 'echo " + base64.StdEncoding.EncodeToString([]byte(script)) + " | base64 -d > /tmp/start && exec sh /tmp/start'"
}

// MostOpenFiles is how many files a process of a job may have open on a rented machine, if
// its kernel allows as many.
const MostOpenFiles = 1 << 20

// QuietUpdates is a script for a POSIX shell, run by root, that keeps updates which a
// machine makes by itself from getting in the way of its user: they are switched off, one
// that runs is ended, and apt-get and dpkg wait up to 10 minutes for each other. It may be
// run again.
const QuietUpdates = `[ -d /run/systemd/system ] || exit 0
umask 022
if [ -d /etc/apt/apt.conf.d ]; then
  echo 'APT::Periodic::Enable "0"; APT::Periodic::Unattended-Upgrade "0"; DPkg::Lock::Timeout "600";' >/etc/apt/apt.conf.d/99sky
fi
for u in apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service dnf-automatic.timer dnf-automatic-install.timer; do
  systemctl cat "$u" >/dev/null 2>&1 || continue
  systemctl disable "$u"
  systemctl --no-block stop "$u"
done
systemctl --no-block stop apt-daily-upgrade.service
timeout 30 systemctl stop apt-daily.service
exit 0`

// BootCommand is QuietUpdates as an item of cloud-init's bootcmd, for machines whose first
// boot runs commands of the user's.
func BootCommand() string {
	return "- [sh, -c, " + strconv.Quote(QuietUpdates) + "]\n"
}

// raiseLimits, run by root, lets logins have $2 open files, or as many as the kernel
// allows, and what runs for the user with the number $1 any number of tasks.
const raiseLimits = `[ -d /run/systemd/system ] || exit 0
umask 022
n=$2
most=$(cat /proc/sys/fs/nr_open 2>/dev/null) && [ "$most" -lt "$n" ] && n=$most
if [ -d /etc/security/limits.d ]; then
  printf '* - nofile %s\nroot - nofile %s\n' "$n" "$n" >/etc/security/limits.d/99-sky.conf
fi
systemctl set-property "user-$1.slice" TasksMax=infinity
exit 0`

// Preparation is a script for a POSIX shell that a rented machine's user runs before
// anything else does: see [QuietUpdates]; and limits that get in the way of jobs are raised.
// It does its work once, and says "prepared", or why it could not.
var Preparation = sync.OnceValue(func() string {
	id := sha256.Sum256([]byte(QuietUpdates + raiseLimits))
	return `done=$HOME/.sky/prepared-` + hex.EncodeToString(id[:6]) + `
[ ! -e "$done" ] || { echo prepared; exit 0; }
root=
[ "$(id -u)" = 0 ] || root='sudo -n'
run() { $root sh -c "$(echo "$1" | base64 -d)" sh "$(id -u)" ` + strconv.Itoa(MostOpenFiles) + ` 2>&1 >/dev/null </dev/null; }
run ` + base64.StdEncoding.EncodeToString([]byte(QuietUpdates)) + ` && run ` + base64.StdEncoding.EncodeToString([]byte(raiseLimits)) + ` &&
  mkdir -p "$HOME/.sky" && : >"$done" && echo prepared
exit 0
`
})
