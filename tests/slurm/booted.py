"""A booted systemd, with this machine's programs and network but a root, processes and control groups of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from outside import need_program

_GROUPS = Path("/sys/fs/cgroup")
# Run in new namespaces. The root is a Debian of its own ($2) with a layer above it that may be written; or, where $2 is
# empty, made of this machine's /usr under such a layer and of empty folders, and no unit but systemd's own is enabled.
# $1: its folder, $3…: folders that it shares.
_BOOT = """
root=$1 tree=$2; shift 2
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir .upper .work
layers=upperdir="$root/.upper",workdir="$root/.work"
if [ -n "$tree" ]; then
    mkdir tree
    mount -t overlay -o lowerdir="$tree","$layers" overlay tree
    root=$root/tree
    cd "$root"
    cp -L /etc/resolv.conf /etc/hosts /etc/hostname etc/
else
    mkdir -p usr etc/systemd/system var/tmp var/lib var/log tmp run dev proc sys root home
    mount -t overlay -o lowerdir=/usr,"$layers" overlay usr
    for link in bin sbin lib lib64; do ln -s usr/$link $link; done
    for file in passwd group shadow ld.so.cache nsswitch.conf alternatives; do cp -a /etc/$file etc/ || true; done
fi
: >etc/machine-id
chmod 1777 tmp var/tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm dev/pts dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
# What belongs to the kernel, which is this machine's, too, must stay as it is.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
for unit in systemd-sysctl systemd-random-seed systemd-update-utmp systemd-remount-fs systemd-binfmt modprobe@ kmod \
    systemd-modules-load systemd-logind systemd-udevd systemd-hwdb-update; do
    ln -sf /dev/null etc/systemd/system/$unit.service
done
for unit in dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-fs-fuse-connections.mount sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount; do
    ln -sf /dev/null etc/systemd/system/$unit
done
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
groups=SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    groups="SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
    mount -o remount,ro sys/fs/cgroup  # it would take hold of the other hierarchies, which are not its own here
fi
mount -t tmpfs -o mode=755 tmpfs run
for shared; do mkdir -p "$root/$shared"; mount --bind "$shared" "$root/$shared"; done
mkdir .old
pivot_root . .old
umount -l .old
exec chroot . /usr/bin/env -i container=penstock-test PATH=/usr/sbin:/usr/bin:/sbin:/bin "$groups" \
    /lib/systemd/systemd --system --unit=basic.target
"""


class Booted:
    """The machine. `shared` folders are at the same place in it. `tree`: a root file system of its own."""

    def __init__(self, *shared: Path, tree: Path | None = None) -> None:
        need_program("systemctl", "systemd")
        unshare = need_program("unshare", "util-linux")
        self.root = Path(tempfile.mkdtemp(prefix="penstock-booted-"))
        unified = (_GROUPS / "cgroup.controllers").exists()
        self.group = _GROUPS / ("" if unified else "systemd") / self.root.name
        try:
            self.group.mkdir()
        except OSError as e:
            self.root.rmdir()
            reason = f"no systemd can be booted here: {e}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        into = 'echo $$ >"$0/cgroup.procs"; exec "$@"'  # before its namespace of control groups begins
        words = [unshare, "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts", "--cgroup"]
        boot = ["bash", "-eu", "-c", _BOOT, "boot", str(self.root), str(tree or ""), *map(str, shared)]
        self.log = self.root.with_suffix(".log")
        with self.log.open("wb") as log:
            self.outer = subprocess.Popen(
                ["bash", "-c", into, str(self.group), *words, *boot],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._await()
        except BaseException:
            self.down()
            raise

    def _await(self) -> None:
        end = time.monotonic() + 120
        while True:
            assert self.outer.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)
            children = psutil.Process(self.outer.pid).children()
            if not children:
                continue
            self.init = children[0].pid
            with contextlib.suppress(psutil.Error):
                if (
                    children[0].name() == "systemd"
                    and self.run("systemctl", "is-active", "basic.target").returncode == 0
                ):
                    return

    def run(
        self, *words: str, uid: int = 0, check: bool = False, limit: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """A command in it, as this user, for so many seconds at most."""
        enter = [
            "nsenter",
            f"--target={self.init}",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--cgroup",
            "--root",
            "--wd=/",
        ]
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        clean = ["/usr/bin/env", "-i", "--chdir=/", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "COLUMNS=200"]
        done = subprocess.run(
            [*enter, *clean, *become, *words], capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
        return done

    def show(self, unit: str, *properties: str) -> list[str]:
        """What systemd says of a unit."""
        done = self.run("systemctl", "show", "-p", ",".join(properties), unit, check=True)
        found = dict(line.split("=", 1) for line in done.stdout.splitlines())
        return [found[name] for name in properties]

    def write(self, path: str, text: str) -> None:
        """A file in it."""
        self.run("bash", "-c", 'mkdir -p "$(dirname "$0")" && printf %s "$1" >"$0"', path, text, check=True)

    def journal(self, unit: str) -> str:
        """The end of what a unit said."""
        return self.run("journalctl", "-u", unit, "-n", "40", "--no-pager", "-o", "cat").stdout

    def down(self) -> None:
        """Everything in it ends with its first process."""
        with contextlib.suppress(ProcessLookupError):
            if hasattr(self, "init"):
                os.kill(self.init, signal.SIGKILL)
        self.outer.kill()
        self.outer.wait(20)
        _remove(self.group)
        shutil.rmtree(self.root, ignore_errors=True)
        self.log.unlink(missing_ok=True)


def _remove(group: Path) -> None:
    end = time.monotonic() + 10
    while group.exists() and time.monotonic() < end:
        folders: Sequence[Path] = sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True)
        for folder in (*folders, group):
            with contextlib.suppress(OSError):
                folder.rmdir()
        time.sleep(0.05)
