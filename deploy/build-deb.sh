#!/usr/bin/env bash
# Builds the Debian packages of Penstock, for the Debian release and the architecture that this runs on. No root needed.
#   deploy/build-deb.sh [--lock FILE] [FOLDER]
#       FOLDER     where the packages go; default: dist. Nobody but you may be able to write there, since root is going to
#                  install what is in them.
#       --lock     bundles what this file names and nothing else, with the hashes in it; scripts/release.sh makes one
# Prints where they are: penstock, then penstock-lab, the laboratory, which no login node needs.
# Needs the packages python3-venv and dpkg, a C compiler (Debian: gcc libc6-dev; without it the forecasts of long queues are
# slower) and PyPI: what Penstock depends on is bundled, in a virtual environment of its
# own below /usr/lib/penstock, so that installing needs no network. PIP_CONSTRAINT=FILE pins it, without hashes. With either,
# the same source gives the same bytes; the dates in it are SOURCE_DATE_EPOCH, else that of the last commit.
# DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
umask 022

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOCK=""
if [ "${1:-}" = --lock ]; then
    LOCK=$(realpath -e -- "$2")
    shift 2
fi
OUT=${1:-dist}
PYTHON=/usr/bin/python3 # Debian's own: it is what the package will run on
PLACE=usr/lib/penstock
EXTRAS=dashboard,fronts,messages,planning,pool,rest,site-view # what the command line offers; MPI is the site's own
BESIDE=(dashboard fronts messages planning pool rest site-view) # the distributions beside the core that these are

# shellcheck source=/dev/null # scripts/own-folder.sh
. "$SOURCE/scripts/own-folder.sh"

say() { printf 'build-deb: %s\n' "$*" >&2; }

if ! "$PYTHON" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "Debian's Python 3.11 or newer with the venv module is needed: apt-get install python3-venv"
    exit 1
fi
own_folder "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$SOURCE" log -1 --format=%ct 2>/dev/null || stat -c %Y "$SOURCE/CHANGELOG.md")}
export SOURCE_DATE_EPOCH

# put MODE FILE PLACE: a copy of a file in the package.
put() { install -D -m "$1" "$2" "$root/$3"; }

say "bundling Penstock and what it needs"
"$PYTHON" -m venv "$work/tools"
"$PYTHON" -m venv --without-pip --symlinks "$root/$PLACE"
pip=$work/tools/bin/pip
"$pip" -q wheel --no-deps --wheel-dir "$work" "$SOURCE" "$SOURCE"/{dmr,lab,plugins/portals,plugins/snakemake-executor} \
    "${BESIDE[@]/#/$SOURCE/plugins/}"
wheel=$(ls "$work"/penstock-*.whl)
library=$(ls "$work"/penstock_dmr-*.whl)
beside=()
for name in "${BESIDE[@]//-/_}"; do beside+=("$work/penstock_$name"-*.whl); done
bundle() { "$pip" -q --python "$root/$PLACE/bin/python" install --no-compile --no-warn-script-location "$@"; }
if [ -n "$LOCK" ]; then
    bundle --require-hashes --no-deps -r "$LOCK"
    # By itself, since these were built a moment ago and are not in the lock; what that lacks is not fetched.
    bundle --no-index "$library" "${wheel}[$EXTRAS]" "${beside[@]}"
else
    bundle "$library" "${wheel}[$EXTRAS]" "${beside[@]}"
fi
"$pip" --python "$root/$PLACE/bin/python" freeze --exclude penstock --exclude penstock-dmr \
    "${BESIDE[@]/#/--exclude=penstock-}" >"$work/bundled.txt"

# A virtual environment knows its place by its interpreter; what else has the name of this folder is left out or made anew.
mine=$root/$PLACE
find "$mine/bin" -mindepth 1 ! -name 'python*' -delete
# -I: whatever a user's modules have put into PYTHONPATH is made for another Python.
cat >"$mine/bin/penstock" <<END
#!/$PLACE/bin/python3 -I
import sys

from penstock.__main__ import main

sys.exit(main())
END
chmod 755 "$mine/bin/penstock"
# Where a site installs policies of its own: pip install --target.
echo /usr/local/lib/penstock/plugins >"$("$mine/bin/python" -c 'import site; print(site.getsitepackages()[0])')/site-plugins.pth"
sed -i '/^command = /d' "$mine/pyvenv.cfg"
find "$mine/lib" -path '*.dist-info/*' \( -name RECORD -o -name direct_url.json -o -name REQUESTED \) -delete

say "man pages and completions"
"$mine/bin/python" "$SOURCE/deploy/manpages.py" "$work/man"
gzip -9n "$work"/man/*
for page in "$work"/man/*; do put 644 "$page" "usr/share/man/man1/${page##*/}"; done
complete() {
    _PENSTOCK_COMPLETE=$1_source "$mine/bin/python" "$mine/bin/penstock" >"$work/completion"
    put 644 "$work/completion" "$2"
}
complete bash usr/share/bash-completion/completions/penstock
complete zsh usr/share/zsh/vendor-completions/_penstock
complete fish usr/share/fish/vendor_completions.d/penstock.fish

say "everything else"
mkdir -p "$root/usr/bin"
ln -s "/$PLACE/bin/penstock" "$root/usr/bin/penstock"
put 644 "$SOURCE/deploy/penstock-system.yaml" etc/penstock/penstock.yaml
put 644 "$SOURCE/systemd/penstock.service" usr/lib/systemd/system/penstock.service
put 644 "$SOURCE/systemd/penstock-site-view.service" usr/lib/systemd/system/penstock-site-view.service
put 644 "$SOURCE/systemd/penstock-user.service" usr/lib/systemd/user/penstock-user.service
sed -i 's|^ExecStart=%h/.local/bin/|ExecStart=/usr/bin/|' "$root/usr/lib/systemd/user/penstock-user.service"
put 644 "$SOURCE/systemd/penstock.sysusers" usr/lib/sysusers.d/penstock.conf
put 644 "$SOURCE/systemd/penstock-site-view.sysusers" usr/lib/sysusers.d/penstock-site-view.conf
put 644 "$SOURCE/systemd/penstock.tmpfiles" usr/lib/tmpfiles.d/penstock.conf
# For environments of others: the wheels of the library, of Snakemake's executor with the agent's that it is made for, and of
# JupyterHub's spawner. libdmr as source, since it must fit their MPI.
for file in "$wheel" "$library" "${beside[@]}" "$work"/{penstock_portals,snakemake_executor_plugin_penstock}-*.whl; do
    put 644 "$file" "usr/share/penstock/${file##*/}"
done
# The app for Open OnDemand as it is copied to the portal's host, with what it imports.
(cd "$SOURCE/plugins/portals/ondemand" && find . -type f ! -name '*.pyc' -exec install -D -m 644 {} "$root/usr/share/penstock/ondemand/{}" \;)
(cd "$SOURCE/plugins/portals" && find penstock_portals -type f ! -name '*.pyc' \
    -exec install -D -m 644 {} "$root/usr/share/penstock/ondemand/app/{}" \;)
put 644 "$SOURCE/deploy/penstock.yaml" usr/share/penstock/penstock.yaml
put 644 "$SOURCE/systemd/penstock-shared.conf" usr/share/penstock/systemd/penstock-shared.conf
put 644 "$SOURCE/deploy/apparmor/penstock-agent" usr/share/penstock/apparmor/penstock-agent
put 644 "$SOURCE/deploy/logrotate/penstock" usr/share/penstock/logrotate/penstock
for file in "$SOURCE"/deploy/{grafana,prometheus}/*; do put 644 "$file" "usr/share/penstock/${file#"$SOURCE/deploy/"}"; done
for file in "$SOURCE"/dmr/c/{Makefile,*.[ch],package/*,examples/*.c}; do put 644 "$file" "usr/share/penstock/libdmr/${file#"$SOURCE/dmr/c/"}"; done
if [ -d "$SOURCE/plugins/slurm" ]; then
    (cd "$SOURCE/plugins/slurm" && find . -type f -exec install -D -m 644 {} "$root/usr/share/penstock/slurm/{}" \;)
fi
for file in "$SOURCE"/README.md "$SOURCE"/docs/*.md "$work/bundled.txt"; do put 644 "$file" "usr/share/doc/penstock/${file##*/}"; done
put 644 "$SOURCE/deploy/debian/copyright" usr/share/doc/penstock/copyright
gzip -9nc "$SOURCE/CHANGELOG.md" >"$root/usr/share/doc/penstock/changelog.gz"

# The paths in the compiled files are those of the installed ones; nothing is to be compiled, or left over, there. What
# hashes have a part in must not differ from build to build.
PYTHONHASHSEED=0 "$mine/bin/python" -m compileall -q -s "$root" -p / --invalidation-mode unchecked-hash "$mine/lib"

# shellcheck source=/dev/null
. /etc/os-release
# 0.2.0.dev0 is before 0.2.0 for pip; for dpkg 0.2.0~dev0 is.
upstream=$(sed -E 's/^penstock-([^-]+)-.*/\1/; s/\.?(dev|a|b|rc)/~\1/' <<<"${wheel##*/}")
version=$upstream+deb${VERSION_ID:-sid}
architecture=$(dpkg --print-architecture)
mkdir "$root/DEBIAN"
install -m 755 "$SOURCE"/deploy/debian/{postinst,prerm,postrm} "$root/DEBIAN"
echo /etc/penstock/penstock.yaml >"$root/DEBIAN/conffiles"
# control ROOT FILE: what dpkg is told of the package in a folder. Its size is in KiB, and that of each folder in it one:
# what a folder itself takes on a disk depends on what was in it before.
control() {
    local size
    size=$(find "$1" -name DEBIAN -prune -o -type d -printf '1\n' -o -printf '%s\n' |
        awk '{ all += int(($1 + 1023) / 1024) } END { print all }')
    sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@SIZE@|$size|" \
        -e "s|@MAINTAINER@|${DEBFULLNAME:-Penstock} <${DEBEMAIL:-root@localhost}>|" \
        -e "s|@PYTHON@|$("$PYTHON" -c 'import sys; print("{}.{}".format(*sys.version_info))')|" \
        -e "s|@NEXT_PYTHON@|$("$PYTHON" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1] + 1}")')|" \
        "$SOURCE/deploy/debian/$2" >"$1/DEBIAN/control"
    (cd "$1" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}
control "$root" control

say "the laboratory"
lab=$work/lab-root
packages=$("$mine/bin/python" -c 'import site; print(site.getsitepackages()[0])')
"$pip" -q --python "$mine/bin/python" install --no-deps --no-compile --target "$lab/${packages#"$root/"}" "$work"/penstock_lab-*.whl
find "$lab" -path '*.dist-info/*' \( -name RECORD -o -name direct_url.json -o -name REQUESTED \) -delete
# Its commands are looked for where the Python that runs has its packages, and nowhere else.
echo "$lab/${packages#"$root/"}" >"$packages/laboratory.pth"
"$mine/bin/python" "$SOURCE/deploy/manpages.py" "$work/man-lab"
rm "$packages/laboratory.pth"
gzip -9n "$work"/man-lab/*
for page in "$work"/man-lab/*; do
    if [ ! -e "$work/man/${page##*/}" ]; then install -D -m 644 "$page" "$lab/usr/share/man/man1/${page##*/}"; fi
done
install -D -m 644 "$SOURCE/deploy/debian/copyright" "$lab/usr/share/doc/penstock-lab/copyright"
PYTHONHASHSEED=0 "$mine/bin/python" -m compileall -q -s "$lab" -p / --invalidation-mode unchecked-hash "$lab/$PLACE"
mkdir "$lab/DEBIAN"
control "$lab" control-lab

say "packing"
for package in "penstock $root $architecture" "penstock-lab $lab all"; do
    read -r name folder machine <<<"$package"
    dpkg-deb --root-owner-group -Zzstd --build "$folder" "$OUT/${name}_${version}_$machine.deb" >&2
    echo "$OUT/${name}_${version}_$machine.deb"
done
