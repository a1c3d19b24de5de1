package vm

import (
	"encoding/base64"
	"fmt"
	"strings"
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
