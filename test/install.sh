#!/bin/sh
# Installs Debian packages that tests need: install.sh PACKAGE... Those who call it
# at the same time wait for each other, as apt-get itself fails then.
set -eu
# --close: services that a package starts do not inherit the lock.
exec flock --close /run/lock/sky-test-install sh -euc '
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "$@" >/dev/null
' install "$@"
