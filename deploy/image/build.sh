#!/bin/bash
# Makes the image out of a bare Debian, as root inside it. Run by the Dockerfile, and by chroot.sh where there is no Docker.
#   build.sh system                    Slurm, munge and MariaDB of that Debian, and the users, whose numbers never change
#   build.sh mpi FOLDER PACKAGE.deb    an environment with MPI, and with what is in Penstock's package; needs python3-venv
#   build.sh packages PACKAGE.deb…     Penstock's packages
#   build.sh finish                    what fits the files that have been copied since
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
HOMES=/home

# What is in the volumes belongs to numbers, which must be the same in every build and in every container.
# person NAME NUMBER [HOME SHELL]: make that user and group, or give the one that is there this number.
person() {
    local name=$1 number=$2 home=${3:-/nonexistent} shell=${4:-/usr/sbin/nologin} old
    if ! getent passwd "$name" >/dev/null; then
        groupadd --gid "$number" "$name"
        useradd --no-create-home --uid "$number" --gid "$number" --home-dir "$home" --shell "$shell" "$name"
    elif old=$(id -u "$name") && [ "$old" != "$number" ]; then
        groupmod --gid "$number" "$name"
        usermod --uid "$number" --gid "$number" "$name"
        find / -xdev -user "$old" -exec chown -h "$name:$name" {} +
    fi
}

system() {
    local name
    person munge 901
    person mysql 902
    person penstock 903 /var/lib/penstock
    person penstock-slurm 904
    person pst-alice 2001 "$HOMES/pst-alice" /bin/bash
    person pst-bob 2002 "$HOMES/pst-bob" /bin/bash
    person pst-operator 2003 "$HOMES/pst-operator" /bin/bash
    for name in alice bob operator; do
        install -d -m 700 -o "pst-$name" -g "pst-$name" "$HOMES/pst-$name"
    done
    # Nothing is to start while the image is built; later its entry points start it all.
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    apt-get -qq update
    # The programs that make users and folders come without systemd, which is not the first process of a container.
    apt-get -qq -y --no-install-recommends install \
        slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server python3 \
        iproute2 iputils-ping procps systemd-standalone-sysusers systemd-standalone-tmpfiles
    rm /usr/sbin/policy-rc.d
    # A key that everybody who has the image knows is none, and a database is made where it is used.
    rm -rf /etc/munge/munge.key /var/lib/mysql
    install -d -m 700 -o mysql -g mysql /var/lib/mysql
    clean
}

mpi() {
    local folder=$1 bundled
    dpkg-deb --extract "$2" /
    bundled=$(echo /usr/lib/penstock/lib/python3*/site-packages)
    python3 -m venv "$folder"
    echo "import site; site.addsitedir('$bundled')" >"$(echo "$folder"/lib/python3*/site-packages)/penstock.pth"
    # numpy, which these need, is there already.
    "$folder/bin/pip" -q install mpi4py mpich matplotlib
}

packages() {
    apt-get -qq update
    apt-get -qq -y --no-install-recommends install "$@"
    clean
    penstock --version
}

finish() {
    # Slurm demands this file from 23.11 on, and up to 23.02 it ends where it finds the word.
    if dpkg --compare-versions "$(slurmd -V | cut -d' ' -f2)" ge 23.11; then
        echo "CgroupPlugin=disabled" >/etc/slurm/cgroup.conf
    fi
    chown slurm:slurm /etc/slurm/slurmdbd.conf
    chmod 600 /etc/slurm/slurmdbd.conf
    chmod 755 /usr/local/sbin/penstock-image-*
}

# What differs from build to build and is of no use.
clean() {
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/apt /var/log/*.log /tmp/* /var/tmp/*
    rm -f /etc/*- /var/lib/dpkg/*-old
}

case "${1:-}" in
system | packages | finish) "$@" ;;
mpi) "$@" ;;
*)
    sed -n '3,6s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
