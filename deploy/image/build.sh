#!/bin/bash
# Makes the image out of a bare Debian, as root inside it: Slurm, munge and MariaDB of that Debian, and Penstock's packages.
# Run by the Dockerfile, and by chroot.sh where there is no Docker.
#   build.sh PACKAGE.deb…
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
# Nothing is to start while the image is built; later `penstock cluster` starts it all.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -qq update
# The programs that make users and folders come without systemd, which is not the first process of a container.
apt-get -qq -y --no-install-recommends install \
    slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server \
    iproute2 procps systemd-standalone-sysusers systemd-standalone-tmpfiles \
    "$@"
apt-get clean
rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/*
penstock --version
