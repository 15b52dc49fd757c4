"""Root file systems that hold another release of Slurm: built once from Debian's packages, kept in a cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, UserError
from penstock.host.files import locked
from penstock.host.homes import home
from penstock_lab.cluster.programs import PATH, parse_version
from penstock_lab.cluster.spec import RELEASES

__all__ = ["SystemTree", "cache_folder", "cached", "prepare"]

# Slurm, what it stands on, and the libraries that the host's own Python loads when jobs bring it along.
_PACKAGES = (
    "slurm-wlm",
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurmrestd",
    "munge",
    "mariadb-server",
    "libbz2-1.0",
    "libexpat1",
    "libffi8",
    "libsqlite3-0",
    "mount",
    "tzdata",
)
_BUILD_LIMIT = 900.0
_FORMAT = 2  # raised when what is built changes, so that older trees are built anew


@dataclass(frozen=True, slots=True)
class SystemTree:
    """A root file system with Slurm in it. Nothing may ever be mounted there or run there with write access."""

    release: str
    root: Path
    slurm_version: str


def cache_folder() -> Path:
    """Where the trees are kept: $XDG_CACHE_HOME/penstock, else for root /var/cache/penstock."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):
        return Path(cache) / "penstock"
    return Path("/var/cache/penstock") if os.geteuid() == 0 else home() / ".cache" / "penstock"


def cached(release: str) -> SystemTree | None:
    """The tree of this release if it has been built; None if not, or by another release of Penstock."""
    place = cache_folder() / release
    try:
        record = json.loads((place / "tree.json").read_text())
        whole = place.stat().st_uid == os.geteuid() and record["format"] == _FORMAT
        return SystemTree(release, place / "root", str(record["slurm_version"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prepare(release: str) -> SystemTree:
    """The tree of this release, built if it is not there yet, which takes one to two minutes and the network.

    UserError when it cannot be built by this caller; PenstockError with the end of the log when building fails.
    What an interrupted build leaves is removed by the next one.
    """
    if release not in RELEASES:
        raise UserError(f"--release {release}: must be one of {', '.join(RELEASES)}")
    if os.geteuid() != 0:
        raise UserError("--release: only root can run another release of Slurm, for it needs a file system of its own")
    if (found := cached(release)) is not None:
        return found
    cache = cache_folder()
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{cache}: {error.strerror}") from error
    if cache.is_symlink() or cache.stat().st_uid != os.geteuid():
        raise UserError(f"{cache}: not a folder that belongs to you")
    with _building(cache) as lock:
        # Another command may have built it while this one waited.
        return cached(release) or _build(release, cache, lock)


@contextmanager
def _building(cache: Path) -> Iterator[int]:
    """Let one command at a time build. A build that outlives its command holds the lock too, until it ends."""
    held = f"another command builds in {cache} for too long; try again"
    with locked(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, held, _BUILD_LIMIT) as fd:
        yield fd


def _build(release: str, cache: Path, lock: int) -> SystemTree:
    bootstrap = shutil.which("mmdebstrap", path=PATH)
    if bootstrap is None:
        raise UserError("missing mmdebstrap; on Debian run: apt-get install mmdebstrap")
    new, place, log = cache / f"{release}.new", cache / release, cache / f"{release}.log"
    for old in (new, place):
        if old.exists():
            shutil.rmtree(old)
    new.mkdir(mode=0o755)
    argv = [bootstrap, "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"']
    argv += [f"--include={','.join(_PACKAGES)}", release, str(new / "root")]
    try:
        _run(argv, log, lock)
        version = _version_in(new / "root")
        (new / "tree.json").write_text(json.dumps({"format": _FORMAT, "slurm_version": version}) + "\n")
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    log.unlink()
    return SystemTree(release, place / "root", version)


def _run(argv: list[str], log: Path, lock: int) -> None:
    # It mounts /dev and /proc in what it builds: in a namespace that ends with it, so that a crash leaves no mounts.
    apart = [shutil.which("unshare", path=PATH) or "unshare", "--mount", "--propagation", "private", "--"]
    mortal = [shutil.which("setpriv", path=PATH) or "setpriv", "--pdeathsig", "TERM", "--"]
    env = {"PATH": PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    env |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*apart, *mortal, *argv],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
            pass_fds=(lock,),
        )
        try:
            code = child.wait(_BUILD_LIMIT)
        except subprocess.TimeoutExpired:
            _end(child)
            raise PenstockError(f"mmdebstrap was not ready within {_BUILD_LIMIT:.0f} s; its log: {log}") from None
        except BaseException:
            _end(child)
            raise
    if code != 0:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-5:]
        raise PenstockError(f"mmdebstrap failed; the end of {log}:\n" + "\n".join(f"    {line}" for line in last))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build: softly, so that it can tidy up, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)


def _version_in(root: Path) -> str:
    done = subprocess.run(
        [shutil.which("chroot", path=PATH) or "chroot", str(root), "/usr/sbin/slurmctld", "-V"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return parse_version(done.stdout, f"slurmctld -V in {root}: {done.stderr.strip()}")
